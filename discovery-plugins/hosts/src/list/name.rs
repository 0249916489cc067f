//! Validation of host names, addresses and user names.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::Problem;

/// The length limit of names in DNS.
const LONGEST_NAME: usize = 253;
/// The length limit of a part of a name in DNS.
const LONGEST_LABEL: usize = 63;

/// Validates a host name or an IPv4 address.
pub(super) fn host(text: &str) -> Result<String, Problem> {
    if text.is_empty() {
        return Err(Problem::NoHost);
    }
    if text.len() > LONGEST_NAME || !text.split('.').all(label) {
        return Err(Problem::BadHost);
    }
    // A name whose last label is a number must be an address. `-H 4` and 10.0.0.256 are mistakes.
    let last = text.rsplit('.').next().unwrap_or(text);
    let numeric = last.bytes().all(|byte| byte.is_ascii_digit());
    if numeric && text.parse::<Ipv4Addr>().is_err() {
        return Err(Problem::BadHost);
    }
    Ok(text.to_owned())
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
