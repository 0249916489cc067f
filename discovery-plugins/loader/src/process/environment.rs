//! What of the driver's environment a plugin's process sees.

use std::ffi::{OsStr, OsString};

/// What a program needs to run at all, to speak the user's language and to get out of the house. A `*` at the end
/// stands for any rest.
const EVERYONE: [&str; 20] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TZ",
    "TMPDIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "RUST_BACKTRACE",
];

/// What is left of an environment for a plugin whose manifest names `needed`, in the same form.
pub(super) fn of(
    all: impl IntoIterator<Item = (OsString, OsString)>,
    needed: &[String],
) -> Vec<(OsString, OsString)> {
    let named = |name: &OsStr| {
        let needed = needed.iter().map(String::as_str);
        let mut patterns = EVERYONE.into_iter().chain(needed);
        patterns.any(|pattern| matches(pattern, name.as_encoded_bytes()))
    };
    all.into_iter().filter(|(name, _)| named(name)).collect()
}

/// A `*` alone is no name: who wants everything has to name it.
fn matches(pattern: &str, name: &[u8]) -> bool {
    match pattern.strip_suffix('*') {
        Some("") => false,
        Some(start) => name.starts_with(start.as_bytes()),
        None => name == pattern.as_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_named_gets_through() {
        let all = ["PATH", "LC_ALL", "AWS_REGION", "SECRET", "AWS", "GCE"];
        let all = all.map(|name| (OsString::from(name), OsString::from("x")));
        let seen = |needed: &[&str]| -> Vec<String> {
            let needed: Vec<_> = needed.iter().map(|name| (*name).to_owned()).collect();
            let left = of(all.clone(), &needed).into_iter();
            left.map(|(name, _)| name.into_string().unwrap()).collect()
        };
        assert_eq!(seen(&[]), ["PATH", "LC_ALL"]);
        assert_eq!(
            seen(&["AWS_*", "GCE", "*"]),
            ["PATH", "LC_ALL", "AWS_REGION", "GCE"]
        );
    }
}
