//! The nodes of a job and their states, parsed from the output of Slurm's commands.

use std::{collections::BTreeMap, time::Instant};

use elasticrun_plugin_sdk::{ErrorKind, HostState, PluginError};

use crate::{command, hostlist::expand};

/// A job in the output of `squeue`.
#[derive(Debug, PartialEq)]
pub(crate) struct Job {
    /// The current nodes. A job may have lost some.
    pub(crate) nodes: Vec<String>,
    /// RUNNING, PENDING, COMPLETING and so on.
    pub(crate) state: String,
}

/// Queries the nodes of a job.
pub(crate) fn job(id: &str, until: Instant) -> Result<Job, PluginError> {
    let result = command::run(
        &["squeue", "--noheader", "--jobs", id, "--format=%N|%T"],
        until,
    )?;
    if let Some(why) = result.failure {
        return Err(refused(id, &why));
    }
    read_job(&result.output, id)
}

fn read_job(output: &str, id: &str) -> Result<Job, PluginError> {
    let line = output.lines().map(str::trim).find(|line| !line.is_empty());
    let Some((nodes, state)) = line.and_then(|line| line.rsplit_once('|')) else {
        return Err(unknown(id));
    };
    let nodes =
        expand(nodes).map_err(|error| PluginError::retryable(format!("squeue: {error}")))?;
    Ok(Job {
        nodes,
        state: state.to_owned(),
    })
}

fn refused(id: &str, why: &str) -> PluginError {
    if why.contains("Invalid job id") {
        return unknown(id);
    }
    let kind = if why.contains("Access/permission denied") || why.contains("authentication") {
        ErrorKind::Auth
    } else {
        ErrorKind::Retryable
    };
    PluginError::new(kind, format!("squeue: {why}"))
}

fn unknown(id: &str) -> PluginError {
    PluginError::unknown_group(format!("Slurm knows no job {id}, or it has ended"))
}

/// Queries the states of nodes, by name. Nodes without a known state are left out.
pub(crate) fn states(
    nodes: &[String],
    until: Instant,
) -> Result<BTreeMap<String, String>, PluginError> {
    let list = nodes.join(",");
    let words = [
        "sinfo",
        "--noheader",
        "--Node",
        "--nodes",
        &list,
        "--format=%N|%T",
    ];
    let result = command::run(&words, until)?;
    if let Some(why) = result.failure {
        return Err(PluginError::retryable(format!("sinfo: {why}")));
    }
    let lines = result
        .output
        .lines()
        .filter_map(|line| line.trim().split_once('|'));
    // A node is listed once per partition, with the same state.
    Ok(lines
        .map(|(node, state)| (node.to_owned(), state.to_owned()))
        .collect())
}

/// The state of a host by the state of its node, with the reason. Of the suffixes (`*`: not responding; `$`: reserved for
/// maintenance; `~#%!@^-`: power states) only `*` matters.
pub(crate) fn meaning(state: &str) -> (HostState, Option<String>) {
    let word = state.trim_end_matches(|letter: char| !letter.is_ascii_alphabetic());
    let because = |found| (found, Some(format!("its node is {word}")));
    if state.ends_with('*') {
        return (
            HostState::Draining,
            Some("its node does not answer Slurm".into()),
        );
    }
    match word {
        "down" | "fail" | "failed" | "powered_down" | "unknown" => because(HostState::Gone),
        "draining" | "drained" | "failing" | "powering_down" | "maint" | "reboot_requested" => {
            because(HostState::Draining)
        }
        "powering_up" | "rebooting" | "future" => because(HostState::Pending),
        _ => (HostState::Ready, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_read() {
        let job = read_job("node[1-2]|RUNNING\n", "7").unwrap();
        assert_eq!(
            (job.nodes, job.state),
            (vec!["node1".into(), "node2".into()], "RUNNING".into())
        );
        assert!(read_job("|PENDING\n", "7").unwrap().nodes.is_empty());
        let error = read_job("\n", "7").unwrap_err();
        assert_eq!(error.kind, ErrorKind::UnknownGroup);
        assert_eq!(error.message, "Slurm knows no job 7, or it has ended");
    }

    #[test]
    fn a_refusal_has_a_kind() {
        let kind = |why| refused("7", why).kind;
        let invalid = "slurm_load_jobs error: Invalid job id specified";
        assert_eq!(kind(invalid), ErrorKind::UnknownGroup);
        let down = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)";
        assert_eq!(kind(down), ErrorKind::Retryable);
        let munge = "slurm_load_jobs error: Protocol authentication error";
        assert_eq!(kind(munge), ErrorKind::Auth);
    }

    #[test]
    fn a_state_has_a_meaning() {
        for (state, expected) in [
            ("allocated", HostState::Ready),
            ("mixed", HostState::Ready),
            ("mixed$", HostState::Ready),
            ("draining", HostState::Draining),
            ("allocated*", HostState::Draining),
            ("down*", HostState::Draining),
            ("down", HostState::Gone),
            ("drained", HostState::Draining),
            ("powering_up", HostState::Pending),
        ] {
            let (found, reason) = meaning(state);
            assert_eq!(found, expected, "{state}");
            assert_eq!(reason.is_none(), expected == HostState::Ready);
        }
    }
}
