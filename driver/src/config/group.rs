//! Sources of hosts with their own flag: `--aws-asg NAME:K=V` is `--discovery aws-asg:name=NAME,K=V`.

use elasticrun_plugin_loader::Spec;
use toml::Value;

use super::{plugin::without_trailing_space, value::Setting};

/// A group of hosts at a source, with options of the source's plugin.
#[derive(Clone, PartialEq, Debug)]
pub struct Group {
    /// Its name at the source.
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
        let name = &word[..end_of_name(word)];
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

/// Where the options begin: at the first colon before a `key=`. A name may have a colon itself, as in the project
/// `example.com:lab/...` or in a URL; without options, it then has a slash behind it.
fn end_of_name(word: &str) -> usize {
    let is_key = |key: &str| {
        let fits = |letter: u8| {
            letter.is_ascii_lowercase() || letter.is_ascii_digit() || b"_-".contains(&letter)
        };
        !key.is_empty() && key.bytes().all(fits)
    };
    let before_options = |at: &usize| {
        let rest = &word[at + 1..];
        rest.split_once('=').is_some_and(|(key, _)| is_key(key))
    };
    let mut colons = word.match_indices(':').map(|(at, _)| at);
    let Some(first) = colons.clone().next() else {
        return word.len();
    };
    let path = word[first..].split('=').next().unwrap_or_default();
    match colons.find(before_options) {
        Some(at) => at,
        None if path.contains('/') => word.len(),
        None => first,
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
    fn a_name_may_have_a_colon() {
        for (text, name, options) in [
            (
                "example.com:lab/europe-west4-a/gpus",
                "example.com:lab/europe-west4-a/gpus",
                0,
            ),
            (
                "example.com:lab/z/gpus:slots=8,use=a:b",
                "example.com:lab/z/gpus",
                2,
            ),
            (
                "https://host:443/projects/p/zones/z/n",
                "https://host:443/projects/p/zones/z/n",
                0,
            ),
            ("https://host/n:slots=8", "https://host/n", 1),
            ("app=train,tier=gpu:namespace=lab", "app=train,tier=gpu", 1),
        ] {
            let group = read(text).expect(text);
            let spec = group.spec("p", "name");
            assert_eq!(spec.options["name"], name);
            assert_eq!(spec.options.len(), 1 + options, "{text}");
            assert_eq!(group.show(), Some(text.into()));
        }
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
