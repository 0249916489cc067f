//! What may stand for a host and for a user.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::Problem;

/// The longest name that DNS can hold.
const LONGEST_NAME: usize = 253;

/// A host name or an IPv4 address, as it was written.
pub(super) fn host(text: &str) -> Result<String, Problem> {
    if text.is_empty() {
        return Err(Problem::NoHost);
    }
    if text.len() > LONGEST_NAME || !text.split('.').all(label) {
        return Err(Problem::BadHost);
    }
    // A name whose last label is a number is an address (or a slip: `-H 4`, 10.0.0.256).
    let last = text.rsplit('.').next().unwrap_or(text);
    let numeric = last.bytes().all(|byte| byte.is_ascii_digit());
    if numeric && text.parse::<Ipv4Addr>().is_err() {
        return Err(Problem::BadHost);
    }
    Ok(text.to_owned())
}

fn label(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && !text.starts_with('-')
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

/// What stands between brackets: an IPv6 address, perhaps with a zone (`fe80::1%eth0`), in its shortest form.
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

/// A user of the host.
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
