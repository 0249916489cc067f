//! The thread that listens to a plugin's process: its frames, and what it prints.
//!
//! What it prints, on standard output too, is for the driver's log and never for the job's output.

use std::{
    io::{self, Read},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    process::{ChildStderr, ChildStdout},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::Sender,
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
    Failure, FailureKind, Nudge,
    frames::{self, Hello, Said},
    library::snapshot,
};

/// What the caller of a plugin's process waits for.
#[derive(Debug)]
pub(super) enum Heard {
    Hello(Box<Hello>),
    /// It cannot be loaded.
    Refused(String),
    /// A call is over; a snapshot only from a poll.
    Answer(u64, Result<Option<Snapshot>, Failure>),
    /// Nothing more will come: the end of the connection, or something that is no frame.
    Gone {
        broken: Option<String>,
        last_words: Option<String>,
    },
}

/// See the module.
pub(super) struct Ears {
    pub(super) connection: UnixStream,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
    pub(super) lines: Lines,
    pub(super) heard: Sender<Heard>,
    /// Something may have changed; also when the process is gone, which somebody should look at.
    pub(super) nudge: Arc<Nudge>,
    /// Bytes on standard output.
    pub(super) printed: Arc<AtomicU64>,
}

/// Who is gone does not come back.
struct Closed;

impl Ears {
    /// Listens until the connection ends.
    pub(super) fn run(mut self) {
        let broken = self.listen().err().map(|why| why.to_string());
        // Its last words may still be in the pipe.
        self.print();
        let last_words = self.lines.last_words();
        let gone = Heard::Gone { broken, last_words };
        // Nobody listens any more if the plugin was told to end.
        if self.heard.send(gone).is_ok() {
            (self.nudge)();
        }
    }

    fn listen(&mut self) -> io::Result<()> {
        let nonblocking = |fd: BorrowedFd<'_>| -> io::Result<()> {
            let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
            fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
            Ok(())
        };
        nonblocking(self.stdout.as_fd())?;
        nonblocking(self.stderr.as_fd())?;
        let mut frames = Vec::new();
        let mut prints = true;
        loop {
            let mut fds = vec![PollFd::new(self.connection.as_fd(), PollFlags::POLLIN)];
            if prints {
                fds.push(PollFd::new(self.stdout.as_fd(), PollFlags::POLLIN));
                fds.push(PollFd::new(self.stderr.as_fd(), PollFlags::POLLIN));
            }
            match poll(&mut fds, PollTimeout::NONE) {
                Err(Errno::EINTR) => continue,
                result => result?,
            };
            let (speaks, printed) = (
                fds[0].any().unwrap_or(true),
                fds[1..].iter().any(|fd| fd.any().unwrap_or(true)),
            );
            // First what it printed: the log is in the order of what happened, as far as one can tell.
            if printed {
                prints = self.print();
            }
            if speaks && self.read(&mut frames)?.is_err() {
                return Ok(());
            }
        }
    }

    /// Passes on what was printed; says whether more may come.
    fn print(&mut self) -> bool {
        let mut chunk = [0; 4096];
        let mut open = [true; 2];
        // A process that prints without end does not keep us here.
        for _ in 0..64 {
            let mut quiet = true;
            for (place, pipe) in [
                &mut self.stdout as &mut dyn Read,
                &mut self.stderr as &mut dyn Read,
            ]
            .into_iter()
            .enumerate()
            {
                match pipe.read(&mut chunk) {
                    Ok(0) => open[place] = false,
                    Ok(length) => {
                        quiet = false;
                        if place == 0 {
                            self.printed.fetch_add(length as u64, Ordering::Relaxed);
                        }
                        self.lines.printed(place, &chunk[..length]);
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => open[place] = false,
                }
            }
            if quiet {
                break;
            }
        }
        // A closed pipe is always ready, so both are left alone once one of them is closed and silent.
        open == [true; 2]
    }

    /// Reads what is there of the connection.
    fn read(&mut self, frames: &mut Vec<u8>) -> io::Result<Result<(), Closed>> {
        let mut chunk = [0; 64 << 10];
        let length = match self.connection.read(&mut chunk) {
            Ok(0) => return Ok(Err(Closed)),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(Ok(())),
            // It ended with something of ours unread.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                return Ok(Err(Closed));
            }
            Err(error) => return Err(error),
        };
        frames.extend_from_slice(&chunk[..length]);
        while let Some(body) = frames::take(frames).map_err(io::Error::other)? {
            let heard = match str::from_utf8(&body) {
                Ok(text) => self.hear(text).map_err(io::Error::other)?,
                Err(_) => return Err(io::Error::other("a frame that is not UTF-8")),
            };
            if let Some(heard) = heard
                && self.heard.send(heard).is_err()
            {
                return Ok(Err(Closed));
            }
        }
        Ok(Ok(()))
    }

    fn hear(&mut self, body: &str) -> Result<Option<Heard>, String> {
        let said: Said<'_> = serde_json::from_str(body)
            .map_err(|error| format!("a frame that is not understood: {error}"))?;
        if let (Some(level), Some(text)) = (&said.log, &said.text) {
            self.lines.logged(level, text);
        }
        if said.changed {
            (self.nudge)();
        }
        if let Some(hello) = said.hello {
            return Ok(Some(Heard::Hello(Box::new(hello))));
        }
        if let Some(why) = said.refused {
            return Ok(Some(Heard::Refused(why)));
        }
        let Some(id) = said.answer else {
            // Something that a newer plugin says.
            return Ok(None);
        };
        let result = match (said.error, said.snapshot) {
            (Some(word), _) => {
                let message = said
                    .message
                    .unwrap_or_else(|| format!("the plugin says {word}"));
                Err(frames::failure(&word, message, said.retry_after_ms))
            }
            (None, None) => Ok(None),
            (None, Some(json)) => snapshot(json.get().as_bytes())
                .map(Some)
                .map_err(|error| Failure::new(FailureKind::BadAnswer, error.to_string())),
        };
        Ok(Some(Heard::Answer(id, result)))
    }
}
