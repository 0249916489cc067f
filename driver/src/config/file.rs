//! A configuration file: TOML with one key per setting. Each value keeps its line.

use std::path::Path;

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    error::{Error, Written},
    layer::{Layers, Origin},
    nearest::nearest_setting,
};

/// Adds the values in `text`, the content of the file at `path`.
///
/// # Errors
/// The text is not TOML, a key is no setting, or a value is neither a word nor a list of words.
pub(super) fn add(
    layers: &mut Layers,
    path: &Path,
    text: &str,
    keys: &[&'static str],
) -> Result<(), Error> {
    let table = DeTable::parse(text).map_err(|error| Error::Syntax {
        path: path.to_owned(),
        line: error.span().map_or(1, |span| line(text, span.start)),
        message: error.message().to_owned(),
    })?;
    // In the order of the file, so that the error names its first mistake.
    let mut entries: Vec<_> = table.get_ref().iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    for (key, value) in entries {
        let origin = Origin::File {
            path: path.to_owned(),
            line: line(text, key.span().start),
        };
        let name = key.get_ref().as_ref();
        if !keys.contains(&name) {
            return Err(Error::UnknownKey {
                path: path.to_owned(),
                line: line(text, key.span().start),
                key: name.to_owned(),
                nearest: nearest_setting(name).map(str::to_owned),
            });
        }
        let Some(words) = words(value) else {
            let shown = text[value.span()].to_owned();
            return Err(Error::Value {
                written: Written(format!("{origin}: {name} = {shown}")),
                allowed: "text, a number, true, false or a list of these".to_owned(),
            });
        };
        layers.add(name, origin, words);
    }
    Ok(())
}

fn words(value: &Spanned<DeValue<'_>>) -> Option<Vec<String>> {
    match value.get_ref() {
        DeValue::Array(values) => values.iter().map(|value| word(value.get_ref())).collect(),
        single => Some(vec![word(single)?]),
    }
}

fn word(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().to_owned()),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        DeValue::Boolean(truth) => Some(truth.to_string()),
        _ => None,
    }
}

fn line(text: &str, offset: usize) -> usize {
    text.bytes()
        .take(offset)
        .filter(|byte| *byte == b'\n')
        .count()
        + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: &[&str] = &["np", "min-np", "hosts", "spares"];

    fn read(text: &str) -> Result<Layers, Error> {
        let mut layers = Layers::default();
        add(&mut layers, Path::new("job.toml"), text, KEYS)?;
        Ok(layers)
    }

    #[test]
    fn values_become_words_with_their_line() {
        let layers =
            read("# a job\nnp = 4\n\nhosts = [\n  \"a:2\",\n  \"b:2\",\n]\n").expect("sound");
        let np = layers.get("np").expect("given");
        assert_eq!(
            (np.origin.to_string().as_str(), np.words.as_slice()),
            ("job.toml:2", &["4".to_owned()][..])
        );
        let hosts = layers.get("hosts").expect("given");
        assert_eq!(hosts.origin.to_string(), "job.toml:4");
        assert_eq!(hosts.words, ["a:2", "b:2"]);
    }

    #[test]
    fn mistakes_have_a_line_a_key_and_a_remedy() {
        for (text, message) in [
            (
                "np = 1\nmin_np = 2",
                "job.toml:2: min_np: no such setting; did you mean min-np?",
            ),
            (
                "num-proc = 2",
                "job.toml:1: num-proc: no such setting; did you mean np?",
            ),
            (
                "zz = 2",
                "job.toml:1: zz: no such setting; all are listed by elasticrun config show",
            ),
            (
                "spares = 1\nzz = 2\naa = 1",
                "job.toml:2: zz: no such setting; all are listed by elasticrun config show",
            ),
            (
                "[np]\nx = 1",
                "job.toml:1: np = [np]: expected text, a number, true, false or a list of these",
            ),
            (
                "np = 0x10",
                "job.toml:1: np = 0x10: expected text, a number, true, false or a list of these",
            ),
        ] {
            assert_eq!(read(text).expect_err(text).to_string(), message);
        }
        let wrong = read("np = 1\nnp 4\n").expect_err("not TOML").to_string();
        assert!(wrong.starts_with("job.toml:2: "), "{wrong}");
        let twice = read("np = 1\nnp = 4\n")
            .expect_err("a key twice")
            .to_string();
        assert!(twice.starts_with("job.toml:2: "), "{twice}");
    }
}
