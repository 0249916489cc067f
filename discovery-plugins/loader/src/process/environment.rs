//! Selects the variables of the driver's environment for a plugin's process.

use std::ffi::{OsStr, OsString};

/// Variables for all plugins: for execution, locale, certificates and proxies. A name that ends with `*` is a prefix.
const COMMON: [&str; 20] = [
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

/// The variables for a plugin whose manifest names `needed`.
pub(super) fn select(
    all: impl IntoIterator<Item = (OsString, OsString)>,
    needed: &[String],
) -> Vec<(OsString, OsString)> {
    let named = |name: &OsStr| {
        let needed = needed.iter().map(String::as_str);
        let mut patterns = COMMON.into_iter().chain(needed);
        patterns.any(|pattern| matches(pattern, name.as_encoded_bytes()))
    };
    all.into_iter().filter(|(name, _)| named(name)).collect()
}

/// Whether a pattern matches a name. A `*` alone matches nothing, so that a plugin must name its variables.
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
            let left = select(all.clone(), &needed).into_iter();
            left.map(|(name, _)| name.into_string().unwrap()).collect()
        };
        assert_eq!(seen(&[]), ["PATH", "LC_ALL"]);
        assert_eq!(
            seen(&["AWS_*", "GCE", "*"]),
            ["PATH", "LC_ALL", "AWS_REGION", "GCE"]
        );
    }
}
