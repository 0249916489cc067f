//! A fixed list of hosts as a setting. The plugin SDK defines the grammar, which discovery shares.

use elasticrun_plugin_sdk::hosts::{HostSpec, parse_host_list};
use toml::Value;

use super::value::Setting;

/// The hosts of `--hosts`: at least one, without repetition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostList(pub Vec<HostSpec>);

/// In a file the hosts may be a list instead of one string with commas.
impl Setting for HostList {
    fn read(words: &[String]) -> Result<Self, String> {
        parse_host_list(&words.join(","))
            .map(Self)
            .map_err(|error| format!("HOST:SLOTS,... ({error})"))
    }

    fn show(&self) -> Option<Value> {
        let hosts: Vec<_> = self.0.iter().map(HostSpec::to_string).collect();
        Some(Value::String(hosts.join(",")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_and_a_text_with_commas_are_the_same() {
        let text = HostList::read(&["a:4,[::1]:2,u@c".to_owned()]).expect("three hosts");
        let list = HostList::read(&["a:4".to_owned(), "[::1]:2".to_owned(), "u@c".to_owned()]);
        assert_eq!(list.as_ref(), Ok(&text));
        assert_eq!(
            text.show(),
            Some(Value::String("a:4,[::1]:2,u@c".to_owned()))
        );
    }

    #[test]
    fn the_parser_says_what_is_wrong() {
        assert_eq!(
            HostList::read(&["a:4,b:0".to_owned()]).expect_err("no slots"),
            "HOST:SLOTS,... (host 2, \"b:0\": slots must be a number from 1 to 1024)"
        );
    }
}
