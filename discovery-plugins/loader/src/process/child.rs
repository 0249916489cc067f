//! A running plugin process, and the calls on it.

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

use elasticrun_group_leader::check_interpreter;
use elasticrun_plugin_sdk::{Command, Snapshot};
use serde_json::{Map, Value};

use super::{
    Program,
    ending::{self, Process},
    frame_reader::{FrameReader, PluginMessage},
    lines::Lines,
    spawn::spawn,
};
use crate::{
    ChangeSignal, Failure, FailureKind,
    frames::{self, Call, Hello},
    log,
};

/// Time past the deadline of a call. A plugin that enforces its deadline, as by killing a program, needs a little longer.
pub(crate) const GRACE: Duration = Duration::from_millis(500);

/// How long a destroyed plugin may take to end before it is killed.
const DESTROY_TIMEOUT: Duration = Duration::from_secs(2);

/// A running plugin process. Dropping it destroys the instance, if there is one, and ends the process.
#[derive(Debug)]
pub(crate) struct Child {
    /// `None` after its end.
    process: Option<Process>,
    connection: UnixStream,
    messages: Receiver<PluginMessage>,
    printed: Arc<AtomicU64>,
    calls: u64,
}

impl Child {
    /// Starts the process with the variables that `needed` names. The calling thread must outlive the child.
    pub(crate) fn start(
        program: &Program,
        name: &str,
        needed: &[String],
        signal: ChangeSignal,
    ) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| {
            let why = match check_interpreter(&program.path) {
                Err(why) if error.kind() == std::io::ErrorKind::NotFound => why.to_string(),
                _ => error.to_string(),
            };
            Failure::new(
                FailureKind::Died,
                format!("the plugin's process cannot be started: {why}"),
            )
        };
        let (mut child, connection) = spawn(program, needed).map_err(failed)?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let process = Process::new(child).map_err(failed)?;
        let (sender, messages) = sync_channel(16);
        let printed = Arc::new(AtomicU64::new(0));
        let pipes = stdout.zip(stderr);
        let (stdout, stderr) = pipes.ok_or_else(|| failed(std::io::ErrorKind::Other.into()))?;
        let reader = FrameReader {
            connection: connection.try_clone().map_err(failed)?,
            ended: process.ended().map_err(failed)?,
            stdout,
            stderr,
            lines: Lines::new(name),
            messages: sender,
            signal: Arc::new(signal),
            printed: printed.clone(),
        };
        let named = thread::Builder::new().name(format!("frames {name}"));
        let mut child = Self {
            process: Some(process),
            connection,
            messages,
            printed,
            calls: 0,
        };
        if let Err(error) = named.spawn(move || reader.run()) {
            child.kill();
            return Err(failed(error));
        }
        Ok(child)
    }

    /// Waits for the first frame.
    pub(crate) fn hello(&mut self, time: Duration) -> Result<Hello, Failure> {
        match self.messages.recv_timeout(time) {
            Ok(PluginMessage::Hello(hello)) if hello.frames == frames::VERSION => Ok(*hello),
            Ok(PluginMessage::Hello(hello)) => {
                let why = format!(
                    "it speaks version {} of the frames, this is {}",
                    hello.frames,
                    frames::VERSION
                );
                Err(self.broke(&why))
            }
            Ok(PluginMessage::Refused(why)) => {
                self.kill();
                Err(Failure::new(FailureKind::BadConfig, why))
            }
            Ok(PluginMessage::Answer(..)) => {
                Err(self.broke("it answered before it said who it is"))
            }
            Ok(PluginMessage::Gone { broken, last_line }) => Err(self.gone(broken, last_line)),
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
            log: log::max_level(),
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

    /// Bytes that it has written to standard output.
    pub(crate) fn printed(&self) -> u64 {
        self.printed.load(Ordering::Relaxed)
    }

    /// Its process id, until it was ended.
    pub(crate) fn id(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }

    /// Destroys the instance and ends the process. Returns whether it ended by itself.
    pub(crate) fn end(&mut self) -> bool {
        if self.process.is_none() {
            return false;
        }
        self.calls += 1;
        let sent = self.send(&Call::Destroy { id: self.calls }, GRACE);
        let process = self.process.take();
        process.is_some_and(|process| {
            let by_itself = sent.is_ok() && process.ends_within(DESTROY_TIMEOUT);
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
        // If the call cannot be sent, the process has ended or does not read. The messages below tell which.
        let sent = self.send(&call, deadline + GRACE);
        loop {
            let left = match &sent {
                Ok(()) => limit.saturating_duration_since(Instant::now()),
                Err(_) => GRACE,
            };
            match self.messages.recv_timeout(left) {
                Ok(PluginMessage::Answer(id, result)) if id == self.calls => return result,
                Ok(PluginMessage::Answer(..)) => {}
                Ok(PluginMessage::Hello(_) | PluginMessage::Refused(_)) => {
                    return Err(self.broke("it said twice who it is"));
                }
                Ok(PluginMessage::Gone { broken, last_line }) => {
                    return Err(self.gone(broken, last_line));
                }
                Err(RecvTimeoutError::Timeout) => {
                    let time = rounded(deadline);
                    let why = format!("the plugin was not back after {time:?} and was killed");
                    return Err(self.hung(&why));
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.gone(None, None)),
            }
        }
    }

    fn send(&mut self, call: &Call, time: Duration) -> std::io::Result<()> {
        // A hanging process does not read.
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

    /// The failure at the end of the connection: the process has ended, or broke a rule.
    fn gone(&mut self, broken: Option<String>, last_line: Option<String>) -> Failure {
        if let Some(why) = broken {
            return self.broke(&why);
        }
        let Some(process) = self.process.take() else {
            return Failure::new(FailureKind::Died, "the plugin's process has ended");
        };
        let by_itself = process.ends_within(GRACE);
        let message = match (by_itself, process.end()) {
            (true, Ok(status)) => ending::describe(status, last_line.as_deref()),
            (true, Err(error)) => format!("the plugin's process has ended: {error}"),
            (false, _) => {
                "the plugin closed its connection to the driver and was killed".to_owned()
            }
        };
        Failure::new(FailureKind::Died, message)
    }

    fn kill(&mut self) {
        if let Some(process) = self.process.take() {
            // There is no remedy if it cannot be reaped.
            let _ = process.end();
        }
    }
}

/// A time limit for a message. A few milliseconds of it may be used up by the start of the process.
fn rounded(time: Duration) -> Duration {
    let unit = match time.as_secs() {
        0 => 1,
        1..10 => 100,
        _ => 1000,
    };
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(millis.saturating_add(unit / 2) / unit * unit)
}

impl Drop for Child {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_limit_is_shown_as_it_was_set() {
        let shown = |nanos| format!("{:?}", rounded(Duration::from_nanos(nanos)));
        assert_eq!(shown(29_999_999_810), "30s");
        assert_eq!(shown(1_951_000_000), "2s");
        assert_eq!(shown(50_000_000), "50ms");
        assert_eq!(rounded(Duration::MAX).subsec_nanos(), 0);
    }
}
