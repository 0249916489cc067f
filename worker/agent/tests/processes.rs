//! How processes end. No process outlives its agent.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use std::time::Duration;

use common::{Control, Driver, Lines, eventually, kill, process, processes_of_run, shell, worker};
use elasticrun_protocol::{
    AgentCommand, AgentReport, Round,
    control::{Exit, StopReason},
};

async fn exit_of(control: &mut Control) -> (Exit, Vec<String>) {
    match control.report().await {
        Some(AgentReport::Exited { exit, tail, .. }) => (exit, tail),
        other => panic!("expected an exit, got {other:?}"),
    }
}

/// A worker that waits at `run()`, and its process id.
async fn waiting_worker(driver: &Driver, control: &mut Control) -> u32 {
    control.spawn(0, 1).await;
    control.all_wait(1).await;
    processes_of_run(&driver.run_id)[0]
}

async fn pid_after(lines: &mut Lines, word: &str) -> u32 {
    let text = lines.until("\n").await;
    let (_, pid) = text.split_once(word).unwrap();
    pid.split_whitespace().next().unwrap().parse().unwrap()
}

/// The reaper process of an agent, found by its name.
fn reaper_process_of(agent: u32) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{agent}/task/{agent}/children")).ok()?;
    let mut pids = children.split_whitespace();
    let guard = pids.find(|pid| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name.trim() == "agent-guard"
    });
    guard?.parse().ok()
}

fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| state != Some('Z'))
}

#[tokio::test]
async fn a_kill_is_reported_before_the_exit() {
    let driver = Driver::new(worker(&["attach", "join", "hang"])).await;
    let (_agent, mut control, _lines) = driver.with_agent().await;
    let pid = waiting_worker(&driver, &mut control).await;
    kill(pid, libc::SIGKILL);
    let lost = AgentReport::WorkerLost {
        process: process(0, 1),
        silent: false,
    };
    assert_eq!(control.report().await, Some(lost));
    assert_eq!(exit_of(&mut control).await.0, Exit::Signal(libc::SIGKILL));
}

#[tokio::test]
async fn a_worker_under_a_shell_dies_and_the_shell_gives_the_status() {
    let inner = worker(&["attach", "join", "hang"]).join(" ");
    let driver = Driver::new(shell(&format!(
        "{inner}; code=$?; echo was $code; exit $code"
    )))
    .await;
    let (_agent, mut control, _lines) = driver.with_agent().await;
    control.spawn(0, 1).await;
    control.all_wait(1).await;
    let is_worker = |pid: &u32| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name.trim() == "worker"
    };
    let pid = processes_of_run(&driver.run_id)
        .into_iter()
        .find(is_worker)
        .unwrap();
    kill(pid, libc::SIGKILL);
    assert!(matches!(
        control.report().await,
        Some(AgentReport::WorkerLost { .. })
    ));
    let (exit, tail) = exit_of(&mut control).await;
    assert_eq!(exit, Exit::Code(128 + 9));
    // The shell also reports the death on stderr, before or after this line.
    assert!(tail.iter().any(|line| line == "was 137"), "{tail:?}");
}

#[tokio::test]
async fn an_orderly_failure_is_reported_and_its_peers_are_woken() {
    let words = ["attach", "join", "start", "exit=5"];
    let other = ["attach", "join", "start", "abort", "hang"];
    let script = format!(
        "if [ $LOCAL_RANK = 0 ]; then exec {}; else exec {}; fi",
        worker(&words).join(" "),
        worker(&other).join(" ")
    );
    let driver = Driver::new(shell(&script)).await;
    let (_agent, mut control, mut lines) = driver.with_agent().await;
    control.spawn_of(0, 1, 2).await;
    control.spawn_of(1, 1, 2).await;
    control.all_wait(2).await;
    control
        .start(1, &[process(0, 1), process(1, 1)], None, None)
        .await;
    let lost = AgentReport::WorkerLost {
        process: process(0, 1),
        silent: false,
    };
    assert_eq!(control.report().await, Some(lost));
    assert_eq!(exit_of(&mut control).await.0, Exit::Code(5));
    lines.until("abort 1").await;
}

#[tokio::test]
async fn a_success_is_no_loss() {
    let words = ["attach", "join", "start", "finish", "exit=0"];
    let driver = Driver::new(worker(&words)).await;
    let (_agent, mut control, _lines) = driver.with_agent().await;
    control.spawn(0, 1).await;
    control.all_wait(1).await;
    control.start(1, &[process(0, 1)], None, None).await;
    let finished = AgentReport::Finished {
        round: Round(1),
        workers: vec![process(0, 1)],
    };
    assert_eq!(control.report().await, Some(finished));
    assert_eq!(exit_of(&mut control).await.0, Exit::Code(0));
}

#[tokio::test]
async fn a_command_that_does_not_exist_is_named() {
    for (command, why) in [
        (
            "/no/such/train.py",
            "/no/such/train.py: no such file on this host; expected a program that each host has",
        ),
        (
            "no-such-command",
            "no-such-command: not found on the PATH of this host; expected a program on PATH, or a path to one",
        ),
        (
            "/etc/passwd",
            "/etc/passwd: not executable on this host; expected a program, made executable by chmod +x",
        ),
    ] {
        let driver = Driver::new(vec![command.into()]).await;
        let (_agent, mut control, _lines) = driver.with_agent().await;
        control.spawn(0, 1).await;
        assert_eq!(exit_of(&mut control).await.0, Exit::NotStarted(why.into()));
        // The slot is free again.
        control.spawn(0, 2).await;
        assert_eq!(exit_of(&mut control).await.0, Exit::NotStarted(why.into()));
    }
}

#[tokio::test]
async fn a_stop_becomes_a_signal_and_then_a_kill() {
    let mut driver = Driver::new(shell(
        "trap 'echo no' TERM; echo ready; while :; do sleep 1000 & wait; done",
    ))
    .await;
    driver.setup.grace = Duration::from_secs(1);
    let (_agent, mut control, mut lines) = driver.with_agent().await;
    control.spawn(0, 1).await;
    lines.until("ready").await;
    let why = StopReason::TimedOut;
    let stop = AgentCommand::Stop {
        process: process(0, 1),
        why,
    };
    control.command(stop).await;
    lines.until("no\n").await;
    assert_eq!(exit_of(&mut control).await.0, Exit::Signal(libc::SIGKILL));
    assert!(
        processes_of_run(&driver.run_id).is_empty(),
        "its children went with it"
    );
}

#[tokio::test]
async fn a_removed_worker_may_end_by_itself() {
    let driver = Driver::new(worker(&["attach", "join", "stop", "exit=0"])).await;
    let (_agent, mut control, mut lines) = driver.with_agent().await;
    waiting_worker(&driver, &mut control).await;
    let why = StopReason::Removed;
    control
        .command(AgentCommand::Stop {
            process: process(0, 1),
            why,
        })
        .await;
    lines.until("stop Removed").await;
    assert_eq!(exit_of(&mut control).await.0, Exit::Code(0));
}

#[tokio::test]
async fn a_stop_before_the_start_is_not_lost() {
    let driver = Driver::new(shell("sleep 1000")).await;
    let (_agent, mut control, _lines) = driver.with_agent().await;
    control.spawn(0, 1).await;
    let why = StopReason::Removed;
    control
        .command(AgentCommand::Stop {
            process: process(0, 1),
            why,
        })
        .await;
    assert_eq!(exit_of(&mut control).await.0, Exit::Signal(libc::SIGTERM));
}

#[tokio::test]
async fn a_worker_that_does_not_beat_is_killed() {
    let mut driver = Driver::new(worker(&["attach", "join", "quiet", "hang"])).await;
    driver.setup.heartbeat_timeout = Duration::from_secs(2);
    let (_agent, mut control, _lines) = driver.with_agent().await;
    waiting_worker(&driver, &mut control).await;
    let report = loop {
        // The driver must answer beats meanwhile.
        control.answer_beat().await;
        control.beat().await;
        if let Some(report) = control.seen.pop_front() {
            break report;
        }
    };
    assert_eq!(
        report,
        AgentReport::WorkerLost {
            process: process(0, 1),
            silent: true
        }
    );
    assert_eq!(exit_of(&mut control).await.0, Exit::Signal(libc::SIGKILL));
}

#[tokio::test]
async fn children_in_sessions_of_their_own_end_with_the_agent() {
    let driver = Driver::new(worker(&["child", "exit=0"])).await;
    let (agent, mut control, mut lines) = driver.with_agent().await;
    control.spawn(0, 1).await;
    let child = pid_after(&mut lines, "child ").await;
    // The child holds the pipes, and the exit is reported nevertheless.
    assert_eq!(exit_of(&mut control).await.0, Exit::Code(0));
    assert!(lives(child), "it is not of the worker's group");
    control.command(AgentCommand::Shutdown).await;
    assert_eq!(control.report().await, None);
    assert!(agent.end().await.0.success());
    assert!(!lives(child));
}

#[tokio::test]
async fn nothing_survives_an_agent_that_is_killed() {
    let driver = Driver::new(worker(&["attach", "child", "hang"])).await;
    let (agent, mut control, mut lines) = driver.with_agent().await;
    control.spawn(0, 1).await;
    let child = pid_after(&mut lines, "child ").await;
    assert!(lives(child));
    agent.signal(libc::SIGKILL);
    // A process that is ending loses its environment, and so its mark, before it is gone.
    eventually("all gone", || {
        processes_of_run(&driver.run_id).is_empty() && !lives(child)
    })
    .await;
}

#[tokio::test]
async fn a_new_agent_ends_what_a_killed_one_left() {
    let driver = Driver::new(worker(&["child", "hang"])).await;
    let (agent, mut control, mut lines) = driver.with_agent().await;
    control.spawn(0, 1).await;
    let child = pid_after(&mut lines, "child ").await;
    // Kill the reaper process first, so that nothing cleans up. Until it has run it has the agent's name.
    let mut reaper = None;
    eventually("the reaper process has its name", || {
        reaper = reaper_process_of(agent.child.id());
        reaper.is_some()
    })
    .await;
    kill(reaper.unwrap(), libc::SIGKILL);
    agent.signal(libc::SIGKILL);
    agent.end().await;
    assert!(lives(child), "nothing has killed it yet");
    let (_agent, _control, _lines) = driver.with_agent().await;
    assert!(!lives(child));
}

#[tokio::test]
async fn daemons_are_reaped() {
    let driver = Driver::new(shell("setsid sh -c 'sleep 0.2; :' & sleep 1000")).await;
    let (agent, mut control, _lines) = driver.with_agent().await;
    control.spawn(0, 1).await;
    let ours = |state: &str| {
        let all = std::fs::read_dir("/proc").unwrap();
        let stats =
            all.filter_map(|entry| std::fs::read_to_string(entry.ok()?.path().join("stat")).ok());
        let prefix = format!("{state} {}", agent.child.id());
        stats
            .filter(|stat| {
                stat.rsplit_once(") ")
                    .is_some_and(|(_, rest)| rest.starts_with(&prefix))
            })
            .count()
    };
    eventually("no sleeper in a session of its own", || {
        processes_of_run(&driver.run_id).len() == 2
    })
    .await;
    eventually("no zombie", || ours("Z") == 0).await;
}

#[tokio::test]
async fn sigterm_ends_the_workers_and_a_second_one_kills() {
    let script = "trap 'echo no' TERM; echo ready; while :; do sleep 1000 & wait; done";
    let driver = Driver::new(shell(script)).await;
    let (agent, mut control, mut lines) = driver.with_agent().await;
    control.spawn(0, 1).await;
    lines.until("ready").await;
    agent.signal(libc::SIGINT);
    agent.signal(libc::SIGTERM);
    lines.until("no\n").await;
    agent.signal(libc::SIGTERM);
    // The driver counts the workers as lost with the agent. So their ends by its signals are not reported.
    assert_eq!(control.report().await, Some(AgentReport::Leaving));
    assert_eq!(control.report().await, None);
    let (status, stderr) = agent.end().await;
    assert!(
        status.success() && stderr.contains("ended: Stopped"),
        "{stderr}"
    );
    assert!(processes_of_run(&driver.run_id).is_empty());
}

#[tokio::test]
async fn an_order_to_kill_kills() {
    let driver = Driver::new(shell(
        "trap 'echo no' TERM; echo ready; while :; do sleep 1000 & wait; done",
    ))
    .await;
    let (agent, mut control, mut lines) = driver.with_agent().await;
    control.spawn(0, 1).await;
    lines.until("ready").await;
    control.command(AgentCommand::Kill).await;
    assert_eq!(exit_of(&mut control).await.0, Exit::Signal(libc::SIGKILL));
    assert_eq!(control.report().await, None);
    assert!(agent.end().await.0.success());
}

#[tokio::test]
async fn workers_do_not_inherit_what_the_agent_did_to_itself() {
    let script = "grep -E 'SigIgn|SigBlk' /proc/self/status; readlink /proc/self/fd/0; \
        cut -d' ' -f1,5,6 /proc/$$/stat; ls /proc/self/fd | wc -l";
    let driver = Driver::new(shell(script)).await;
    let (_agent, mut control, _lines) = driver.with_agent().await;
    control.spawn(0, 1).await;
    let (exit, tail) = exit_of(&mut control).await;
    assert_eq!(exit, Exit::Code(0), "{tail:?}");
    let mask = |line: &str| {
        let (_, hex) = line.split_once('\t').unwrap();
        // Except 32 and 33, which the C library reserves.
        u64::from_str_radix(hex, 16).unwrap() & !(3 << 31)
    };
    assert_eq!((mask(&tail[0]), mask(&tail[1])), (0, 0), "{tail:?}");
    assert_eq!(tail[2], "/dev/null");
    let numbers: Vec<_> = tail[3].split_whitespace().collect();
    assert!(
        numbers[0] == numbers[1] && numbers[1] == numbers[2],
        "{numbers:?}"
    );
    assert_eq!(tail[4].trim(), "4", "0, 1, 2 and the listing itself");
}
