//! Properties of the parsers for any input: for the fuzzer, and for a test of some thousand inputs in the test suite.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use crate::{
    Snapshot,
    list::{HostSpec, HostsError, parse_host_list, parse_hostfile, parse_lines},
    merge, merge_hosts,
};

/// The maximum length of an error in bytes. It quotes at most 80 characters of the input.
const MAX_ERROR: usize = 1500;

/// Checks an input of the fuzzer if it is for this crate: the first byte selects lists or snapshots. Gives the number of
/// successful reads.
///
/// # Panics
/// As [`check_lists`] and [`check_snapshots`].
pub fn check_input(input: &[u8]) -> Option<usize> {
    let (kind, rest) = input.split_first()?;
    match kind % 4 {
        0 => Some(check_lists(rest)),
        1 => Some(check_snapshots(rest)),
        _ => None,
    }
}

/// Reads bytes as a host file, as the output of a script, and as the value of `--hosts`. Gives the number of successful
/// reads.
///
/// # Panics
/// If accepted hosts print to something else than they are, or name a host twice, or if an error is not one short line.
pub fn check_lists(bytes: &[u8]) -> usize {
    let mut accepted = 0;
    if let Some(hosts) = read(parse_lines(bytes)) {
        let printed: String = hosts.iter().map(|host| format!("{host}\n")).collect();
        assert_eq!(parse_lines(&printed).as_ref(), Ok(&hosts), "{printed}");
        let is_fixed = !hosts.is_empty() && hosts.iter().all(|host| host.slots != Some(0));
        assert_eq!(parse_hostfile(bytes).is_ok(), is_fixed);
        accepted += 1;
    }
    if let Ok(text) = str::from_utf8(bytes)
        && let Some(hosts) = read(parse_host_list(text))
    {
        let printed = hosts.iter().map(HostSpec::to_string).collect::<Vec<_>>();
        assert_eq!(parse_host_list(&printed.join(",")).as_ref(), Ok(&hosts));
        accepted += 1;
    }
    accepted
}

fn read(result: Result<Vec<HostSpec>, HostsError>) -> Option<Vec<HostSpec>> {
    match result {
        Ok(hosts) => {
            let ids: BTreeSet<String> = hosts.iter().map(HostSpec::id).collect();
            assert_eq!(ids.len(), hosts.len(), "a host is named twice");
            Some(hosts)
        }
        Err(error) => {
            let line = error.to_string();
            assert!(
                !line.is_empty() && line.len() <= MAX_ERROR && !line.contains(char::is_control),
                "{line:?}"
            );
            None
        }
    }
}

/// Reads each line as the snapshot of a source, and merges them. Gives the number of snapshots.
///
/// # Panics
/// If a snapshot prints to something else than it is, or if the merge loses a host, has one twice, or changes when the same
/// snapshots are merged into it again.
pub fn check_snapshots(lines: &[u8]) -> usize {
    let snapshots: Vec<Snapshot> = lines
        .split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect();
    for snapshot in &snapshots {
        let json = serde_json::to_vec(snapshot).expect("a snapshot is always JSON");
        let again: Snapshot = serde_json::from_slice(&json).expect("a snapshot can be read");
        assert_eq!(&again, snapshot);
    }
    let merged = merge(&snapshots);
    let all = || snapshots.iter().flat_map(|snapshot| &snapshot.hosts);
    let ids = |hosts: Vec<&str>| {
        hosts
            .into_iter()
            .map(str::to_owned)
            .collect::<BTreeSet<_>>()
    };
    let given = ids(all().map(|host| host.id.as_str()).collect());
    let found = ids(merged.hosts.iter().map(|host| host.id.as_str()).collect());
    assert_eq!(found, given, "hosts are lost or invented");
    assert_eq!(found.len(), merged.hosts.len(), "a host is in it twice");
    for host in &merged.hosts {
        let states = all().filter(|each| each.id == host.id);
        let last = states.map(|each| each.state).max();
        assert_eq!(Some(host.state), last, "a source cannot withdraw a host");
    }
    assert_eq!(merge_hosts(merged.hosts.iter().chain(all())), merged.hosts);
    snapshots.len()
}
