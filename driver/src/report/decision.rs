//! Decisions as lines for the user.

use elasticrun_core::{Decision, blacklist::Out, sources::Doubt};
use elasticrun_plugin_sdk::SlotsFrom;
use elasticrun_protocol::{
    HostId, Process, Rank, Round,
    control::{Exit, StopReason},
};

use super::repeats::Repeat;

/// The line of a decision, if it has one. `first` is true until the first round is over.
pub(super) fn line(decision: &Decision, first: bool) -> Option<String> {
    Some(match decision {
        Decision::HostsChanged { hosts, slots } => {
            format!(
                "{} with {} may be used",
                count(*hosts, "host"),
                count(*slots as usize, "slot")
            )
        }
        Decision::SlotsDoubted(doubt) => slots_mismatch(doubt),
        Decision::NoSlots { host } => {
            format!("host {host} is not used: its source reports 0 slots")
        }
        Decision::DiscoveryFailed { why } => format!("discovery failed, the last list stays: {why}"),
        Decision::DiscoveryWorks => "discovery works again".to_owned(),
        Decision::WorkerFailed {
            host,
            process,
            member,
            exit,
        } => {
            let exit = exit
                .as_ref()
                .map_or(String::new(), |exit| format!(": {}", exit_text(exit)));
            format!("worker failed on {}{exit}", place(host, *process, *member))
        }
        Decision::WorkerEnded {
            host,
            process,
            member,
            exit,
        } => {
            let place = place(host, *process, *member);
            format!("the failed worker on {place} has ended: {}", exit_text(exit))
        }
        Decision::NameTaken { host, by, refused } => format!(
            "a second machine, {refused}, registers as host {host}, which is {by}; give each its own name: elasticrun agent --host NAME"
        ),
        Decision::HostFailed { host, why } => format!("host {host} failed: {why}"),
        Decision::HostAway { host, why, keep } => format!(
            "host {host} is out of reach: {why}; its workers are kept for {:.0} s",
            keep.as_secs_f64()
        ),
        Decision::HostReturned { host } => format!("host {host} is back, with its workers"),
        Decision::Fruitless { host, others } => {
            let others: Vec<_> = others.iter().map(|other| other.as_str()).collect();
            let why = match others[..] {
                [] => format!("workers of host {host} lose their peers"),
                _ => format!(
                    "hosts {host} and {} cannot reach each other",
                    others.join(", ")
                ),
            };
            format!(
                "rounds end without a commit: {why}, and too few workers are left without host {host}; check the network"
            )
        }
        Decision::AtRisk { host, notice } => format!("host {host} may go away: {}", notice.kind),
        Decision::Draining { host, notice } => {
            let within = notice.within.map_or(String::new(), |within| {
                format!(", in {} s at the latest", within.as_secs())
            });
            format!(
                "host {host} will go away{within} ({}): draining",
                notice.kind
            )
        }
        Decision::Drained { host } => {
            format!("host {host} is drained: nothing there is needed any more")
        }
        Decision::WentEarly { host, why } => {
            format!("host {host} went before it was left: {why}")
        }
        Decision::Blacklisted {
            domain,
            out: Out::ForGood,
        } => format!("{domain} is out for good"),
        Decision::Blacklisted { .. } | Decision::RoundPlanned { .. } | Decision::RoundAborted { .. } => {
            return None;
        }
        Decision::CooldownOver { domain } => format!("{domain} may be used again"),
        Decision::Stopped {
            why: StopReason::JobEnded,
            ..
        } => return None,
        Decision::Stopped { host, process, why } => {
            let why = match why {
                StopReason::Removed => "its slot is gone",
                StopReason::DomainFailed => "its host or slot has failed",
                StopReason::TimedOut => "it took too long",
                StopReason::JobEnded => "the job is over",
            };
            format!(
                "stopping the worker at {host}, local rank {}: {why}",
                process.local_rank
            )
        }
        Decision::RoundStarted {
            round,
            size,
            base,
            cause,
            took,
            ..
        } => {
            let from = base.map_or(String::new(), |base| format!(", from commit {base}"));
            let took = if first {
                String::new()
            } else {
                format!(", {}", millis(*took))
            };
            format!(
                "round {round} started with {}: {cause}{from}{took}",
                count(*size as usize, "worker")
            )
        }
        Decision::AwaitingNewer {
            base,
            newer,
            hosts,
            wait,
        } => {
            let names: Vec<_> = hosts.iter().map(|host| host.as_str()).collect();
            let reach = base.map_or("no commit is in reach".into(), |base| {
                format!("the newest commit in reach is {base}")
            });
            format!(
                "warning: {reach}; newer ones of round {newer} may be kept by {}: waiting for them, {} s at most",
                names.join(", "),
                wait.as_secs_f64()
            )
        }
        Decision::WentBack { base, newer } => {
            let from = base.map_or("the beginning".into(), |base| format!("commit {base}"));
            format!(
                "warning: no host that may keep commits of round {newer} is in reach: the job goes back to {from}, and does the steps after it again"
            )
        }
        Decision::CommitIncomplete {
            commit,
            shards,
            missing,
            first,
            base,
        } => {
            let from = base.map_or("no older commit is complete".into(), |base| {
                format!("the job continues from commit {base}")
            });
            let mut names: Vec<_> = first.iter().map(u32::to_string).collect();
            if first.len() < *missing as usize {
                names.push("...".into());
            }
            format!(
                "warning: commit {commit} is incomplete, {missing} of its {shards} shards are lost ({}): {from}",
                names.join(", ")
            )
        }
        Decision::DurableLoading {
            host,
            run_id,
            commit,
        } => format!("host {host} loads commit {commit} of run {run_id} from the durable store"),
        Decision::DurableRefused { host, why } => format!("warning: host {host}: {why}"),
        Decision::DurableNone => {
            "the durable store has no commit: the job begins anew (--resume-from latest)".into()
        }
        Decision::DurableUnused => {
            "warning: --resume-from: the job continues from no former run, since no worker has attached to elasticrun".into()
        }
        Decision::DurableWritten { .. } => return None,
        Decision::Replicated { .. } | Decision::CutComplete { .. } => return None,
        Decision::ShardsUnprotected { .. } => {
            "warning: each host has shards that no other one has, so the job ends if one is lost; --replicate-commits 1 keeps copies of them".into()
        }
        Decision::ReplicaFailed { host, why } => format!(
            "warning: host {host} cannot keep a replica of commits: {why}; training goes on"
        ),
        Decision::ReplicasLacking { hosts, needed } => format!(
            "warning: commits are kept on {hosts} of {needed} hosts; training goes on"
        ),
        Decision::ReplicasComplete { needed } => {
            format!("commits are kept on {needed} hosts again")
        }
        Decision::DurableFailed { host, why } => format!(
            "warning: host {host} cannot write commits durably: {why}; training goes on"
        ),
        Decision::ServerStarted { host, process } => format!("{process} starts on host {host}"),
        Decision::ServerFailed {
            host,
            process,
            exit,
        } => format!("warning: {process} on host {host}: {exit}; another one takes its place"),
        Decision::ServerStopped { host, process } => format!("{process} has left host {host}"),
        Decision::Interrupting { round, cause } => {
            format!("round {round} is left at the next common commit: {cause}")
        }
        Decision::WaitingForSlots { usable, needed } => {
            format!("waiting for slots: {usable} usable, {needed} needed")
        }
        Decision::Finishing => return None,
        Decision::ProcessMode => {
            "no worker has attached to elasticrun: the group is restarted as a whole at a failure or change (--restart-mode process)".into()
        }
        Decision::Attached => {
            "workers attach to elasticrun: restart mode in-process".into()
        }
        Decision::GroupStarted { .. } if first => return None,
        Decision::GroupStarted {
            round,
            size,
            cause,
            took,
        } => format!(
            "round {round} started with {} in new processes: {cause}, {}",
            count(*size as usize, "worker"),
            millis(*took)
        ),
        Decision::GroupEnded { round, cause } => {
            format!("ending all workers of round {round}: {cause}")
        }
        Decision::GroupRestarts { used, allowed } => {
            format!("restarting all workers (restart {used} of {allowed})")
        }
        Decision::TookOver { round: Some(round), workers } => {
            format!("a new driver has taken over: round {round} goes on with {}", count(*workers, "worker"))
        }
        Decision::TookOver { round: None, workers } => {
            format!("a new driver has taken over: {} came back", count(*workers, "worker"))
        }
        Decision::Restarting { used, allowed } => {
            format!(
                "all workers failed; starting again from the last commit (restart {used} of {allowed})"
            )
        }
    })
}

/// Whether the line is printed even with `--quiet`.
pub(super) fn is_warning(decision: &Decision) -> bool {
    matches!(
        decision,
        Decision::AwaitingNewer { .. }
            | Decision::WentBack { .. }
            | Decision::CommitIncomplete { .. }
            | Decision::ShardsUnprotected { .. }
            | Decision::ReplicaFailed { .. }
            | Decision::ReplicasLacking { .. }
            | Decision::DurableFailed { .. }
            | Decision::DurableRefused { .. }
            | Decision::DurableUnused
    )
}

/// Host and ranks of a worker: `HOST (local rank 0, rank 1 of round 2)`. [`super::repeats`] leaves out the brackets.
fn place(host: &HostId, process: Process, member: Option<(Rank, Round)>) -> String {
    let member = member.map_or(String::new(), |(rank, round)| {
        format!(", rank {rank} of round {round}")
    });
    format!("{host} (local rank {}{member})", process.local_rank)
}

/// How a process ended, with the name of its signal.
pub(super) fn exit_text(exit: &Exit) -> String {
    match exit {
        Exit::Signal(signal) => signal_text(*signal),
        _ => exit.to_string(),
    }
}

/// `signal 9 (SIGKILL)`.
pub(crate) fn signal_text(signal: i32) -> String {
    match nix::sys::signal::Signal::try_from(signal) {
        Ok(name) => format!("signal {signal} ({name})"),
        Err(_) => format!("signal {signal}"),
    }
}

/// What the line of a decision has in common with those of others, if there may be many at a time.
pub(super) fn repeat(decision: &Decision) -> Option<Repeat<'_>> {
    Some(match decision {
        Decision::HostsChanged { .. } => Repeat::State("hosts"),
        Decision::WaitingForSlots { .. } => Repeat::State("slots"),
        Decision::WorkerFailed { host, .. } | Decision::WorkerEnded { host, .. } => {
            Repeat::Worker(host.as_str())
        }
        Decision::NoSlots { host }
        | Decision::HostFailed { host, .. }
        | Decision::HostAway { host, .. }
        | Decision::HostReturned { host }
        | Decision::AtRisk { host, .. }
        | Decision::Draining { host, .. }
        | Decision::Drained { host }
        | Decision::WentEarly { host, .. }
        | Decision::Stopped { host, .. } => Repeat::Host(host.as_str()),
        Decision::Blacklisted { domain, .. } | Decision::CooldownOver { domain } => {
            Repeat::Host(domain.host().as_str())
        }
        Decision::SlotsDoubted(doubt) => Repeat::Host(doubt.host.as_str()),
        _ => return None,
    })
}

/// `1 host`, `2 hosts`.
pub(crate) fn count(n: usize, noun: &str) -> String {
    let s = if n == 1 { "" } else { "s" };
    format!("{n} {noun}{s}")
}

/// The line about a host whose agent detects fewer slots than its source reports.
fn slots_mismatch(doubt: &Doubt) -> String {
    let from = match doubt.from {
        Some(SlotsFrom::Accelerators) => " (its accelerators)",
        Some(SlotsFrom::Label) => " (its tag or label)",
        _ => "",
    };
    let Doubt {
        host,
        said,
        detected,
        used,
        ..
    } = doubt;
    format!(
        "host {host}: its source reports {said} slots{from}, its agent detects {detected}; using {used}"
    )
}

/// Logs the decision once, with its fields.
pub(super) fn log(decision: &Decision) {
    tracing::debug!(?decision, "decided");
}

/// A recovery time in milliseconds.
pub(super) fn millis(duration: std::time::Duration) -> String {
    let millis = duration.as_secs_f64() * 1e3;
    if millis < 10.0 {
        format!("{millis:.1} ms")
    } else {
        format!("{millis:.0} ms")
    }
}
