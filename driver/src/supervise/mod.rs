//! `--supervise`: a parent process that resumes the run when its driver dies.
//!
//! ```text
//! supervisor --fork--> driver of a new run         killed, or a panic
//!     |                                                  |
//!     '------------ back-off ------- fork --> driver that resumes the run --> outcome
//! ```
//! - A driver that ends with an outcome ends the supervisor, with its exit code. So does an error of its start.
//! - The driver has its own process group, so that a signal of the terminal reaches it once: from the supervisor, which passes
//!   on all signals of the user.
//! - A driver that dies after such a signal is not resumed.
//!
//! Not promised: that the driver ends with a supervisor that is killed. It goes on without one.

mod restarts;

use std::{
    io::{self, Write},
    process,
    time::{Duration, Instant},
};

use nix::{
    sys::{
        signal::{SigSet, SigmaskHow, Signal, kill, pthread_sigmask, raise},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::{ForkResult, Pid, fork, setpgid},
};

use self::restarts::Restarts;
use crate::exit;

/// The exit code of a Rust program after a panic.
const PANICKED: i32 = 101;

/// Signals that end a driver in order, or that it only reports.
const PASSED_ON: [Signal; 6] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// Runs drivers of one run until one of them ends with an outcome. Returns its exit code.
///
/// Call it in a process with one thread. `first` and `later` run in processes of their own, and give the exit code.
///
/// # Errors
/// The system starts no process.
pub fn supervise(first: impl FnOnce() -> u8, later: impl Fn() -> u8) -> io::Result<u8> {
    let supervisor = Supervisor::new()?;
    let mut restarts = Restarts::default();
    let (mut driver, mut began) = (supervisor.start(first)?, Instant::now());
    loop {
        let died = match supervisor.watch(driver)? {
            Ended::WithCode(code) => return Ok(code),
            Ended::Died {
                signal,
                stopped: true,
            } => return Ok(exit::stopped_by(signal)),
            Ended::Died { signal, .. } => signal,
        };
        let how = match Signal::try_from(died) {
            Ok(signal) => format!("was killed by {signal}"),
            Err(_) => "has panicked".to_owned(),
        };
        let Some(pause) = restarts.next(Instant::now(), began.elapsed()) else {
            say(&format!(
                "the driver {how}; it has died too often within a minute and is not resumed"
            ));
            return Ok(exit::stopped_by(died));
        };
        say(&format!("the driver {how}; resuming the run"));
        // A signal of the user ends the pause, and then the resumed driver.
        let signal = supervisor.wait_for_signal(pause);
        (driver, began) = (supervisor.start(&later)?, Instant::now());
        if let Some(signal) = signal {
            let _ = kill(driver, signal);
        }
    }
}

/// How a driver ended.
enum Ended {
    /// By itself.
    WithCode(u8),
    /// By a signal, or 0 for a panic. `stopped`: the user had asked it to end.
    Died { signal: i32, stopped: bool },
}

/// The signals of the supervisor. They are blocked and waited for.
struct Supervisor {
    signals: SigSet,
    /// The mask of the drivers.
    before: SigSet,
}

impl Supervisor {
    fn new() -> io::Result<Self> {
        let mut signals = SigSet::empty();
        let more = [Signal::SIGCHLD, Signal::SIGTSTP, Signal::SIGCONT];
        for signal in PASSED_ON.into_iter().chain(more) {
            signals.add(signal);
        }
        let mut before = SigSet::empty();
        pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&signals), Some(&mut before))?;
        Ok(Self { signals, before })
    }

    /// Runs `work` in a process of its own.
    fn start(&self, work: impl FnOnce() -> u8) -> io::Result<Pid> {
        // SAFETY: this process has one thread, so the child may do whatever its parent may.
        match unsafe { fork() }? {
            ForkResult::Parent { child } => {
                // Either of both is first.
                let _ = setpgid(child, child);
                Ok(child)
            }
            ForkResult::Child => {
                let _ = setpgid(Pid::from_raw(0), Pid::from_raw(0));
                let _ = self.before.thread_set_mask();
                process::exit(work().into())
            }
        }
    }

    /// Passes signals on to a driver until it ends.
    fn watch(&self, driver: Pid) -> io::Result<Ended> {
        let mut stopped = false;
        loop {
            match waitpid(driver, Some(WaitPidFlag::WNOHANG))? {
                WaitStatus::Exited(_, PANICKED) => return Ok(Ended::Died { signal: 0, stopped }),
                WaitStatus::Exited(_, code) => {
                    return Ok(Ended::WithCode(u8::try_from(code).unwrap_or(u8::MAX)));
                }
                WaitStatus::Signaled(_, signal, _) => {
                    let signal = signal as i32;
                    return Ok(Ended::Died { signal, stopped });
                }
                _ => {}
            }
            match self.signals.wait()? {
                Signal::SIGCHLD => {}
                Signal::SIGTSTP => {
                    let _ = kill(driver, Signal::SIGTSTP);
                    raise(Signal::SIGSTOP)?;
                }
                signal => {
                    stopped |= is_stop(signal);
                    let _ = kill(driver, signal);
                }
            }
        }
    }

    /// Waits. Returns the signal of the user that ends the wait.
    fn wait_for_signal(&self, pause: Duration) -> Option<Signal> {
        let until = Instant::now() + pause;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let left = libc::timespec {
                tv_sec: left.as_secs().cast_signed(),
                tv_nsec: left.subsec_nanos().into(),
            };
            // SAFETY: a live set and a live time; the call allows a null pointer for the information.
            let signal = unsafe {
                libc::sigtimedwait(self.signals.as_ref(), std::ptr::null_mut(), &raw const left)
            };
            match Signal::try_from(signal) {
                Ok(signal) if is_stop(signal) => return Some(signal),
                Ok(_) => {}
                Err(_) => return None,
            }
        }
    }
}

/// Whether a signal asks the driver to end.
fn is_stop(signal: Signal) -> bool {
    PASSED_ON[..4].contains(&signal)
}

fn say(line: &str) {
    let _ = writeln!(io::stderr(), "elasticrun: {line}");
}
