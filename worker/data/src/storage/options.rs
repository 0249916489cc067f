//! Options of object stores, some of which are secrets.

use std::{collections::BTreeMap, fmt};

/// Names of options whose values errors may show. All others may be secrets, or hold one.
const PLAIN: [&str; 8] = [
    "region",
    "bucket",
    "endpoint",
    "account_name",
    "container",
    "allow_http",
    "timeout",
    "emulator",
];

/// Options of an object store by the names of the crate `object_store`: `aws_access_key_id`, `google_service_account`,
/// `azure_storage_account_key`, `timeout` and so on. They precede the variables of the environment.
///
/// Neither `Debug` nor an error shows a value that may be a secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StorageOptions(BTreeMap<String, String>);

impl StorageOptions {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Names and values.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        (self.0.iter()).map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// A message of an object store without the values that may be secrets, and without signatures of addresses.
    pub(crate) fn hide_in(&self, text: &str) -> String {
        let mut text = text.to_owned();
        let mut secrets: Vec<&str> = (self.iter())
            .filter(|(name, value)| !is_plain(name) && !value.is_empty())
            .map(|(_, value)| value)
            .collect();
        // A secret may be a part of another one.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        for secret in secrets {
            text = text.replace(secret, HIDDEN);
        }
        for name in ["sig=", "Signature="] {
            text = without_values(&text, name);
        }
        text
    }
}

const HIDDEN: &str = "***";

fn is_plain(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    PLAIN.iter().any(|plain| name.ends_with(plain))
}

/// The text with `***` in place of each value behind `name`.
fn without_values(text: &str, name: &str) -> String {
    let mut parts = text.split(name);
    let mut result = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part
            .find(|c: char| c == '&' || c == ')' || c == '"' || c.is_whitespace())
            .unwrap_or(part.len());
        result += name;
        result += HIDDEN;
        result += &part[end..];
    }
    result
}

impl FromIterator<(String, String)> for StorageOptions {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(options: I) -> Self {
        Self(options.into_iter().collect())
    }
}

impl fmt::Debug for StorageOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |(name, value)| match is_plain(name) {
            true => (name, value),
            false => (name, HIDDEN),
        };
        f.debug_map().entries(self.iter().map(shown)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_is_shown() {
        let options: StorageOptions = [
            ("aws_region", "eu-west-1"),
            ("AWS_SECRET_ACCESS_KEY", "hush"),
            ("aws_session_token", "hush-hush"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into_iter()
        .collect();
        let shown = format!("{options:?}");
        assert!(
            shown.contains("eu-west-1") && !shown.contains("hush"),
            "{shown}"
        );
        assert_eq!(
            options
                .hide_in("in eu-west-1: hush-hush and hush (https://host/x?sv=1&sig=abc%3D&se=2)"),
            "in eu-west-1: *** and *** (https://host/x?sv=1&sig=***&se=2)"
        );
    }
}
