//! Texts of which a line must have one (`--duplicate-stdout-filters`), in torchrun's notation.

use toml::Value;

use super::value::Setting;

/// Some texts, at least one. None is empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LineFilters(Vec<String>);

impl LineFilters {
    /// Whether a line has one of the texts.
    #[must_use]
    pub fn pass(&self, line: &[u8]) -> bool {
        let has = |text: &String| {
            let text = text.as_bytes();
            line.windows(text.len()).any(|part| part == text)
        };
        self.0.iter().any(has)
    }
}

impl Setting for LineFilters {
    fn read(words: &[String]) -> Result<Self, String> {
        let [word] = words else {
            return Err(ALLOWED.to_owned());
        };
        let texts = word.split(',').map(str::trim);
        let texts: Vec<_> = texts.filter(|text| !text.is_empty()).collect();
        if texts.is_empty() || word.contains('\n') {
            return Err(ALLOWED.to_owned());
        }
        Ok(Self(texts.into_iter().map(str::to_owned).collect()))
    }

    fn show(&self) -> Option<Value> {
        Some(Value::String(self.0.join(",")))
    }
}

const ALLOWED: &str = "texts separated by commas, as in loss,error";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_passes_with_one_of_the_texts() {
        let read = |word: &str| LineFilters::read(&[word.to_owned()]);
        let filters = read("loss, oh no,,").expect("two texts");
        assert_eq!(filters.show(), Some(Value::String("loss,oh no".to_owned())));
        for (line, passes) in [
            ("a loss of 3", true),
            ("oh no", true),
            ("los s", false),
            ("", false),
        ] {
            assert_eq!(filters.pass(line.as_bytes()), passes, "{line}");
        }
        for word in ["", ",", " , ", "a\nb"] {
            assert_eq!(read(word), Err(ALLOWED.to_owned()), "{word:?}");
        }
    }
}
