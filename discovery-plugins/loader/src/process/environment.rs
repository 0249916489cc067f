//! Selects the variables of the driver's environment for a plugin's process.
//!
//! Where a proxy is set, addresses of metadata and credentials are added to `NO_PROXY`. These services answer for the machine
//! that asks them, and a proxy is another machine. A plugin in a thread of the driver has the driver's environment, to which
//! nothing is added.

use std::ffi::{OsStr, OsString};

/// Services of clouds that answer the machine that asks: EC2's metadata, credentials of containers, Google's metadata.
const METADATA: [&str; 5] = [
    "169.254.169.254",
    "169.254.170.2",
    "169.254.170.23",
    "fd00:ec2::254",
    "metadata.google.internal",
];
/// Variables that name another address of such a service.
const METADATA_VARIABLES: [&str; 3] = [
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_EC2_METADATA_SERVICE_ENDPOINT",
    "GCE_METADATA_HOST",
];

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
    let mut variables = all.into_iter().filter(|(name, _)| named(name)).collect();
    keep_metadata_direct(&mut variables);
    variables
}

/// Adds the addresses of metadata to both spellings of `NO_PROXY`, if a proxy is set.
fn keep_metadata_direct(variables: &mut Vec<(OsString, OsString)>) {
    let is_proxy = |name: &OsStr| {
        let proxies = ["http_proxy", "https_proxy", "all_proxy"];
        proxies.iter().any(|proxy| name.eq_ignore_ascii_case(proxy))
    };
    if !variables.iter().any(|(name, _)| is_proxy(name)) {
        return;
    }
    let value = |wanted: &str| {
        let found = variables.iter().find(|(name, _)| name == wanted);
        found.map(|(_, value)| value.to_string_lossy().into_owned())
    };
    let own = METADATA_VARIABLES
        .iter()
        .filter_map(|name| host_of(&value(name)?));
    let direct: Vec<_> = METADATA.map(str::to_owned).into_iter().chain(own).collect();
    // Programs differ in which spelling counts, so the one that is not set follows the other.
    let (upper, lower) = (value("NO_PROXY"), value("no_proxy"));
    let rules = [
        ("NO_PROXY", upper.clone().or_else(|| lower.clone())),
        ("no_proxy", lower.or(upper)),
    ];
    variables.retain(|(name, _)| !rules.iter().any(|(rule, _)| name == rule));
    for (name, given) in rules {
        variables.push((name.into(), without_proxy(given, &direct).into()));
    }
}

/// A value of `NO_PROXY` with more addresses. Some programs refuse empty elements, and know `*` only alone.
fn without_proxy(given: Option<String>, direct: &[String]) -> String {
    let given = given.unwrap_or_default();
    let is_separator = |letter: char| letter == ',' || letter.is_whitespace();
    let given = given.split(is_separator).filter(|each| !each.is_empty());
    let given: Vec<_> = given.collect();
    if given.contains(&"*") {
        return "*".to_owned();
    }
    let all = given.into_iter().chain(direct.iter().map(String::as_str));
    all.collect::<Vec<_>>().join(",")
}

/// The host of a URL or of `HOST[:PORT]`.
fn host_of(address: &str) -> Option<String> {
    let authority = address.split_once("://").map_or(address, |(_, rest)| rest);
    let authority = authority.split(['/', '?']).next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    (!host.is_empty()).then(|| host.to_owned())
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

    #[test]
    fn metadata_is_never_asked_by_a_proxy() {
        let rules = |given: &[(&str, &str)]| -> Vec<String> {
            let given = given
                .iter()
                .map(|(name, value)| (name.into(), value.into()));
            let kept = select(given, &["AWS_*".to_owned()]);
            let rule = |wanted: &str| {
                let found = kept.iter().filter(|(name, _)| name == wanted);
                let mut values = found.map(|(_, value)| value.to_string_lossy().into_owned());
                let value = values.next().unwrap_or_default();
                assert_eq!(values.next(), None, "{wanted} is there twice");
                value
            };
            vec![rule("NO_PROXY"), rule("no_proxy")]
        };
        let direct = METADATA.join(",");
        assert_eq!(rules(&[]), ["", ""]);
        assert_eq!(rules(&[("NO_PROXY", "a")]), ["a", ""]);
        assert_eq!(rules(&[("HTTP_PROXY", "http://p")]), [&direct[..], &direct]);
        let one = format!("a,.b,{direct}");
        assert_eq!(
            rules(&[("https_proxy", "http://p"), ("NO_PROXY", "a,, .b,")]),
            [&one[..], &one]
        );
        let two = [format!("a,{direct}"), format!("b,{direct}")];
        assert_eq!(
            rules(&[("all_proxy", "p"), ("NO_PROXY", "a"), ("no_proxy", "b")]),
            two
        );
        assert_eq!(
            rules(&[("ALL_PROXY", "p"), ("no_proxy", "a, *")]),
            ["*", "*"]
        );
        let more = format!("{direct},fd00::1,y");
        assert_eq!(
            rules(&[
                ("HTTP_PROXY", "http://p"),
                (
                    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                    "http://[fd00::1]:80/c"
                ),
                ("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://y:1338/"),
            ]),
            [&more[..], &more]
        );
    }
}
