//! What standby interpreters import before a restart in process mode.

use toml::Value;

use super::value::Setting;

/// What standby interpreters import before a restart in process mode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Preload {
    /// There are no standby interpreters.
    None,
    /// What the script imports from the standard library and from installed packages.
    Auto,
    /// These modules.
    Modules(Vec<String>),
}

impl Setting for Preload {
    fn read(words: &[String]) -> Result<Self, String> {
        let [word] = words else {
            return Err(expected());
        };
        match word.trim() {
            "none" => Ok(Self::None),
            "auto" => Ok(Self::Auto),
            word => {
                let names = word.split(',').map(|name| name.trim().to_owned());
                let names: Vec<_> = names.collect();
                if names.iter().all(|name| is_module(name)) {
                    Ok(Self::Modules(names))
                } else {
                    Err(expected())
                }
            }
        }
    }

    fn show(&self) -> Option<Value> {
        let word = match self {
            Self::None => "none".to_owned(),
            Self::Auto => "auto".to_owned(),
            Self::Modules(names) => names.join(","),
        };
        Some(Value::String(word))
    }
}

fn expected() -> String {
    "auto, none, or names of modules such as torch,torch.distributed".to_owned()
}

/// Whether a word is the name of a Python module: identifiers with dots between them.
fn is_module(name: &str) -> bool {
    name.split('.').all(|part| {
        let mut characters = part.chars();
        let starts = characters
            .next()
            .is_some_and(|c| c.is_alphabetic() || c == '_');
        starts && characters.all(|c| c.is_alphanumeric() || c == '_')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(word: &str) -> Result<Preload, String> {
        Preload::read(&[word.to_owned()])
    }

    #[test]
    fn a_word_is_one_of_two_or_names_of_modules() {
        assert_eq!(read("none"), Ok(Preload::None));
        assert_eq!(read("auto"), Ok(Preload::Auto));
        let modules = vec!["torch".to_owned(), "torch.utils._x2".to_owned()];
        assert_eq!(
            read("torch, torch.utils._x2"),
            Ok(Preload::Modules(modules))
        );
        for wrong in ["", "a,", "a..b", "2a", "a b", "a-b", ".a"] {
            read(wrong).expect_err(wrong);
        }
    }

    #[test]
    fn a_value_prints_to_a_word_that_reads_as_the_same() {
        for word in ["none", "auto", "torch", "a.b,c"] {
            let value = read(word).expect(word).show();
            assert_eq!(value, Some(Value::String(word.to_owned())));
        }
    }
}
