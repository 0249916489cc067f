//! Validation of host names, addresses and user names.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::Problem;

/// The length limit of names in DNS.
const LONGEST_NAME: usize = 253;
/// The length limit of a part of a name in DNS.
const LONGEST_LABEL: usize = 63;

/// Validates a host name or an IPv4 address. Returns it without the dot that ends a complete name (`a.example.org.`).
pub(super) fn host(text: &str) -> Result<String, Problem> {
    if text.is_empty() {
        return Err(Problem::NoHost);
    }
    let text = strip_final_dot(text);
    if text.len() > LONGEST_NAME || !text.split('.').all(label) {
        return Err(Problem::BadHost);
    }
    // A name whose last label is a number must be an address. `-H 4` and 10.0.0.256 are mistakes.
    if is_numeric(text) && text.parse::<Ipv4Addr>().is_err() {
        return Err(Problem::BadHost);
    }
    Ok(text.to_owned())
}

/// A name without the dot at its end. An IPv4 address has none there.
fn strip_final_dot(text: &str) -> &str {
    let name = text.strip_suffix('.').filter(|name| !is_numeric(name));
    name.unwrap_or(text)
}

/// Whether the last label is a number, so that the text can only be an address.
fn is_numeric(text: &str) -> bool {
    let last = text.rsplit('.').next().unwrap_or(text);
    last.bytes().all(|byte| byte.is_ascii_digit())
}

fn label(text: &str) -> bool {
    (1..=LONGEST_LABEL).contains(&text.len())
        && !text.starts_with('-')
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

/// Validates the text in brackets: an IPv6 address, optionally with a zone (`fe80::1%eth0`). Returns its shortest form.
pub(super) fn ipv6(text: &str) -> Result<String, Problem> {
    let (address, zone) = match text.split_once('%') {
        Some((address, zone)) => (address, Some(zone)),
        None => (text, None),
    };
    let address: Ipv6Addr = address.parse().map_err(|_| Problem::BadHost)?;
    match zone {
        None => Ok(address.to_string()),
        Some(zone) if label(zone) => Ok(format!("{address}%{zone}")),
        Some(_) => Err(Problem::BadHost),
    }
}

/// A host name without the dot that ends a complete name, so that `a.example.org.` and `a.example.org` are one host. Any other
/// text stays as it is.
pub fn without_final_dot(text: &str) -> &str {
    if host(text).is_ok() {
        strip_final_dot(text)
    } else {
        text
    }
}

/// Whether other hosts can use a text as the address of a host: a host name, an IPv4 address, or an IPv6 address without
/// brackets. Also a number, which is the name of a node in some clusters.
pub fn is_address(text: &str) -> bool {
    let is_number =
        (1..=LONGEST_LABEL).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number || host(text).is_ok() || ipv6(text).is_ok()
}

/// Whether a text is a user name.
pub fn is_user(text: &str) -> bool {
    user(text).is_ok()
}

/// Validates a user name.
pub(super) fn user(text: &str) -> Result<String, Problem> {
    let plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'+');
    let good = (1..=64).contains(&text.len()) && !text.starts_with('-') && text.bytes().all(plain);
    if good {
        Ok(text.to_owned())
    } else {
        Err(Problem::BadUser)
    }
}
