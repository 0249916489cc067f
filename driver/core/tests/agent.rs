//! The agent's machine in virtual time, rule by rule.

use std::{collections::BTreeMap, time::Duration};

use elasticrun_core::{
    Time,
    agent::{Command, Event, Machine, Memory, Signal},
};
use elasticrun_protocol::{
    Boundary, CommitId, DriverEpoch, FromWorker, Generation, LocalRank, Order, Process, Rank,
    Report, Round, ToAgent,
    control::{Exit, Member, Place, Setup, Spawn, Start, StopReason},
};

#[derive(Default)]
struct Fake {
    counts: BTreeMap<Process, u64>,
    commits: BTreeMap<Process, Vec<CommitId>>,
    beats: BTreeMap<Process, u64>,
    calls: Vec<String>,
}

impl Memory for Fake {
    fn hold(&mut self, process: Process, round: Round) -> Boundary {
        self.calls.push(format!("hold {process:?} {round:?}"));
        Boundary(self.counts.get(&process).copied().unwrap_or(0))
    }

    fn leave_at(&mut self, process: Process, round: Round, at: Boundary) {
        self.calls
            .push(format!("leave {process:?} {round:?} {at:?}"));
    }

    fn withdraw(&mut self, process: Process, round: Round) {
        self.calls.push(format!("withdraw {process:?} {round:?}"));
    }

    fn commits(&self, process: Process) -> Vec<CommitId> {
        self.commits.get(&process).cloned().unwrap_or_default()
    }

    fn beats(&self, process: Process) -> u64 {
        self.beats.get(&process).copied().unwrap_or(0)
    }

    fn commit_count(&self, _: Process) -> u64 {
        0
    }
}

const EPOCH: DriverEpoch = DriverEpoch(3);

struct Bench {
    machine: Machine,
    memory: Fake,
    now: Time,
}

fn process(slot: u32, generation: u32) -> Process {
    Process {
        local_rank: LocalRank(slot),
        generation: Generation(generation),
    }
}

fn commit(round: u64, count: u64) -> CommitId {
    CommitId {
        epoch: EPOCH,
        round: Round(round),
        count,
    }
}

fn place(rank: u32) -> Place {
    Place {
        rank: Rank(rank),
        size: 2,
        local_size: 2,
        cross_rank: 0,
        cross_size: 1,
    }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

impl Bench {
    /// Intervals: a beat each second, silence after 5, orphans end after 10, abort 20, grace 2.
    fn new() -> Self {
        let setup = Setup {
            run_id: "run".into(),
            command: Vec::new(),
            env: BTreeMap::new(),
            directory: None,
            heartbeat_interval: seconds(1),
            heartbeat_timeout: seconds(5),
            orphan_timeout: seconds(10),
            abort_timeout: seconds(20),
            grace: seconds(2),
            drain_timeout: Duration::ZERO,
            notice_file: None,
            instance: 1,
        };
        Self {
            machine: Machine::new(Time::ZERO, EPOCH, setup, 7),
            memory: Fake::default(),
            now: Time::ZERO,
        }
    }

    /// With two workers at `run()`.
    fn with_two() -> Self {
        let mut bench = Self::new();
        for slot in 0..2 {
            bench.order(spawn(slot, 1));
            bench.joins(slot, None, true);
        }
        bench.flush();
        bench
    }

    /// With two workers in round 1.
    fn training() -> Self {
        let mut bench = Self::with_two();
        bench.plan(1, &[0, 1]);
        bench.start(1, &[0, 1], None);
        bench
    }

    fn event(&mut self, event: Event) -> Vec<Command> {
        let mut out = Vec::new();
        self.machine
            .step(self.now, event, &mut self.memory, &mut out);
        out
    }

    fn order(&mut self, order: Order) -> Vec<Command> {
        self.event(Event::Ordered(ToAgent {
            epoch: EPOCH,
            order,
        }))
    }

    fn joins(&mut self, slot: u32, left: Option<u64>, told: bool) -> Vec<Command> {
        let process = process(slot, 1);
        let commit = self.memory.commits(process).first().copied();
        let message = FromWorker::Join {
            left: left.map(Round),
            told,
            data_port: 9,
            commit,
        };
        self.event(Event::Said { process, message })
    }

    fn flush(&mut self) -> Vec<Command> {
        let mut out = Vec::new();
        self.machine.flush(&mut out);
        out
    }

    fn plan(&mut self, round: u64, slots: &[u32]) -> Vec<Command> {
        let members = slots.iter().map(|slot| process(*slot, 1)).collect();
        self.order(Order::Plan {
            round: Round(round),
            members,
        })
    }

    fn start(&mut self, round: u64, slots: &[u32], base: Option<CommitId>) -> Vec<Command> {
        let members = (slots.iter().zip(0..)).map(|(slot, rank)| Member {
            process: process(*slot, 1),
            place: place(rank),
        });
        self.order(Order::Start(Box::new(Start {
            epoch: EPOCH,
            round: Round(round),
            base,
            keeper: None,
            size: slots.len() as u32,
            members: members.collect(),
            host_index: 0,
            host_count: 1,
            peers: BTreeMap::new(),
            coordinator: ([127, 0, 0, 1], 1).into(),
            prefix: String::new(),
        })))
    }

    /// Time passes, deadline by deadline; beats are answered if the driver is there.
    fn pass(&mut self, wait: Duration, answered: bool) -> Vec<Command> {
        let (end, mut all) = (self.now + wait, Vec::new());
        while let Some(due) = self.machine.next_deadline().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            let mut out = Vec::new();
            self.machine.tick(self.now, &mut self.memory, &mut out);
            assert!(
                self.machine
                    .next_deadline()
                    .is_none_or(|next| next > self.now),
                "the clock stands still"
            );
            for command in out {
                match command {
                    Command::Report(Report::Beat { count, .. }) if answered => {
                        self.order(Order::Beat { heard: count });
                    }
                    Command::Report(Report::Beat { .. }) => {}
                    other => all.push(other),
                }
            }
        }
        self.now = end;
        all
    }
}

fn spawn(slot: u32, generation: u32) -> Order {
    Order::Spawn(Spawn {
        process: process(slot, generation),
        place: place(slot),
        coordinator: ([127, 0, 0, 1], 1).into(),
    })
}

fn exited(slot: u32, exit: Exit) -> Event {
    Event::Exited {
        process: process(slot, 1),
        exit,
        tail: Vec::new(),
    }
}

fn signal(slot: u32, signal: Signal) -> Command {
    Command::Signal {
        process: process(slot, 1),
        signal,
    }
}

#[test]
fn a_slot_has_one_process_and_an_old_start_is_not_repeated() {
    let mut bench = Bench::new();
    assert!(matches!(bench.order(spawn(0, 1))[..], [Command::Spawn(_)]));
    assert_eq!(bench.order(spawn(0, 2)), [], "R4");
    bench.event(exited(0, Exit::Code(1)));
    assert_eq!(bench.order(spawn(0, 1)), [], "R3");
    assert!(matches!(bench.order(spawn(0, 2))[..], [Command::Spawn(_)]));
}

#[test]
fn workers_that_join_together_are_one_message() {
    let mut bench = Bench::new();
    for slot in 0..3 {
        bench.order(spawn(slot, 1));
        assert_eq!(bench.joins(slot, None, true), []);
    }
    let out = bench.flush();
    assert!(
        matches!(&out[..], [Command::Report(Report::Waiting { workers })] if workers.len() == 3)
    );
    assert_eq!(bench.flush(), []);
}

#[test]
fn a_plan_is_answered_when_all_its_members_are_back_with_what_the_dead_have_left() {
    let mut bench = Bench::training();
    bench.order(spawn(2, 1));
    bench.joins(2, None, true);
    bench
        .memory
        .commits
        .insert(process(0, 1), vec![commit(1, 2), commit(1, 1)]);
    bench
        .memory
        .commits
        .insert(process(1, 1), vec![commit(1, 3)]);
    let out = bench.event(Event::Died {
        process: process(1, 1),
    });
    let abort = Command::Abort {
        round: Round(1),
        members: vec![process(0, 1)],
    };
    assert!(
        out.contains(&abort),
        "its peers here need not wait for the driver"
    );
    bench.event(exited(1, Exit::Signal(9)));
    assert_eq!(bench.plan(2, &[0, 2]), []);
    let out = bench.joins(0, Some(1), true);
    let [
        Command::Report(Report::Ready {
            round: Round(2),
            members,
            kept,
            ..
        }),
    ] = &out[..]
    else {
        panic!("{out:?}");
    };
    let held: Vec<_> = members.iter().map(|held| held.commit).collect();
    assert_eq!(held, [Some(commit(1, 2)), None]);
    assert_eq!(
        (kept.len(), &kept[0].commits),
        (1, &vec![commit(1, 3)]),
        "R12"
    );
    let out = bench.start(2, &[0, 2], Some(commit(1, 3)));
    assert!(
        !out.iter().any(|c| matches!(c, Command::Forget { .. })),
        "it is the base"
    );
    bench.order(Order::Abort { round: Round(2) });
    bench.joins(0, Some(2), true);
    bench.joins(2, Some(2), true);
    bench.plan(3, &[0, 2]);
    let out = bench.start(3, &[0, 2], Some(commit(2, 1)));
    assert!(out.contains(&Command::Forget {
        process: process(1, 1)
    }));
}

#[test]
fn a_plan_waits_for_those_who_run_to_the_boundary_planned_or_not() {
    let mut bench = Bench::training();
    bench.order(Order::Hold { round: Round(1) });
    bench.order(Order::Leave {
        round: Round(1),
        at: Boundary(5),
    });
    assert_eq!(bench.plan(2, &[]), [], "R11");
    assert_eq!(bench.joins(0, Some(1), true), []);
    let out = bench.joins(1, Some(1), true);
    assert!(matches!(
        out[..],
        [Command::Report(Report::Ready {
            round: Round(2),
            ..
        })]
    ));
    assert!(
        matches!(&bench.flush()[..], [Command::Report(Report::Waiting { workers })] if workers.len() == 2)
    );
}

#[test]
fn who_dies_after_the_answer_stays_dead() {
    let mut bench = Bench::with_two();
    bench.plan(1, &[0, 1]);
    bench.event(Event::Died {
        process: process(0, 1),
    });
    bench.start(1, &[0, 1], None);
    assert_eq!(
        bench.event(Event::Died {
            process: process(0, 1)
        }),
        [],
        "it is not lost twice"
    );
}

#[test]
fn a_hold_is_counted_and_not_repeated_once_it_is_taken_back() {
    let mut bench = Bench::training();
    bench.memory.counts = BTreeMap::from([(process(0, 1), 4), (process(1, 1), 6)]);
    let counted = Command::Report(Report::Counted {
        round: Round(1),
        highest: Boundary(6),
    });
    assert_eq!(bench.order(Order::Hold { round: Round(1) }), [counted]);
    bench.order(Order::Withdraw { round: Round(1) });
    let calls = bench.memory.calls.len();
    assert_eq!(bench.order(Order::Hold { round: Round(1) }), []);
    bench.order(Order::Leave {
        round: Round(1),
        at: Boundary(7),
    });
    assert_eq!(bench.memory.calls.len(), calls, "R3");
}

#[test]
fn who_breaks_away_is_told_from_who_leaves() {
    let mut bench = Bench::training();
    let broken = |slot| {
        Command::Report(Report::Broken {
            round: Round(1),
            process: process(slot, 1),
        })
    };
    assert_eq!(bench.joins(0, Some(1), false), [broken(0)]);
    bench.order(Order::Leave {
        round: Round(1),
        at: Boundary(3),
    });
    assert_eq!(
        bench.joins(1, Some(1), false),
        [broken(1)],
        "it did not come to the boundary"
    );
}

#[test]
fn a_worker_that_finished_as_its_round_was_aborted_has_finished() {
    let mut bench = Bench::training();
    bench.order(Order::Abort { round: Round(1) });
    let message = FromWorker::Finished { round: Round(1) };
    let out = bench.event(Event::Said {
        process: process(0, 1),
        message,
    });
    assert!(matches!(
        out[..],
        [Command::Report(Report::Finished { .. })]
    ));
    let killed = bench.pass(seconds(21), true);
    assert_eq!(killed[0], signal(1, Signal::Kill), "{killed:?}");
    assert!(!killed.contains(&signal(0, Signal::Kill)));
}

#[test]
fn who_says_that_it_failed_is_lost_at_once_and_killed_if_it_stays() {
    let mut bench = Bench::training();
    let out = bench.event(Event::Said {
        process: process(0, 1),
        message: FromWorker::Failed,
    });
    let lost = Command::Report(Report::Lost {
        process: process(0, 1),
        silent: false,
    });
    assert_eq!(out[0], lost);
    assert!(matches!(&out[1], Command::Abort { .. }), "{out:?}");
    // Its death, which comes as well, says nothing new.
    let died = bench.event(Event::Died {
        process: process(0, 1),
    });
    assert_eq!(died, []);
    let killed = bench.pass(seconds(6), true);
    assert!(killed.contains(&signal(0, Signal::Kill)), "{killed:?}");
}

#[test]
fn who_does_not_come_back_is_killed_and_lost() {
    let mut bench = Bench::training();
    bench.order(Order::Abort { round: Round(1) });
    bench.joins(0, Some(1), true);
    assert_eq!(bench.pass(Duration::from_millis(19_999), true), []);
    let lost = Command::Report(Report::Lost {
        process: process(1, 1),
        silent: true,
    });
    assert_eq!(
        bench.pass(Duration::from_millis(1), true),
        [signal(1, Signal::Kill), lost]
    );
}

#[test]
fn who_does_not_beat_is_killed_and_lost() {
    let mut bench = Bench::training();
    bench.event(Event::Attached {
        process: process(0, 1),
    });
    let out = bench.pass(seconds(5), true);
    let lost = Command::Report(Report::Lost {
        process: process(0, 1),
        silent: true,
    });
    assert!(out.contains(&lost), "{out:?}");
    assert!(out.contains(&signal(0, Signal::Kill)));
}

#[test]
fn who_is_removed_may_end_by_itself_then_is_asked_then_is_killed_once() {
    let mut bench = Bench::with_two();
    bench.event(Event::Attached {
        process: process(0, 1),
    });
    bench.memory.beats.insert(process(0, 1), 1);
    let why = StopReason::Removed;
    let told = Command::TellStop {
        process: process(0, 1),
        why,
    };
    assert_eq!(
        bench.order(Order::Stop {
            process: process(0, 1),
            why
        }),
        [told]
    );
    assert_eq!(
        bench.order(Order::Stop {
            process: process(0, 1),
            why
        }),
        [],
        "once"
    );
    assert_eq!(bench.pass(seconds(2), true), [signal(0, Signal::Terminate)]);
    assert_eq!(bench.pass(seconds(2), true), [signal(0, Signal::Kill)]);
    assert_eq!(bench.pass(Duration::from_millis(900), true), []);
}

#[test]
fn an_older_driver_is_not_obeyed() {
    let mut bench = Bench::training();
    let old = ToAgent {
        epoch: DriverEpoch(2),
        order: Order::Abort { round: Round(1) },
    };
    assert_eq!(bench.event(Event::Ordered(old)), [], "R3");
}

#[test]
fn a_beat_that_comes_late_extends_nothing() {
    let mut bench = Bench::training();
    bench.pass(seconds(5), false);
    assert!(
        bench
            .memory
            .calls
            .iter()
            .any(|call| call.starts_with("withdraw")),
        "nobody says how far to run"
    );
    // What the driver said four seconds ago comes now: the beat it answers was sent even earlier.
    bench.pass(seconds(3), false);
    bench.order(Order::Beat { heard: 1 });
    let out = bench.pass(seconds(7), false);
    let ends = |c: &Command| {
        matches!(
            c,
            Command::TellStop {
                why: StopReason::JobEnded,
                ..
            }
        )
    };
    assert!(out.iter().any(ends), "R11: {out:?}");
    assert!(
        matches!(
            out[0],
            Command::Abort {
                round: Round(1),
                ..
            }
        ),
        "it stops training at once"
    );
}

#[test]
fn a_driver_that_was_silent_and_answers_again_is_obeyed() {
    let mut bench = Bench::training();
    bench.pass(seconds(8), false);
    bench.order(Order::Beat { heard: 8 });
    assert_eq!(bench.pass(seconds(60), true), []);
    assert!(!bench.machine.is_ending());
}

#[test]
fn what_an_agent_ends_by_itself_has_not_failed() {
    let mut bench = Bench::training();
    bench.event(Event::StopRequested);
    for slot in 0..2 {
        let reports = |c: &Command| {
            matches!(
                c,
                Command::Report(Report::Exited { .. } | Report::Lost { .. })
            )
        };
        let out = bench.event(exited(slot, Exit::Signal(15)));
        assert!(
            !out.iter().any(reports),
            "it is lost with its agent: {out:?}"
        );
    }
    assert!(bench.machine.has_ended());
}
