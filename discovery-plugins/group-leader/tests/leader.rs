//! What a program leaves behind.

use std::{
    fs,
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    process::{Command, ExitStatus},
    thread,
    time::{Duration, Instant},
};

use elasticrun_group_leader::fork_program;

const PATIENCE: Duration = Duration::from_secs(30);

/// Runs a shell script as the program of a group. Returns how the leader ended, and the script's output. Kills nothing.
fn run(script: &str) -> (ExitStatus, String) {
    let parent = std::process::id();
    let mut command = Command::new("sh");
    command.args(["-c", script]).process_group(0);
    // SAFETY: `fork_program` makes system calls only.
    unsafe { command.pre_exec(move || fork_program(parent)) };
    let output = command.output().expect("sh starts");
    (
        output.status,
        String::from_utf8_lossy(&output.stdout).into_owned(),
    )
}

/// Whether the process runs. A zombie has ended.
fn is_alive(process: &str) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = status.rsplit_once(") ").map(|(_, rest)| rest.as_bytes()[0]);
    state.is_some_and(|state| state != b'Z')
}

#[test]
fn what_a_program_started_ends_with_it() {
    let (status, child) = run("sleep 1000 >/dev/null 2>&1 & echo $!; exit 3");
    assert_eq!(status.code(), Some(3));
    let began = Instant::now();
    while is_alive(child.trim()) {
        assert!(began.elapsed() < PATIENCE, "{child} lives on");
        thread::yield_now();
    }
}

#[test]
fn the_signal_that_ended_the_program_is_that_of_its_leader() {
    let (status, _) = run("sleep 1000 >/dev/null 2>&1 & kill -TERM $$");
    assert_eq!(status.signal(), Some(15));
}
