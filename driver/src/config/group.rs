//! Sources of hosts with their own flag: `--aws-asg NAME:K=V` is `--discovery aws-asg:name=NAME,K=V`.

use elasticrun_plugin_loader::Spec;
use toml::Value;

use super::{plugin::without_trailing_space, value::Setting};

/// A group of hosts at a source, with options of the source's plugin.
#[derive(Clone, PartialEq, Debug)]
pub struct Group {
    /// Its name at the source. It has no colon.
    name: String,
    /// The options. The name in this spec is a placeholder.
    options: Spec,
}

const FORM: &str = "GROUP[:key=value,...]";

impl Group {
    /// The specification of the source, in which `option` names the group.
    pub(super) fn spec(&self, plugin: &str, option: &str) -> Spec {
        let mut spec = self.options.clone();
        plugin.clone_into(&mut spec.name);
        spec.options
            .insert(option.to_owned(), self.name.clone().into());
        spec
    }
}

impl Setting for Group {
    fn read(words: &[String]) -> Result<Self, String> {
        let [word] = words else {
            return Err(FORM.to_owned());
        };
        let word = word.trim();
        let name = word.split(':').next().unwrap_or_default();
        if name.is_empty() {
            return Err(format!("{FORM} (the group has no name)"));
        }
        let options = format!("group{}", &word[name.len()..]);
        let options = options
            .parse()
            .map(without_trailing_space)
            .map_err(|error| format!("{FORM} ({error})"))?;
        Ok(Self {
            name: name.to_owned(),
            options,
        })
    }

    fn show(&self) -> Option<Value> {
        let options = self.options.to_string();
        let options = options.strip_prefix("group").unwrap_or_default();
        Some(Value::String(format!("{}{options}", self.name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Group, String> {
        Group::read(&[text.to_owned()])
    }

    #[test]
    fn a_group_is_an_option_of_its_plugin() {
        let group = read("gpus,more:region=eu-central-1,slots=8").expect("a group");
        let spec = group.spec("aws-asg", "name");
        assert_eq!(spec.name, "aws-asg");
        assert_eq!(spec.options["name"], "gpus,more");
        assert_eq!(spec.options["slots"], "8");
        assert_eq!(
            group.show(),
            Some("gpus,more:region=eu-central-1,slots=8".into())
        );
        assert_eq!(read("gpus").expect("a group").show(), Some("gpus".into()));
        let shown = read("gpus:z=a ,b=c").expect("a group").show();
        assert_eq!(shown, Some("gpus:b=c,z=a".into()));
    }

    #[test]
    fn a_mistake_is_named() {
        assert_eq!(
            read("").expect_err("no name"),
            "GROUP[:key=value,...] (the group has no name)"
        );
        assert!(
            read("gpus:region")
                .expect_err("no value")
                .contains("the option region has no value")
        );
    }
}
