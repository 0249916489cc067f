//! One host of a list.

use std::{fmt, str::FromStr};

use super::{Problem, name};

/// The maximum number of slots of a host.
pub const MAX_SLOTS: u32 = 1024;

/// One host of a list.
///
/// It prints as a line of a hostfile: `user@host:4 port=2222`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSpec {
    /// The user for ssh. `None` if ssh decides.
    pub user: Option<String>,
    /// Name or address. An IPv6 address is in its shortest form and without brackets.
    pub host: String,
    /// Port of its ssh server. `None` if ssh decides.
    pub port: Option<u16>,
    /// Number of workers, 1 to [`MAX_SLOTS`]. `None` if not given. 0 only from [`parse_lines`](super::parse_lines).
    pub slots: Option<u32>,
}

impl HostSpec {
    /// The identity of the host: its name, followed by the port if one is given. So two ssh servers at one address are two
    /// hosts.
    pub fn id(&self) -> String {
        match self.port {
            None => self.host.clone(),
            Some(port) => format!("{}:{port}", self.bracketed()),
        }
    }

    fn bracketed(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        }
    }
}

impl fmt::Display for HostSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        f.write_str(&self.bracketed())?;
        if let Some(slots) = self.slots {
            write!(f, ":{slots}")?;
        }
        if let Some(port) = self.port {
            write!(f, " port={port}")?;
        }
        Ok(())
    }
}

/// Parses a host, followed by words (`slots=4`, `port=22`).
impl FromStr for HostSpec {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let spec = from_line(text)?;
        if spec.slots == Some(0) {
            return Err(Problem::BadSlots);
        }
        Ok(spec)
    }
}

/// Parses a host, followed by words. Slots may be 0.
pub(super) fn from_line(text: &str) -> Result<HostSpec, Problem> {
    let mut words = text.split_ascii_whitespace();
    let mut spec = host_and_slots(words.next().unwrap_or_default())?;
    for word in words {
        match word.split_once('=') {
            Some(("slots", _)) if spec.slots.is_some() => return Err(Problem::SlotsTwice),
            Some(("slots", number)) => spec.slots = Some(slots(number)?),
            Some(("port", number)) if spec.port.is_none() => spec.port = Some(port(number)?),
            Some(("port", _)) => return Err(Problem::BadPort),
            _ => return Err(Problem::UnknownWord),
        }
    }
    Ok(spec)
}

/// `[user@]host[:slots]`. Slots may be 0.
pub(super) fn host_and_slots(text: &str) -> Result<HostSpec, Problem> {
    let (user, rest) = match text.rsplit_once('@') {
        Some((user, rest)) => (Some(name::user(user)?), rest),
        None => (None, text),
    };
    let (host, number) = match rest.strip_prefix('[') {
        Some(inside) => {
            let (address, behind) = inside.split_once(']').ok_or(Problem::BadHost)?;
            let number = match behind.strip_prefix(':') {
                Some(number) => Some(number),
                None if behind.is_empty() => None,
                None => return Err(Problem::BadHost),
            };
            (name::ipv6(address)?, number)
        }
        None if rest.matches(':').count() > 1 => return Err(Problem::NoBrackets),
        None => match rest.split_once(':') {
            Some((host, number)) => (name::host(host)?, Some(number)),
            None => (name::host(rest)?, None),
        },
    };
    Ok(HostSpec {
        user,
        host,
        port: None,
        slots: number.map(slots).transpose()?,
    })
}

fn slots(text: &str) -> Result<u32, Problem> {
    let number = digits(text).ok_or(Problem::BadSlots)?;
    if number <= MAX_SLOTS {
        Ok(number)
    } else {
        Err(Problem::BadSlots)
    }
}

fn port(text: &str) -> Result<u16, Problem> {
    let number = digits(text).and_then(|number| u16::try_from(number).ok());
    number.filter(|number| *number > 0).ok_or(Problem::BadPort)
}

/// Digits only: no sign, no white space.
fn digits(text: &str) -> Option<u32> {
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())
        .flatten()
}
