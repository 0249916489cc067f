//! The thread that writes workers' output to the driver's standard output and standard error.

use std::{
    cell::Cell,
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::SystemTime,
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};

use super::{
    layout::Layout,
    queue::{Item, Progress, Receiver},
};
use crate::{config::Prefix, report::Terminal};

/// The largest number of bytes of one write, after which the progress is noted.
const MAX_WRITE: usize = 16 << 10;

/// Pieces are joined up to this number of bytes.
const MAX_BATCH: usize = 64 << 10;

/// What the thread writes to.
#[derive(Debug)]
pub(super) struct Screen {
    pub(super) terminal: Terminal,
    /// The lines of standard output.
    stdout: Layout,
    /// The lines of standard error; those of both streams if they are one file or terminal.
    stderr: Layout,
    /// Standard error has events only.
    json: bool,
    /// Nothing more is written.
    pub(super) given_up: Arc<AtomicBool>,
    /// A write that failed for another reason than a closed stream was reported.
    told: bool,
}

impl Screen {
    pub(super) fn new(prefix: &Prefix, terminal: Terminal) -> Self {
        Self {
            stdout: Layout::new(prefix.clone()),
            stderr: Layout::new(prefix.clone()),
            json: terminal.is_json(),
            terminal,
            given_up: Arc::default(),
            told: false,
        }
    }

    /// Writes all pieces of the queue.
    pub(super) fn run(mut self, mut queue: Receiver) {
        let mut next = queue.next();
        let mut batch = Vec::new();
        while let Some(first) = next.take() {
            let stderr = self.is_for_stderr(&first);
            let mut bytes = first.piece.output.as_bytes().len();
            batch.push(first);
            // The pieces that wait for the same stream.
            while bytes < MAX_BATCH
                && let Some(item) = queue.try_next()
            {
                if self.is_for_stderr(&item) != stderr || item.dropped > 0 {
                    next = Some(item);
                    break;
                }
                bytes += item.piece.output.as_bytes().len();
                batch.push(item);
            }
            if batch[0].dropped > 0 {
                self.terminal.line(&format!(
                    "{} bytes of output are not shown, since the reader of the output took nothing; the files of --output-filename have them",
                    batch[0].dropped
                ));
            }
            if !self.given_up.load(Ordering::Relaxed) {
                self.write(stderr, &batch, &queue.progress);
            }
            for item in batch.drain(..) {
                queue.progress.written(&item.piece);
            }
            if next.is_none() {
                next = queue.next();
            }
        }
        self.end(&queue.progress);
    }

    /// Workers' standard error goes to standard error, unless that is a stream of events.
    fn is_for_stderr(&self, item: &Item) -> bool {
        item.piece.output.stderr && !self.json
    }

    fn write(&mut self, stderr: bool, batch: &[Item], progress: &Progress) {
        let Self {
            terminal,
            stdout: alone,
            stderr: shared,
            given_up,
            told,
            ..
        } = self;
        let given_up: &AtomicBool = given_up;
        let failed = Cell::new(None);
        let compose = |layout: &mut Layout| {
            let (mut out, now) = (Vec::new(), SystemTime::now());
            for item in batch {
                layout.add(&item.piece, now, &mut out);
            }
            out
        };
        if stderr || terminal.is_one_file() {
            terminal.write_shared(|is_open| {
                if !is_open {
                    shared.interrupted();
                }
                let out = compose(shared);
                let failed = &failed;
                let write = move || failed.set(write_all(stderr, &out, progress, given_up).err());
                (shared.is_open(), write)
            });
        } else {
            failed.set(write_all(stderr, &compose(alone), progress, given_up).err());
        }
        if let Some(error) = failed.get()
            && !std::mem::replace(told, true)
        {
            let name = if stderr { "error" } else { "output" };
            terminal.line(&format!(
                "output of workers is lost: standard {name} cannot be written: {}",
                error.desc()
            ));
        }
    }

    /// Ends lines that have no end.
    fn end(&mut self, progress: &Progress) {
        if self.given_up.load(Ordering::Relaxed) {
            return;
        }
        let mut out = Vec::new();
        self.stdout.end(&mut out);
        let _ = write_all(false, &out, progress, &self.given_up);
    }
}

/// Writes to standard output or standard error. What a closed stream cannot take is dropped.
///
/// # Errors
/// The stream cannot be written, and its reader has not closed it. The rest is dropped.
fn write_all(
    stderr: bool,
    bytes: &[u8],
    progress: &Progress,
    given_up: &AtomicBool,
) -> Result<(), Errno> {
    let (stdout, stderr_handle) = (io::stdout(), io::stderr());
    let fd = if stderr {
        stderr_handle.as_fd()
    } else {
        stdout.as_fd()
    };
    let mut rest = bytes;
    while !rest.is_empty() && !given_up.load(Ordering::Relaxed) {
        match nix::unistd::write(fd, &rest[..rest.len().min(MAX_WRITE)]) {
            Ok(count) => {
                rest = &rest[count..];
                progress.advance();
            }
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => wait_writable(fd),
            // Files and the job continue.
            Err(error) => {
                progress.advance();
                return match error {
                    Errno::EPIPE => Ok(()),
                    error => Err(error),
                };
            }
        }
    }
    Ok(())
}

/// Waits for a stream that another program has made non-blocking.
fn wait_writable(fd: BorrowedFd<'_>) {
    // An error, as of an interrupted wait, shows at the next write.
    let _ = poll(
        &mut [PollFd::new(fd, PollFlags::POLLOUT)],
        PollTimeout::NONE,
    );
}
