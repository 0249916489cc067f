//! Decisions as JSON objects, one a line: `--log-format json`.
//!
//! Names of events and of their fields are an interface: they are added, and never renamed. docs/events.md lists all of
//! them. A field that does not apply is null. Durations are in seconds.

use elasticrun_core::{
    Decision,
    blacklist::{Domain, Out},
    results::{Failure, Outcome, Reason},
    rounds::Cause,
};
use elasticrun_protocol::{
    HostId, Process, Rank, Round,
    control::{Exit, Notice},
};
use serde_json::{Map, Value, json};
use tracing::Level;

/// One event, without the time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Event {
    pub(crate) level: Level,
    pub(crate) name: &'static str,
    pub(crate) fields: Map<String, Value>,
}

impl Event {
    fn new(level: Level, name: &'static str, parts: impl IntoIterator<Item = Value>) -> Self {
        let objects = parts.into_iter().filter_map(|part| match part {
            Value::Object(fields) => Some(fields),
            _ => None,
        });
        Self {
            level,
            name,
            fields: objects.flatten().collect(),
        }
    }

    fn info(name: &'static str, parts: impl IntoIterator<Item = Value>) -> Self {
        Self::new(Level::INFO, name, parts)
    }

    fn warn(name: &'static str, parts: impl IntoIterator<Item = Value>) -> Self {
        Self::new(Level::WARN, name, parts)
    }

    /// The event of a plain line.
    pub(crate) fn message(level: Level) -> Self {
        Self::new(level, "message", [])
    }

    /// The journal cannot be written.
    pub(super) fn journal_failed(why: &str) -> Self {
        Self::warn("journal_failed", [json!({"reason": why})])
    }

    /// The journal is written again.
    pub(super) fn journal_works() -> Self {
        Self::info("journal_works", [])
    }

    /// Another driver continues the run.
    pub(super) fn driver_deposed(by: Option<&str>) -> Self {
        Self::warn("driver_deposed", [json!({"by": by})])
    }

    /// Other standby drivers wait than before.
    pub(super) fn standbys_changed(standbys: &[String]) -> Self {
        Self::info("standbys_changed", [json!({"standbys": standbys})])
    }

    /// A decision of the job.
    pub(super) fn from_decision(decision: &Decision) -> Self {
        match decision {
            Decision::HostsChanged { hosts, slots } => {
                Self::info("hosts_changed", [json!({"hosts": hosts, "slots": slots})])
            }
            Decision::SlotsDoubted(doubt) => Self::warn(
                "slots_doubted",
                [json!({
                    "host": doubt.host,
                    "declared": doubt.said,
                    "declared_by": doubt.from,
                    "detected": doubt.detected,
                    "used": doubt.used,
                })],
            ),
            Decision::NoSlots { host } => Self::warn("host_without_slots", [json!({"host": host})]),
            Decision::DiscoveryFailed { why } => {
                Self::warn("discovery_failed", [json!({"reason": why})])
            }
            Decision::DiscoveryWorks => Self::info("discovery_works", []),
            Decision::WorkerFailed {
                host,
                process,
                member,
                exit,
            } => Self::warn(
                "worker_failed",
                [
                    worker_fields(host, *process),
                    member_fields(*member),
                    exit_fields(exit.as_ref()),
                ],
            ),
            Decision::WorkerEnded {
                host,
                process,
                member,
                exit,
            } => Self::warn(
                "worker_ended",
                [
                    worker_fields(host, *process),
                    member_fields(*member),
                    exit_fields(Some(exit)),
                ],
            ),
            Decision::NameTaken { host, by, refused } => Self::warn(
                "host_name_taken",
                [json!({"host": host, "address": by, "refused_address": refused})],
            ),
            Decision::HostFailed { host, why } => {
                Self::warn("host_failed", [json!({"host": host, "reason": why})])
            }
            Decision::HostAway { host, why, keep } => Self::warn(
                "host_out_of_reach",
                [json!({"host": host, "reason": why, "kept_s": keep.as_secs_f64()})],
            ),
            Decision::HostReturned { host } => Self::info("host_returned", [json!({"host": host})]),
            Decision::Fruitless { host, others } => Self::warn(
                "rounds_without_commit",
                [json!({"host": host, "unreachable": others})],
            ),
            Decision::AtRisk { host, notice } => Self::info(
                "host_at_risk",
                [json!({"host": host}), notice_fields(notice)],
            ),
            Decision::Draining { host, notice } => Self::info(
                "host_draining",
                [json!({"host": host}), notice_fields(notice)],
            ),
            Decision::Drained { host } => Self::info("host_drained", [json!({"host": host})]),
            Decision::WentEarly { host, why } => Self::warn(
                "host_gone_before_drained",
                [json!({"host": host, "reason": why})],
            ),
            Decision::Blacklisted { domain, out } => Self::warn(
                "blacklisted",
                [
                    domain_fields(domain),
                    json!({"permanent": *out == Out::ForGood}),
                ],
            ),
            Decision::CooldownOver { domain } => {
                Self::info("cooldown_over", [domain_fields(domain)])
            }
            Decision::Stopped { host, process, why } => Self::info(
                "worker_stopped",
                [worker_fields(host, *process), json!({"reason": why})],
            ),
            Decision::RoundPlanned { round, size, cause } => Self::info(
                "round_planned",
                [json!({"round": round, "size": size}), cause_fields(cause)],
            ),
            Decision::RoundAborted { round, started } => Self::info(
                "round_aborted",
                [json!({"round": round, "started": started})],
            ),
            Decision::RoundStarted {
                round,
                resets,
                size,
                survivors,
                base,
                cause,
                took,
            } => Self::info(
                "round_started",
                [
                    json!({
                        "round": round,
                        "size": size,
                        "survivors": survivors,
                        "resets": resets,
                        "base": base,
                        "took_s": took.as_secs_f64(),
                    }),
                    cause_fields(cause),
                ],
            ),
            Decision::AwaitingNewer {
                base,
                newer,
                hosts,
                wait,
            } => Self::warn(
                "newer_commits_awaited",
                [
                    json!({"base": base, "newer": newer, "hosts": hosts, "wait_s": wait.as_secs_f64()}),
                ],
            ),
            Decision::WentBack { base, newer } => {
                Self::warn("older_commit_used", [json!({"base": base, "newer": newer})])
            }
            Decision::CommitIncomplete {
                commit,
                shards,
                missing,
                first,
                base,
            } => Self::warn(
                "commit_incomplete",
                [
                    json!({"commit": commit, "shards": shards, "missing": missing, "first_missing": first, "base": base}),
                ],
            ),
            Decision::DurableWritten {
                host,
                commit,
                bytes,
                took,
            } => Self::info(
                "durable_commit_written",
                [
                    json!({"host": host, "commit": commit, "bytes": bytes, "took_s": took.as_secs_f64()}),
                ],
            ),
            Decision::DurableLoading {
                host,
                run_id,
                commit,
            } => Self::info(
                "durable_commit_loading",
                [json!({"host": host, "from_run": run_id, "commit": commit})],
            ),
            Decision::DurableRefused { host, why } => Self::warn(
                "durable_commit_refused",
                [json!({"host": host, "reason": why})],
            ),
            Decision::ServerStarted { host, process } => Self::info(
                "server_started",
                [json!({"host": host, "server": process.server_number()})],
            ),
            Decision::ServerFailed {
                host,
                process,
                exit,
            } => Self::warn(
                "server_failed",
                [
                    json!({"host": host, "server": process.server_number(), "exit": exit.to_string()}),
                ],
            ),
            Decision::ServerStopped { host, process } => Self::info(
                "server_stopped",
                [json!({"host": host, "server": process.server_number()})],
            ),
            Decision::DurableNone => Self::info("durable_commit_none", []),
            Decision::DurableUnused => Self::warn("durable_commit_unused", []),
            Decision::DurableFailed { host, why } => Self::warn(
                "durable_commit_failed",
                [json!({"host": host, "reason": why})],
            ),
            Decision::Replicated {
                host,
                commit,
                bytes,
                took,
            } => Self::info(
                "commit_replicated",
                [
                    json!({"host": host, "commit": commit, "bytes": bytes, "took_s": took.as_secs_f64()}),
                ],
            ),
            Decision::ShardsUnprotected { hosts } => {
                Self::warn("shards_unprotected", [json!({"hosts": hosts})])
            }
            Decision::CutComplete { commit } => {
                Self::info("cut_complete", [json!({"commit": commit})])
            }
            Decision::ReplicaFailed { host, why } => Self::warn(
                "commit_replica_failed",
                [json!({"host": host, "reason": why})],
            ),
            Decision::ReplicasLacking { hosts, needed } => Self::warn(
                "commit_replicas_lacking",
                [json!({"hosts": hosts, "needed": needed})],
            ),
            Decision::ReplicasComplete { needed } => {
                Self::info("commit_replicas_complete", [json!({"needed": needed})])
            }
            Decision::Interrupting { round, cause } => Self::info(
                "round_interrupted",
                [json!({"round": round}), cause_fields(cause)],
            ),
            Decision::WaitingForSlots { usable, needed } => Self::info(
                "slots_awaited",
                [json!({"usable": usable, "needed": needed})],
            ),
            Decision::Finishing => Self::info("first_worker_finished", []),
            Decision::ProcessMode => Self::info("restart_mode", [json!({"mode": "process"})]),
            Decision::Attached => Self::info("restart_mode", [json!({"mode": "in-process"})]),
            Decision::GroupStarted {
                round,
                size,
                cause,
                took,
            } => Self::info(
                "group_started",
                [
                    json!({"round": round, "size": size, "took_s": took.as_secs_f64()}),
                    cause_fields(cause),
                ],
            ),
            Decision::GroupEnded { round, cause } => Self::info(
                "group_ended",
                [json!({"round": round}), cause_fields(cause)],
            ),
            Decision::GroupRestarts { used, allowed } => Self::warn(
                "group_restarted",
                [json!({"used": used, "allowed": allowed})],
            ),
            Decision::TookOver { round, workers } => Self::info(
                "driver_replaced",
                [json!({"round": round, "workers": workers})],
            ),
            Decision::Restarting { used, allowed } => {
                Self::warn("job_restarted", [json!({"used": used, "allowed": allowed})])
            }
        }
    }

    /// The end of a job. `failure` is the one that the last line names.
    pub(super) fn from_outcome(
        outcome: &Outcome,
        failure: Option<&Failure>,
        exit_code: u8,
    ) -> Self {
        let (name, more) = match outcome {
            Outcome::Succeeded => ("succeeded", json!({})),
            Outcome::WorkerFailed(reason) => (reason_name(*reason), json!({})),
            Outcome::TimedOut {
                workers,
                usable,
                needed,
                waited,
            } => (
                "elastic_timeout",
                json!({
                    "workers": workers,
                    "usable": usable,
                    "needed": needed,
                    "waited_s": waited.as_secs_f64(),
                }),
            ),
            Outcome::ResetLimit { limit } => ("reset_limit", json!({"limit": limit})),
            Outcome::DiscoveryFailed { why } => ("discovery_failed", json!({"reason": why})),
            Outcome::NoStateLeft => ("state_lost", json!({})),
            Outcome::NothingToResume { run } => ("nothing_to_resume", json!({"from_run": run})),
            Outcome::ServersFailed { failures } => {
                ("servers_failed", json!({"failures": failures}))
            }
            Outcome::Stopped { signal } => ("stopped", json!({"signal": signal})),
        };
        let failure = failure.map(|failure| {
            let process = failure.process.map_or(
                json!({"host": failure.host, "local_rank": null, "generation": null}),
                |process| worker_fields(&failure.host, process),
            );
            let parts = [
                process,
                member_fields(failure.member),
                exit_fields(failure.exit.as_ref()),
                json!({"reason": failure.why}),
            ];
            Self::info("", parts).fields
        });
        let level = match outcome {
            Outcome::Succeeded => Level::INFO,
            _ => Level::ERROR,
        };
        let common = json!({"outcome": name, "exit_code": exit_code, "failure": failure});
        Self::new(level, "job_ended", [common, more])
    }
}

fn worker_fields(host: &HostId, process: Process) -> Value {
    json!({"host": host, "local_rank": process.local_rank, "generation": process.generation})
}

fn member_fields(member: Option<(Rank, Round)>) -> Value {
    let (rank, round) = member.unzip();
    json!({"rank": rank, "round": round})
}

/// How a process ended. At most one field is not null.
fn exit_fields(exit: Option<&Exit>) -> Value {
    let (code, signal, error) = match exit {
        Some(Exit::Code(code)) => (Some(code), None, None),
        Some(Exit::Signal(signal)) => (None, Some(signal), None),
        Some(Exit::NotStarted(why)) => (None, None, Some(why)),
        None => (None, None, None),
    };
    json!({"exit_code": code, "signal": signal, "start_error": error})
}

fn notice_fields(notice: &Notice) -> Value {
    json!({"notice": notice.kind, "within_s": notice.within.map(|within| within.as_secs_f64())})
}

fn domain_fields(domain: &Domain) -> Value {
    let local_rank = match domain {
        Domain::Host(_) => None,
        Domain::Slot(_, slot) => Some(slot),
    };
    json!({"host": domain.host(), "local_rank": local_rank})
}

fn cause_fields(cause: &Cause) -> Value {
    let (name, host, process) = match cause {
        Cause::First => ("first", None, None),
        Cause::WorkerFailed { host, process } => ("worker_failed", Some(host), Some(process)),
        Cause::HostFailed { host } => ("host_failed", Some(host), None),
        Cause::PeerLost { host } => ("peer_lost", Some(host), None),
        Cause::Added => ("added", None, None),
        Cause::Removed => ("removed", None, None),
        Cause::Mixed => ("mixed", None, None),
        Cause::Restart => ("restart", None, None),
        Cause::DriverReplaced => ("driver_replaced", None, None),
    };
    let local_rank = process.map(|process| process.local_rank);
    json!({"cause": name, "cause_host": host, "cause_local_rank": local_rank})
}

fn reason_name(reason: Reason) -> &'static str {
    match reason {
        Reason::Standard => "worker_failed",
        Reason::AllFailed => "all_workers_failed",
        Reason::FailsEverywhere => "fails_on_every_host",
        Reason::NoRestartLeft { .. } => "no_restart_left",
        Reason::AllHostsOut => "all_hosts_out",
        Reason::NotAllSucceeded => "not_all_succeeded",
        Reason::ExitTimeout => "exit_timeout",
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, net::Ipv4Addr, time::Duration};

    use elasticrun_core::{Time, sources::Doubt};
    use elasticrun_plugin_sdk::SlotsFrom;
    use elasticrun_protocol::{
        CommitId, DriverEpoch, Generation, LocalRank,
        control::{NoticeKind, StopReason},
    };

    use super::*;

    const PROCESS: Process = Process {
        local_rank: LocalRank(1),
        generation: Generation(2),
    };
    const TOOK: Duration = Duration::from_millis(1500);

    fn base() -> Option<CommitId> {
        Some(CommitId {
            epoch: DriverEpoch(1),
            round: Round(2),
            count: 3,
        })
    }

    /// The decision after another one. The compiler reports a missing one.
    fn next(decision: &Decision) -> Option<Decision> {
        let (host, cause) = (HostId::new("a"), Cause::Added);
        let (round, size, why) = (Round(3), 4, "no route".to_owned());
        let notice = Notice {
            kind: NoticeKind::SpotInterruption,
            within: Some(Duration::from_secs(120)),
        };
        let exit = Some(Exit::Signal(9));
        let member = Some((Rank(0), round));
        let (used, allowed) = (1, 2);
        Some(match decision {
            Decision::HostsChanged { .. } => Decision::SlotsDoubted(Doubt {
                host,
                said: 8,
                from: Some(SlotsFrom::Label),
                detected: 4,
                used: 4,
            }),
            Decision::SlotsDoubted(_) => Decision::NoSlots { host },
            Decision::NoSlots { .. } => Decision::DiscoveryFailed { why },
            Decision::DiscoveryFailed { .. } => Decision::DiscoveryWorks,
            Decision::DiscoveryWorks => Decision::WorkerFailed {
                host,
                process: PROCESS,
                member,
                exit,
            },
            Decision::WorkerFailed { .. } => Decision::WorkerEnded {
                host,
                process: PROCESS,
                member,
                exit: Exit::Signal(9),
            },
            Decision::WorkerEnded { .. } => Decision::NameTaken {
                host,
                by: Ipv4Addr::new(10, 0, 0, 5).into(),
                refused: Ipv4Addr::new(10, 0, 0, 6).into(),
            },
            Decision::NameTaken { .. } => Decision::HostFailed { host, why },
            Decision::HostFailed { .. } => Decision::HostAway {
                host,
                why,
                keep: Duration::from_secs(70),
            },
            Decision::HostAway { .. } => Decision::HostReturned { host },
            Decision::HostReturned { .. } => Decision::Fruitless {
                host,
                others: vec!["b".into()],
            },
            Decision::Fruitless { .. } => Decision::AtRisk { host, notice },
            Decision::AtRisk { .. } => Decision::Draining { host, notice },
            Decision::Draining { .. } => Decision::Drained { host },
            Decision::Drained { .. } => Decision::WentEarly { host, why },
            Decision::WentEarly { .. } => Decision::Blacklisted {
                domain: Domain::Slot(host, LocalRank(1)),
                out: Out::Until(Time::ZERO),
            },
            Decision::Blacklisted { .. } => Decision::CooldownOver {
                domain: Domain::Host(host),
            },
            Decision::CooldownOver { .. } => Decision::Stopped {
                host,
                process: PROCESS,
                why: StopReason::DomainFailed,
            },
            Decision::Stopped { .. } => Decision::RoundPlanned { round, size, cause },
            Decision::RoundPlanned { .. } => Decision::RoundAborted {
                round,
                started: true,
            },
            Decision::RoundAborted { .. } => Decision::RoundStarted {
                round,
                resets: 2,
                size,
                survivors: 3,
                base: base(),
                cause: Cause::WorkerFailed {
                    host,
                    process: PROCESS,
                },
                took: TOOK,
            },
            Decision::RoundStarted { .. } => Decision::AwaitingNewer {
                base: base(),
                newer: round,
                hosts: vec![host],
                wait: TOOK,
            },
            Decision::AwaitingNewer { .. } => Decision::WentBack {
                base: base(),
                newer: round,
            },
            Decision::WentBack { .. } => Decision::CommitIncomplete {
                commit: base().expect("there is one"),
                shards: 8,
                missing: 2,
                first: vec![3, 4],
                base: base(),
            },
            Decision::CommitIncomplete { .. } => Decision::DurableWritten {
                host,
                commit: base().expect("there is one"),
                bytes: 1 << 20,
                took: TOOK,
            },
            Decision::DurableWritten { .. } => Decision::DurableFailed { host, why },
            Decision::DurableFailed { .. } => Decision::DurableLoading {
                host,
                run_id: "1f2e3d4c".into(),
                commit: base().expect("there is one"),
            },
            Decision::DurableLoading { .. } => Decision::DurableRefused { host, why },
            Decision::DurableRefused { .. } => Decision::DurableNone,
            Decision::DurableNone => Decision::ServerStarted {
                host,
                process: Process::server(DriverEpoch(1), 0),
            },
            Decision::ServerStarted { process, .. } => Decision::ServerFailed {
                host,
                process: *process,
                exit: Exit::Code(1),
            },
            Decision::ServerFailed { process, .. } => Decision::ServerStopped {
                host,
                process: *process,
            },
            Decision::ServerStopped { .. } => Decision::DurableUnused,
            Decision::DurableUnused => Decision::Replicated {
                host,
                commit: base().expect("there is one"),
                bytes: 1 << 20,
                took: TOOK,
            },
            Decision::Replicated { .. } => Decision::CutComplete {
                commit: base().expect("there is one"),
            },
            Decision::CutComplete { .. } => Decision::ShardsUnprotected { hosts: 2 },
            Decision::ShardsUnprotected { .. } => Decision::ReplicaFailed { host, why },
            Decision::ReplicaFailed { .. } => Decision::ReplicasLacking {
                hosts: 1,
                needed: 2,
            },
            Decision::ReplicasLacking { .. } => Decision::ReplicasComplete { needed: 2 },
            Decision::ReplicasComplete { .. } => Decision::Interrupting { round, cause },
            Decision::Interrupting { .. } => Decision::WaitingForSlots {
                usable: 1,
                needed: 2,
            },
            Decision::WaitingForSlots { .. } => Decision::Finishing,
            Decision::Finishing => Decision::ProcessMode,
            Decision::ProcessMode => Decision::Attached,
            Decision::Attached => Decision::GroupStarted {
                round,
                size,
                cause,
                took: TOOK,
            },
            Decision::GroupStarted { .. } => Decision::GroupEnded { round, cause },
            Decision::GroupEnded { .. } => Decision::GroupRestarts { used, allowed },
            Decision::GroupRestarts { .. } => Decision::Restarting { used, allowed },
            Decision::Restarting { .. } => Decision::TookOver {
                round: Some(round),
                workers: 4,
            },
            Decision::TookOver { .. } => return None,
        })
    }

    fn all() -> Vec<Event> {
        let first = Decision::HostsChanged { hosts: 2, slots: 8 };
        let decisions = std::iter::successors(Some(first), next);
        let mut events: Vec<_> = decisions
            .map(|decision| Event::from_decision(&decision))
            .collect();
        events.extend([Event::journal_failed("no space"), Event::journal_works()]);
        let failure = Failure {
            host: "a".into(),
            process: Some(PROCESS),
            member: Some((Rank(0), Round(3))),
            exit: Some(Exit::Code(1)),
            tail: Vec::new(),
            why: None,
        };
        let waited = Outcome::TimedOut {
            workers: 1,
            usable: 1,
            needed: 2,
            waited: TOOK,
        };
        let all_failed = Outcome::WorkerFailed(Reason::AllFailed);
        let outcomes = [
            (Outcome::Succeeded, None, 0),
            (all_failed, Some(&failure), 1),
            (waited, None, 3),
        ];
        events.extend(
            outcomes.map(|(outcome, failure, code)| Event::from_outcome(&outcome, failure, code)),
        );
        events
    }

    #[test]
    fn each_decision_is_an_event_with_typed_fields() {
        let line = |event: Event| {
            let fields = Value::Object(event.fields);
            format!("{:5} {} {fields}", event.level.as_str(), event.name)
        };
        let lines: Vec<_> = all().into_iter().map(line).collect();
        insta::assert_snapshot!(lines.join("\n"));
    }

    #[test]
    fn each_event_and_each_of_its_fields_is_in_the_documentation() {
        let page = include_str!("../../../docs/events.md");
        for event in all() {
            let row = page
                .lines()
                .find(|line| line.starts_with(&format!("| `{}` |", event.name)));
            let row = row.unwrap_or_else(|| panic!("docs/events.md lacks {}", event.name));
            let fields: BTreeSet<_> = event.fields.keys().collect();
            for field in fields {
                assert!(
                    row.contains(&format!("`{field}`")),
                    "{}: {field}",
                    event.name
                );
            }
        }
    }
}
