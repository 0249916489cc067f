//! `--supervise`: a parent process that resumes the run when its driver dies.
//!
//! ```text
//! supervisor --fork--> driver of a new run         killed, or a panic
//!     |                                                  |
//!     '------------ back-off ------- fork --> driver that resumes the run --> outcome
//! ```
//! - A driver that ends with an outcome ends the supervisor, with its exit code. So does an error of the first start.
//! - A later driver that cannot take the run over for a reason that may be over soon, such as a full disk or a taken port, is
//!   started again like one that died.
//! - The driver has its own process group, so that a signal of the terminal reaches it once: from the supervisor, which passes
//!   on all signals of the user.
//! - A driver that dies after such a signal is not resumed. A signal between two drivers is passed on to the next one, which
//!   ends the run in order. A signal that the supervisor ignores, as SIGHUP under `nohup`, is none.
//!
//! Not promised: that the driver ends with a supervisor that is killed. It goes on without one.

pub(crate) mod restarts;

use std::{
    io::{self, Write},
    os::fd::{AsFd as _, OwnedFd},
    process,
    time::{Duration, Instant},
};

use nix::{
    fcntl::OFlag,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        signal::{SigSet, SigmaskHow, Signal, kill, pthread_sigmask, raise},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::{ForkResult, Pid, fork, pipe2, setpgid},
};

use self::restarts::{LIMIT, Restarts};
use crate::{
    exit,
    signals::{self, StopSignals},
};

/// The exit code of a Rust program after a panic.
const PANICKED: u8 = 101;

/// How long a signal waits for the handlers of a driver that starts, in milliseconds.
const START_LIMIT: u16 = 10_000;

/// Signals that are passed on to a driver, which only reports them unless they end it in order.
const REPORTED: [Signal; 2] = [Signal::SIGUSR1, Signal::SIGUSR2];

/// Runs drivers of one run until one of them ends with an outcome. Returns its exit code. Signals in `stop` end a driver in order.
///
/// Call it in a process with one thread. `first` and `later` run in processes of their own, and give the exit code. Each drops
/// its [`Starting`] once its signal handlers exist.
///
/// # Errors
/// The system starts no first process.
pub fn supervise(
    stop: &StopSignals,
    first: impl FnOnce(Starting) -> u8,
    later: impl Fn(Starting) -> u8,
) -> io::Result<u8> {
    let supervisor = Supervisor::new(stop)?;
    let mut restarts = Restarts::default();
    let mut started = Ok(supervisor.start(first)?);
    // The signal that asked for the end while no driver ran.
    let mut requested = None;
    loop {
        let began = Instant::now();
        let ended = match &started {
            Ok(driver) => supervisor.watch(driver, requested)?,
            Err(error) => {
                say(&format!("no process can be started: {error}"));
                Ended::NotResumed
            }
        };
        let (how, code) = match ended {
            Ended::WithCode(code) => return Ok(code),
            Ended::Died { signal, stopped } if stopped => {
                say(&format!(
                    "the driver was killed by {signal} while it ended the run, which is not resumed"
                ));
                return Ok(exit::stopped_by(signal as i32));
            }
            Ended::Died { signal, .. } => (
                format!("the driver was killed by {signal}"),
                exit::stopped_by(signal as i32),
            ),
            Ended::Panicked => ("the driver has panicked".to_owned(), PANICKED),
            // The process that tried it has said why.
            Ended::NotResumed if requested.is_some() => return Ok(exit::JOURNAL),
            Ended::NotResumed => ("the run is not resumed yet".to_owned(), exit::JOURNAL),
        };
        let Some(pause) = restarts.next(began.elapsed()) else {
            say(&format!(
                "{how}; this is attempt {LIMIT} in a row, and the last one"
            ));
            return Ok(code);
        };
        say(&format!("{how}; resuming the run"));
        requested = requested.or(supervisor.wait_for_signal(pause));
        started = supervisor.start(&later);
    }
}

/// The start of a driver, until its signal handlers exist. The supervisor holds signals back meanwhile.
///
/// It holds the writing end of a pipe, whose end the supervisor waits for.
#[derive(Debug)]
pub struct Starting {
    _handlers_exist: OwnedFd,
}

/// How a driver ended.
enum Ended {
    /// By itself.
    WithCode(u8),
    /// By a signal. `stopped`: the user had asked it to end.
    Died { signal: Signal, stopped: bool },
    /// By a panic, and no signal had asked it to end.
    Panicked,
    /// It could not take the run over, for a reason that may be over soon.
    NotResumed,
}

/// The process of a driver.
#[derive(Debug)]
struct Driver {
    pid: Pid,
    /// Ends when the driver's signal handlers exist, or the driver has ended.
    starting: OwnedFd,
}

impl Driver {
    /// Sends a signal once the driver handles it. Before that, the signal would kill it, and its agents would learn nothing.
    fn signal(&self, signal: Signal) {
        let mut end = [PollFd::new(self.starting.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut end, PollTimeout::from(START_LIMIT));
        let _ = kill(self.pid, signal);
    }
}

/// The signals of the supervisor. They are blocked and waited for.
struct Supervisor {
    signals: SigSet,
    /// Those that ask a driver to end.
    stop: StopSignals,
    /// The mask of the drivers.
    before: SigSet,
}

impl Supervisor {
    fn new(stop: &StopSignals) -> io::Result<Self> {
        let mut signals = SigSet::empty();
        let more = [Signal::SIGCHLD, Signal::SIGTSTP, Signal::SIGCONT];
        for number in stop.to_handle()? {
            signals.add(Signal::try_from(number)?);
        }
        for signal in REPORTED.into_iter().chain(more) {
            // A blocked signal is delivered although it is ignored. The driver ignores it as well.
            if !signals::is_ignored(signal as i32)? {
                signals.add(signal);
            }
        }
        let mut before = SigSet::empty();
        pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&signals), Some(&mut before))?;
        Ok(Self {
            signals,
            stop: stop.clone(),
            before,
        })
    }

    /// Runs `work` in a process of its own.
    fn start(&self, work: impl FnOnce(Starting) -> u8) -> io::Result<Driver> {
        let (starting, handlers_exist) = pipe2(OFlag::O_CLOEXEC)?;
        // SAFETY: this process has one thread, so the child may do whatever its parent may.
        match unsafe { fork() }? {
            ForkResult::Parent { child: pid } => {
                // Either of both is first.
                let _ = setpgid(pid, pid);
                Ok(Driver { pid, starting })
            }
            ForkResult::Child => {
                drop(starting);
                let _ = setpgid(Pid::from_raw(0), Pid::from_raw(0));
                let _ = self.before.thread_set_mask();
                let starting = Starting {
                    _handlers_exist: handlers_exist,
                };
                process::exit(work(starting).into())
            }
        }
    }

    /// Passes signals on to a driver until it ends. `requested`: the signal that has asked for its end before it was started.
    fn watch(&self, driver: &Driver, requested: Option<Signal>) -> io::Result<Ended> {
        let mut stopped = requested.is_some();
        if let Some(signal) = requested {
            driver.signal(signal);
        }
        loop {
            match waitpid(driver.pid, Some(WaitPidFlag::WNOHANG))? {
                WaitStatus::Exited(_, code) => {
                    return Ok(match u8::try_from(code).unwrap_or(u8::MAX) {
                        PANICKED if !stopped => Ended::Panicked,
                        exit::NOT_RESUMED if !stopped => Ended::NotResumed,
                        exit::NOT_RESUMED => Ended::WithCode(exit::JOURNAL),
                        code => Ended::WithCode(code),
                    });
                }
                WaitStatus::Signaled(_, signal, _) => return Ok(Ended::Died { signal, stopped }),
                _ => {}
            }
            match self.signals.wait()? {
                Signal::SIGCHLD => {}
                Signal::SIGTSTP => {
                    let _ = kill(driver.pid, Signal::SIGTSTP);
                    raise(Signal::SIGSTOP)?;
                }
                signal => {
                    stopped |= self.is_stop(signal);
                    driver.signal(signal);
                }
            }
        }
    }

    /// Whether a signal asks the driver to end.
    fn is_stop(&self, signal: Signal) -> bool {
        self.stop.contains(signal as i32)
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
                Ok(signal) if self.is_stop(signal) => return Some(signal),
                Ok(_) => {}
                Err(_) => return None,
            }
        }
    }
}

fn say(line: &str) {
    let _ = writeln!(io::stderr(), "elasticrun: {line}");
}
