//! The thread that reads frames and output of a plugin's process.
//!
//! Output, also that on standard output, goes to the driver's log and never to the job's output.

use std::{
    io::{self, Read},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    process::{ChildStderr, ChildStdout},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::SyncSender,
    },
};

use elasticrun_plugin_sdk::Snapshot;
use nix::{
    errno::Errno,
    fcntl::{FcntlArg, OFlag, fcntl},
    poll::{PollFd, PollFlags, PollTimeout, poll},
};

use super::lines::Lines;
use crate::{
    ChangeSignal, Failure, FailureKind,
    failure::one_line,
    frames::{self, Hello, PluginFrame},
    library::snapshot,
};

/// A message for the caller of a plugin's process.
#[derive(Debug)]
pub(crate) enum PluginMessage {
    Hello(Box<Hello>),
    /// The plugin cannot be loaded.
    Refused(String),
    /// The result of a call. Only polls have a snapshot.
    Answer(u64, Result<Option<Snapshot>, Failure>),
    /// The last message: the connection has ended, or a frame was invalid.
    Gone {
        /// The rule that the process broke.
        broken: Option<String>,
        /// The last informative line on standard error.
        last_line: Option<String>,
    },
}

/// Reads frames and output of a plugin's process.
pub(super) struct FrameReader {
    pub(super) connection: UnixStream,
    /// Readable after the end of the process.
    pub(super) ended: OwnedFd,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
    pub(super) lines: Lines,
    /// Bounded: while unrequested answers fill it, the connection is not read until the next call.
    pub(super) messages: SyncSender<PluginMessage>,
    /// Called when the hosts may have changed, and at the end of the process, so that the next poll notices it.
    pub(super) signal: Arc<ChangeSignal>,
    /// Count of bytes on standard output.
    pub(super) printed: Arc<AtomicU64>,
}

/// Reads of the connection after the end of the process: more than its buffer holds. A child of the process may write on.
const MAX_READS_AFTER_END: u32 = 64;

/// The connection is closed.
struct Closed;

impl FrameReader {
    /// Reads until the connection or the process ends.
    pub(super) fn run(mut self) {
        let broken = self.read_all().err().map(|why| why.to_string());
        // Its last output may still be in the pipe.
        self.log_output();
        let last_line = self.lines.last_line();
        let gone = PluginMessage::Gone { broken, last_line };
        // Fails if the plugin was ended by the driver.
        if self.messages.send(gone).is_ok() {
            (self.signal)();
        }
    }

    fn read_all(&mut self) -> io::Result<()> {
        let nonblocking = |fd: BorrowedFd<'_>| -> io::Result<()> {
            let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
            fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
            Ok(())
        };
        nonblocking(self.stdout.as_fd())?;
        nonblocking(self.stderr.as_fd())?;
        let mut frames = Vec::new();
        let mut pipes_open = true;
        // After the end of the process its connection may be open in a child. What is in it is still read.
        let mut reads_after_end = None;
        loop {
            let mut fds = vec![
                PollFd::new(self.connection.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.ended.as_fd(), PollFlags::POLLIN),
            ];
            if pipes_open {
                fds.push(PollFd::new(self.stdout.as_fd(), PollFlags::POLLIN));
                fds.push(PollFd::new(self.stderr.as_fd(), PollFlags::POLLIN));
            }
            let timeout = match reads_after_end {
                None => PollTimeout::NONE,
                Some(_) => PollTimeout::ZERO,
            };
            match poll(&mut fds, timeout) {
                Err(Errno::EINTR) => continue,
                result => result?,
            };
            let (has_frames, has_ended, has_output) = (
                fds[0].any().unwrap_or(true),
                fds[1].any().unwrap_or(true),
                fds[2..].iter().any(|fd| fd.any().unwrap_or(true)),
            );
            // Output first, so that the log keeps the order of events as far as possible.
            if has_output {
                pipes_open = self.log_output();
            }
            if has_frames && self.read(&mut frames)?.is_err() {
                return Ok(());
            }
            match &mut reads_after_end {
                Some(left) if *left == 0 || !has_frames => return Ok(()),
                Some(left) => *left -= 1,
                // A frame may have arrived between the checks of the two descriptors, so there is one more check.
                None => reads_after_end = has_ended.then_some(MAX_READS_AFTER_END),
            }
        }
    }

    /// Logs the output that is there. Returns whether both pipes are open.
    fn log_output(&mut self) -> bool {
        let mut chunk = [0; 4096];
        let mut open = [true; 2];
        // Bounded, so that endless output does not block the frames.
        for _ in 0..64 {
            let mut quiet = true;
            for (stream, pipe) in [
                &mut self.stdout as &mut dyn Read,
                &mut self.stderr as &mut dyn Read,
            ]
            .into_iter()
            .enumerate()
            {
                match pipe.read(&mut chunk) {
                    Ok(0) => open[stream] = false,
                    Ok(length) => {
                        quiet = false;
                        if stream == 0 {
                            self.printed.fetch_add(length as u64, Ordering::Relaxed);
                        }
                        self.lines.printed(stream, &chunk[..length]);
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => open[stream] = false,
                }
            }
            if quiet {
                break;
            }
        }
        // A closed pipe is always ready, so no pipe is polled after one of them is closed.
        open == [true; 2]
    }

    /// Reads the received part of the connection.
    fn read(&mut self, frames: &mut Vec<u8>) -> io::Result<Result<(), Closed>> {
        let mut chunk = [0; 64 << 10];
        let length = match self.connection.read(&mut chunk) {
            Ok(0) => return Ok(Err(Closed)),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(Ok(())),
            // The process ended before it read all calls.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                return Ok(Err(Closed));
            }
            Err(error) => return Err(error),
        };
        frames.extend_from_slice(&chunk[..length]);
        while let Some(body) = frames::take(frames).map_err(io::Error::other)? {
            if let Some(message) = self.handle(&body).map_err(io::Error::other)?
                && self.messages.send(message).is_err()
            {
                return Ok(Err(Closed));
            }
        }
        Ok(Ok(()))
    }

    /// Handles logs and change signals, and returns a message for the caller.
    fn handle(&mut self, body: &[u8]) -> Result<Option<PluginMessage>, String> {
        let frame = parse(body)?;
        if let (Some(level), Some(text)) = (&frame.log, &frame.text) {
            self.lines.logged(level, text);
        }
        if frame.changed {
            (self.signal)();
        }
        Ok(message(frame))
    }
}

/// Parses the body of a frame.
pub(crate) fn parse(body: &[u8]) -> Result<PluginFrame<'_>, String> {
    let text = str::from_utf8(body).map_err(|_| "a frame that is not UTF-8")?;
    serde_json::from_str(text)
        .map_err(|error| one_line(&format!("a frame that is not understood: {error}")))
}

/// The message of a frame for the caller, if it has one. A frame of a newer plugin may have none.
pub(crate) fn message(frame: PluginFrame<'_>) -> Option<PluginMessage> {
    if let Some(hello) = frame.hello {
        let manifest = hello.manifest.cleaned();
        return Some(PluginMessage::Hello(Box::new(Hello { manifest, ..hello })));
    }
    if let Some(why) = frame.refused {
        return Some(PluginMessage::Refused(why));
    }
    let id = frame.answer?;
    let result = match (frame.error, frame.snapshot) {
        (Some(word), _) => {
            let message = frame
                .message
                .unwrap_or_else(|| format!("the plugin says {word}"));
            Err(frames::failure(&word, message, frame.retry_after_ms))
        }
        (None, None) => Ok(None),
        (None, Some(json)) => snapshot(json.get().as_bytes())
            .map(Some)
            .map_err(|error| Failure::new(FailureKind::BadAnswer, error.to_string())),
    };
    Some(PluginMessage::Answer(id, result))
}
