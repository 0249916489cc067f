//! The processes of a run, found by the tag in their environment, and signals to them.

use std::{
    fs,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    time::{ClockId, clock_gettime},
    unistd::Pid,
};

/// The variable that carries the tag.
const VARIABLE: &str = "PROCESS_TEST_TAG";

/// A value in the environment of all processes of one run and of no other process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag(String);

impl Tag {
    /// A tag that no other run has.
    pub fn new() -> Self {
        Self(format!("{}-{}", std::process::id(), monotonic()))
    }

    /// The variable to set.
    pub fn variable(&self) -> (&'static str, &str) {
        (VARIABLE, &self.0)
    }

    /// Living processes with this tag, with their command lines. A zombie has no environment and does not count.
    pub fn processes(&self) -> Vec<(u32, String)> {
        let wanted = format!("{VARIABLE}={}", self.0);
        let entries = fs::read_dir("/proc").expect("/proc is there").flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        pids.filter(|pid| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment
                .split(|byte| *byte == 0)
                .any(|variable| variable == wanted.as_bytes())
        })
        .map(|pid| (pid, command_line(pid)))
        .collect()
    }

    /// Kills processes with this tag until none is left, for at most five seconds.
    pub fn kill_all(&self) {
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            let left = self.processes();
            if left.is_empty() || Instant::now() > deadline {
                return;
            }
            for (pid, _) in left {
                // It may have ended meanwhile.
                let _ = kill(Pid::from_raw(pid as i32), Signal::SIGKILL);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Default for Tag {
    fn default() -> Self {
        Self::new()
    }
}

fn command_line(pid: u32) -> String {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&words)
        .replace('\0', " ")
        .trim()
        .to_owned()
}

/// Sends a signal to a process of a run.
///
/// # Panics
/// When there is no such process.
pub fn send_signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid as i32), signal)
        .unwrap_or_else(|error| panic!("{signal} to {pid}: {error}"));
}

/// CLOCK_MONOTONIC in nanoseconds.
///
/// # Panics
/// Never on Linux.
pub fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every Linux has this clock");
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}
