//! Settings of plugins: sources by the name of their plugin, the isolation of plugins, and the allowed plugins. The plugin
//! loader defines the grammars.

use elasticrun_plugin_loader::{Allowed, Isolation, Spec};
use toml::Value;

use super::value::{Setting, word_setting};

impl Setting for Spec {
    fn read(words: &[String]) -> Result<Self, String> {
        match words {
            [word] => word
                .trim()
                .parse()
                .map(without_trailing_space)
                .map_err(|error| format!("NAME[:key=value,...] ({error})")),
            _ => Err("NAME[:key=value,...]".to_owned()),
        }
    }

    fn show(&self) -> Option<Value> {
        Some(Value::String(self.to_string()))
    }
}

/// White space at the end of a value does not count, as at the end of the word. Options are shown in another order than they
/// are written, so each value may become the last one.
pub(super) fn without_trailing_space(mut spec: Spec) -> Spec {
    for value in spec.options.values_mut() {
        if let serde_json::Value::String(text) = value {
            text.truncate(text.trim_end().len());
        }
    }
    spec
}

word_setting!(Isolation, "process or thread",
    "process" => Isolation::Process,
    "thread" => Isolation::Thread,
);

impl Setting for Allowed {
    fn read(words: &[String]) -> Result<Self, String> {
        let [word] = words else {
            return Err("NAME=sha256:HASH".to_owned());
        };
        word.trim()
            .parse()
            .map_err(|allowed: elasticrun_plugin_loader::NotAllowed| allowed.to_string())
    }

    fn show(&self) -> Option<Value> {
        Some(Value::String(self.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_with_options_is_shown_as_it_is_read() {
        let read = |text: &str| <Spec as Setting>::read(&[text.to_owned()]);
        let spec = read(r"static:hosts=a:4\,b:4").expect("a source");
        assert_eq!(spec.name, "static");
        assert_eq!(read(&spec.to_string()), Ok(spec));
        let spec = read("x:z=a ,b=c d").expect("a source");
        assert_eq!(spec.to_string(), "x:b=c d,z=a");
        assert_eq!(read(&spec.to_string()), Ok(spec));
        assert_eq!(
            read("asg:x").expect_err("no value"),
            r"NAME[:key=value,...] (the option x has no value; write x=VALUE, and a comma inside a value as \,)"
        );
    }
}
