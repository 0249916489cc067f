//! One run of a plugin's process, and the calls on it.

use std::{
    io::Write,
    os::unix::net::UnixStream,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use elasticrun_plugin_sdk::{Command, Snapshot};
use serde_json::{Map, Value};

use super::{
    Program,
    ears::{Ears, Heard},
    ending::{self, Process},
    lines::Lines,
    spawn::spawn,
};
use crate::{
    Failure, FailureKind, Nudge,
    frames::{self, Call, Hello},
    log,
};

/// A plugin that keeps its deadline by itself (it kills a program, say) is back a little after it.
pub(crate) const GRACE: Duration = Duration::from_millis(500);

/// What a plugin gets to end when it is told to. Nobody waits for that, but who wants to know.
const FAREWELL: Duration = Duration::from_secs(2);

/// See the module. Dropping it destroys the instance, if there is one, and ends the process.
#[derive(Debug)]
pub(crate) struct Child {
    /// None once it is over.
    process: Option<Process>,
    connection: UnixStream,
    heard: Receiver<Heard>,
    printed: Arc<AtomicU64>,
    calls: u64,
}

impl Child {
    /// Starts it with the variables that `needed` names. The thread that calls must outlive the child.
    pub(crate) fn start(
        program: &Program,
        name: &str,
        needed: &[String],
        nudge: Nudge,
    ) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| {
            Failure::new(
                FailureKind::Died,
                format!("the plugin's process cannot be started: {error}"),
            )
        };
        let (mut child, connection) = spawn(program, needed).map_err(failed)?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let process = Process::new(child).map_err(failed)?;
        let (sender, heard) = sync_channel(16);
        let printed = Arc::new(AtomicU64::new(0));
        let pipes = stdout.zip(stderr);
        let (stdout, stderr) = pipes.ok_or_else(|| failed(std::io::ErrorKind::Other.into()))?;
        let ears = Ears {
            connection: connection.try_clone().map_err(failed)?,
            stdout,
            stderr,
            lines: Lines::new(name),
            heard: sender,
            nudge: Arc::new(nudge),
            printed: printed.clone(),
        };
        let named = thread::Builder::new().name(format!("ears {name}"));
        let mut child = Self {
            process: Some(process),
            connection,
            heard,
            printed,
            calls: 0,
        };
        if let Err(error) = named.spawn(move || ears.run()) {
            child.kill();
            return Err(failed(error));
        }
        Ok(child)
    }

    /// Waits for the first frame.
    pub(crate) fn hello(&mut self, time: Duration) -> Result<Hello, Failure> {
        match self.heard.recv_timeout(time) {
            Ok(Heard::Hello(hello)) if hello.frames == frames::VERSION => Ok(*hello),
            Ok(Heard::Hello(hello)) => {
                let why = format!(
                    "it speaks version {} of the frames, this is {}",
                    hello.frames,
                    frames::VERSION
                );
                Err(self.broke(&why))
            }
            Ok(Heard::Refused(why)) => {
                self.kill();
                Err(Failure::new(FailureKind::BadConfig, why))
            }
            Ok(Heard::Answer(..)) => Err(self.broke("it answered before it said who it is")),
            Ok(Heard::Gone { broken, last_words }) => Err(self.gone(broken, last_words)),
            Err(RecvTimeoutError::Timeout) => Err(self.hung(&format!(
                "the plugin's process did not say who it is within {time:?} and was killed"
            ))),
            Err(RecvTimeoutError::Disconnected) => Err(self.gone(None, None)),
        }
    }

    pub(crate) fn create(
        &mut self,
        options: &Map<String, Value>,
        deadline: Duration,
    ) -> Result<(), Failure> {
        let config = options.clone();
        self.call(deadline, |id, deadline_ms| Call::Create {
            id,
            deadline_ms,
            config,
            log: log::most(),
        })
        .map(drop)
    }

    pub(crate) fn watch(&mut self, deadline: Duration) -> Result<(), Failure> {
        self.call(deadline, |id, deadline_ms| Call::Watch { id, deadline_ms })
            .map(drop)
    }

    pub(crate) fn poll(&mut self, deadline: Duration) -> Result<Snapshot, Failure> {
        let answer = self.call(deadline, |id, deadline_ms| Call::Poll { id, deadline_ms })?;
        answer.ok_or_else(|| {
            Failure::new(
                FailureKind::BadAnswer,
                "the plugin's answer to a poll has no snapshot",
            )
        })
    }

    pub(crate) fn command(&mut self, command: &Command, deadline: Duration) -> Result<(), Failure> {
        let command = command.clone();
        self.call(deadline, |id, deadline_ms| Call::Command {
            id,
            deadline_ms,
            command,
        })
        .map(drop)
    }

    /// Bytes that it wrote to standard output so far.
    pub(crate) fn printed(&self) -> u64 {
        self.printed.load(Ordering::Relaxed)
    }

    /// Its number, as long as it was not ended.
    pub(crate) fn id(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }

    /// Destroys the instance and ends the process. Says whether it ended by itself.
    pub(crate) fn end(&mut self) -> bool {
        if self.process.is_none() {
            return false;
        }
        self.calls += 1;
        let sent = self.send(&Call::Destroy { id: self.calls }, GRACE);
        let process = self.process.take();
        process.is_some_and(|process| {
            let by_itself = sent.is_ok() && process.ends_within(FAREWELL);
            let ended = process.end();
            by_itself && ended.is_ok()
        })
    }

    fn call(
        &mut self,
        deadline: Duration,
        call: impl FnOnce(u64, u64) -> Call,
    ) -> Result<Option<Snapshot>, Failure> {
        if self.process.is_none() {
            return Err(Failure::new(
                FailureKind::Died,
                "the plugin's process has ended",
            ));
        }
        self.calls += 1;
        let millis = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
        let call = call(self.calls, millis);
        let limit = Instant::now() + deadline + GRACE;
        // If it cannot be sent the process is gone or deaf; which of them is heard below.
        let sent = self.send(&call, deadline + GRACE);
        loop {
            let left = match &sent {
                Ok(()) => limit.saturating_duration_since(Instant::now()),
                Err(_) => GRACE,
            };
            match self.heard.recv_timeout(left) {
                Ok(Heard::Answer(id, result)) if id == self.calls => return result,
                Ok(Heard::Answer(..)) => {}
                Ok(Heard::Hello(_) | Heard::Refused(_)) => {
                    return Err(self.broke("it said twice who it is"));
                }
                Ok(Heard::Gone { broken, last_words }) => {
                    return Err(self.gone(broken, last_words));
                }
                Err(RecvTimeoutError::Timeout) => {
                    let why = format!("the plugin was not back after {deadline:?} and was killed");
                    return Err(self.hung(&why));
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.gone(None, None)),
            }
        }
    }

    fn send(&mut self, call: &Call, time: Duration) -> std::io::Result<()> {
        // A process that hangs does not read either.
        self.connection
            .set_write_timeout(Some(time.max(Duration::from_millis(1))))?;
        self.connection.write_all(&frames::frame(call))
    }

    fn hung(&mut self, why: &str) -> Failure {
        self.kill();
        Failure::new(FailureKind::Hung, why)
    }

    fn broke(&mut self, why: &str) -> Failure {
        self.kill();
        Failure::new(
            FailureKind::BadAnswer,
            format!("the plugin's process broke the rules and was killed: {why}"),
        )
    }

    /// The connection is over: because the process is, or because it broke a rule.
    fn gone(&mut self, broken: Option<String>, last_words: Option<String>) -> Failure {
        if let Some(why) = broken {
            return self.broke(&why);
        }
        let Some(process) = self.process.take() else {
            return Failure::new(FailureKind::Died, "the plugin's process has ended");
        };
        let by_itself = process.ends_within(GRACE);
        let message = match (by_itself, process.end()) {
            (true, Ok(status)) => ending::told(status, last_words.as_deref()),
            (true, Err(error)) => format!("the plugin's process has ended: {error}"),
            (false, _) => {
                "the plugin closed its connection to the driver and was killed".to_owned()
            }
        };
        Failure::new(FailureKind::Died, message)
    }

    fn kill(&mut self) {
        if let Some(process) = self.process.take() {
            // Reaped or not, there is nothing to be done about it.
            let _ = process.end();
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.end();
    }
}
