//! The output of workers: to standard output and standard error with a prefix, and to files by rank.
//!
//! ```text
//! connection of an agent --+--> queue --> thread of the files --> DIR/rank.NNN
//!                          +--> shown? --> queue --> thread of the screen --> stdout, stderr
//! ```
//! - C1 The run loop never waits for output. A stopped terminal, a full pipe or a slow disk delays only the workers' output.
//! - C2 The files do not wait for the screen. With files, output is not shown while its reader takes nothing for
//!   [`DROP_AFTER`]. One line reports how much. Without files, the workers wait.
//! - C3 At the end of the job all output is written as long as its readers take it ([`drain`]).
//! - C4 A file that cannot be written (a full disk) is reported once. The job and the screen continue.

mod drain;
mod files;
mod filtered;
mod layout;
mod queue;
mod screen;
mod shown;
mod timestamp;

use std::{
    convert::Infallible,
    io,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};
use tokio_util::task::TaskTracker;

use self::{
    drain::{Drain, Step, View},
    files::Files,
    queue::{Sender, queue},
    screen::Screen,
    shown::Shown,
};
use crate::{config, report::Terminal, signals::Signals};
pub(crate) use queue::Piece;

/// How long the reader of standard output may take nothing before output that files have is not shown.
const DROP_AFTER: Duration = Duration::from_secs(10);

/// The output of workers cannot be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The directory of the files cannot be used.
    #[error("--output-filename {}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The system refuses a thread.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}

/// Takes the output of workers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Console {
    terminal: Terminal,
    files: Option<Sender>,
    screen: Sender,
    shown: Shown,
    given_up: Arc<AtomicBool>,
    /// When bytes last came from an agent.
    received: Arc<Mutex<Instant>>,
    /// Pieces that wait for room in a queue.
    blocked: Arc<AtomicUsize>,
}

/// The threads of the console.
#[derive(Debug)]
pub(crate) struct Threads(mpsc::Receiver<Infallible>);

impl Threads {
    /// Waits until both have written all pieces. Cancel-safe.
    async fn finished(&mut self) {
        // Each thread holds a sender and sends nothing.
        let _ = self.0.recv().await;
    }
}

impl Console {
    /// Creates the directory of the files, if the settings name one, and starts the threads.
    ///
    /// # Errors
    /// The directory cannot be created or written, or the system refuses a thread.
    pub(crate) fn start(
        settings: &config::Output,
        terminal: Terminal,
    ) -> Result<(Self, Threads), Error> {
        let (running, finished) = mpsc::channel(1);
        let mut files = None;
        if let Some(path) = &settings.directory {
            let source = Files::create(path).and_then(|files| files.with_filters(settings));
            let source = source.map_err(|source| Error::Directory {
                path: path.clone(),
                source,
            })?;
            let (sender, receiver) = queue(None);
            let (terminal, running) = (terminal.clone(), running.clone());
            spawn("files", move || {
                source.run(receiver, &terminal);
                drop(running);
            })?;
            files = Some(sender);
        }
        let (screen, receiver) = queue(files.is_some().then_some(DROP_AFTER));
        let thread = Screen::new(&settings.prefix, terminal.clone());
        let given_up = Arc::clone(&thread.given_up);
        spawn("screen", move || {
            thread.run(receiver);
            drop(running);
        })?;
        let console = Self {
            terminal,
            files,
            screen,
            shown: Shown::new(settings),
            given_up,
            received: Arc::new(Mutex::new(Instant::now())),
            blocked: Arc::default(),
        };
        Ok((console, Threads(finished)))
    }

    /// Takes a piece. Waits while a queue is full. Not cancel-safe: the files may have the piece, and the screen not.
    pub(crate) async fn write(&self, piece: Piece) {
        *self.received.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        let output = &piece.output;
        if output.dropped > 0 {
            self.terminal.line(&format!(
                "{} bytes of {} of {} on {} are lost: the driver did not take them in time",
                output.dropped,
                if output.stderr { "stderr" } else { "stdout" },
                output.process,
                piece.host,
            ));
        }
        if output.as_bytes().is_empty() {
            return;
        }
        let piece = Arc::new(piece);
        let _blocked = Blocked::new(&self.blocked);
        if let Some(files) = &self.files {
            files.send(Arc::clone(&piece)).await;
        }
        if self.shown.has(&piece) {
            self.screen.send(piece).await;
        }
    }

    /// Makes room for all output that agents still have, so that they end at once.
    pub(crate) fn job_ended(&self) {
        self.queues().for_each(Sender::job_ended);
    }

    /// Writes what is left at the end of the job: first what the connections in `connections` still bring, then what
    /// waits. A signal ends it.
    pub(crate) async fn drain(
        self,
        mut threads: Threads,
        connections: &TaskTracker,
        signals: &mut Signals,
    ) {
        let (mut connected, mut drain) = (true, Drain::new(Instant::now()));
        let written = loop {
            let until = match drain.step(Instant::now(), self.view(connected)) {
                Step::Wait(until) => until,
                Step::Announce => {
                    self.announce();
                    continue;
                }
                Step::Disconnect => {
                    connected = false;
                    self.close();
                    continue;
                }
                Step::GiveUp => break false,
            };
            tokio::select! {
                () = connections.wait(), if connected => {
                    connected = false;
                    self.close();
                }
                () = threads.finished(), if !connected => break true,
                _ = signals.stop() => break false,
                () = sleep_until(until) => {}
            }
        };
        // Read before the threads begin to drop what is left.
        let queues = [&self.screen].into_iter().chain(&self.files);
        let left: Vec<u64> = queues.map(|queue| queue.progress().left()).collect();
        if !written {
            self.given_up.store(true, Ordering::Relaxed);
        }
        let names = ["standard output and standard error", "--output-filename"];
        for (left, name) in left.into_iter().zip(names) {
            if left > 0 {
                let line = format!("{left} bytes of output were not written to {name}");
                self.terminal.line(&line);
            }
        }
    }

    /// Says what the end of the job waits for.
    fn announce(&self) {
        let waits_for = match self.screen.progress().left() {
            0 => "the files of --output-filename",
            _ => "the reader of the output",
        };
        self.terminal.line(&format!(
            "waiting for {waits_for}: {:.1} MB left; Ctrl-C drops them",
            self.left() as f64 / 1e6
        ));
    }

    fn view(&self, connected: bool) -> View {
        let received = *self.received.lock().unwrap_or_else(PoisonError::into_inner);
        let written = self.queues().map(|queue| queue.progress().last()).max();
        View {
            connected,
            blocked: self.blocked.load(Ordering::Relaxed) > 0,
            left: self.left(),
            moved: written.map_or(received, |written| written.max(received)),
        }
    }

    /// Bytes that are not written. Those that wait for a file and for the screen count twice.
    fn left(&self) -> u64 {
        self.queues().map(|queue| queue.progress().left()).sum()
    }

    fn close(&self) {
        self.queues().for_each(Sender::close);
    }

    fn queues(&self) -> impl Iterator<Item = &Sender> {
        self.files.iter().chain([&self.screen])
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    let thread = thread::Builder::new().name(name.into());
    thread.spawn(run).map_err(Error::Thread)?;
    Ok(())
}

/// Counts a piece that waits for room.
struct Blocked<'a>(&'a AtomicUsize);

impl<'a> Blocked<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Blocked<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
