//! Parsers of host lists and lines.

use std::collections::BTreeMap;

use super::{
    HostSpec, HostsError, Position, Problem,
    spec::{from_line, host_and_slots},
};

/// Parses `a:4,b:4`. There must be at least one host. White space around an entry is allowed.
pub fn parse_host_list(text: &str) -> Result<Vec<HostSpec>, HostsError> {
    if text.trim_ascii().is_empty() {
        return Err(HostsError::new(Position::List, "", Problem::Empty));
    }
    let mut list = List::default();
    for (index, entry) in text.split(',').enumerate() {
        let (position, entry) = (Position::Entry(index + 1), entry.trim_ascii());
        list.add(position, entry, host_and_slots(entry))?;
    }
    Ok(list.hosts)
}

/// Parses a hostfile: lines of hosts, with at least one host.
pub fn parse_hostfile(content: impl AsRef<[u8]>) -> Result<Vec<HostSpec>, HostsError> {
    at_least_one(lines(content.as_ref(), List::default())?)
}

fn at_least_one(hosts: Vec<HostSpec>) -> Result<Vec<HostSpec>, HostsError> {
    if hosts.is_empty() {
        return Err(HostsError::new(Position::List, "", Problem::Empty));
    }
    Ok(hosts)
}

/// Parses a file of hosts that is followed while a job runs: [`parse_lines`] with at least one host.
pub fn parse_followed_file(content: impl AsRef<[u8]>) -> Result<Vec<HostSpec>, HostsError> {
    at_least_one(parse_lines(content)?)
}

/// Parses lines of hosts, as a script prints them. No line gives an empty list. A host may have 0 slots: the list changes
/// while the job runs, and such a host is not used meanwhile.
pub fn parse_lines(content: impl AsRef<[u8]>) -> Result<Vec<HostSpec>, HostsError> {
    let list = List {
        allows_zero: true,
        ..List::default()
    };
    lines(content.as_ref(), list)
}

fn lines(content: &[u8], mut list: List) -> Result<Vec<HostSpec>, HostsError> {
    let content = content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content);
    for (index, line) in content.split(|byte| *byte == b'\n').enumerate() {
        let position = Position::Line(index + 1);
        let line = std::str::from_utf8(line).map_err(|_| {
            HostsError::new(position, &String::from_utf8_lossy(line), Problem::NotUtf8)
        })?;
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line.contains(|character: char| character.is_control() && character != '\t') {
            return Err(HostsError::new(position, line, Problem::Control));
        }
        let host = line.split('#').next().unwrap_or_default().trim_ascii();
        if !host.is_empty() {
            list.add(position, host, from_line(host))?;
        }
    }
    Ok(list.hosts)
}

/// Hosts in order, without repetition.
#[derive(Default)]
struct List {
    hosts: Vec<HostSpec>,
    positions: BTreeMap<String, Position>,
    /// Hosts may have 0 slots.
    allows_zero: bool,
}

impl List {
    fn add(
        &mut self,
        position: Position,
        text: &str,
        host: Result<HostSpec, Problem>,
    ) -> Result<(), HostsError> {
        let refuse = |problem| HostsError::new(position, text, problem);
        let host = host.map_err(refuse)?;
        if host.slots == Some(0) && !self.allows_zero {
            return Err(refuse(Problem::BadSlots));
        }
        // Names are case-insensitive.
        let key = host.id().to_ascii_lowercase();
        if let Some(first) = self.positions.insert(key, position) {
            return Err(refuse(Problem::Repeated { first }));
        }
        self.hosts.push(host);
        Ok(())
    }
}
