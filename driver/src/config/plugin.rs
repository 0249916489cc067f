//! A source of hosts by the name of its plugin.

use std::{collections::BTreeMap, fmt};

use toml::Value;

use super::value::Setting;

/// A discovery plugin and its options: `NAME[:key=value,...]`. A comma inside a value is written `\,`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PluginSource {
    /// The plugin's name.
    pub name: String,
    /// Its options, as written.
    pub options: BTreeMap<String, String>,
}

impl Setting for PluginSource {
    fn read(words: &[String]) -> Result<Self, String> {
        match words {
            [word] => Self::parse(word.trim()),
            _ => Err(PLUGIN_FORM.to_owned()),
        }
    }

    fn show(&self) -> Option<Value> {
        Some(Value::String(self.to_string()))
    }
}

const PLUGIN_FORM: &str =
    "NAME or NAME:key=value,key=value, where NAME has letters, digits, - and _";

impl PluginSource {
    fn parse(text: &str) -> Result<Self, String> {
        let (name, rest) = text
            .split_once(':')
            .map_or((text, None), |(name, rest)| (name, Some(rest)));
        let word = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || !name.chars().all(word) {
            return Err(PLUGIN_FORM.to_owned());
        }
        let mut options = BTreeMap::new();
        for option in rest.map(split_at_commas).unwrap_or_default() {
            let Some((key, value)) = option.split_once('=').filter(|(key, _)| !key.is_empty())
            else {
                return Err(PLUGIN_FORM.to_owned());
            };
            if options.insert(key.to_owned(), value.to_owned()).is_some() {
                return Err(format!("each option once, {key} is there twice"));
            }
        }
        Ok(Self {
            name: name.to_owned(),
            options,
        })
    }
}

impl fmt::Display for PluginSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        for (place, (key, value)) in self.options.iter().enumerate() {
            let mark = if place == 0 { ':' } else { ',' };
            let value = value.replace('\\', r"\\").replace(',', r"\,");
            write!(f, "{mark}{key}={value}")?;
        }
        Ok(())
    }
}

fn split_at_commas(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let last = parts.len() - 1;
        match c {
            ',' => parts.push(String::new()),
            '\\' => parts[last].push(chars.next().unwrap_or('\\')),
            other => parts[last].push(other),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: Setting>(words: &[&str]) -> Result<T, String> {
        T::read(
            &words
                .iter()
                .map(|word| (*word).to_owned())
                .collect::<Vec<_>>(),
        )
    }

    #[test]
    fn a_plugin_with_options() {
        let source: PluginSource = read(&[r"asg:name=gpus,tags=a=b\,c,empty="]).expect("a source");
        assert_eq!(source.name, "asg");
        let options: Vec<_> = source
            .options
            .iter()
            .map(|(k, v)| (k.as_str(), v.as_str()))
            .collect();
        assert_eq!(
            options,
            [("empty", ""), ("name", "gpus"), ("tags", "a=b,c")]
        );
        assert_eq!(read(&[&source.to_string()]), Ok(source));
        for wrong in [
            "",
            ":",
            "a b",
            "a:",
            "a:x",
            "a:=1",
            "a:x=1,",
            "a:x=1,x=2",
            "../lib",
        ] {
            assert!(read::<PluginSource>(&[wrong]).is_err(), "{wrong}");
        }
    }
}
