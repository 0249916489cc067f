//! The terminal, shared by the progress line, the driver's own lines, its log and the workers' output.
//!
//! A thread of its own writes to standard error, so that a terminal that is stopped or a pipe that is not
//! read holds up nobody: what the driver says waits here. Workers' output goes straight to standard output
//! from the console's thread, unless both are terminals: then it is this thread that makes the progress line
//! step aside for it.
//!
//! Not promised: log lines, beyond [`LOG_LINES`] that wait.

use std::{
    io::{self, IsTerminal, Write},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    },
    thread,
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use tracing::Level;
use tracing_subscriber::fmt::{
    MakeWriter,
    format::Writer,
    time::{FormatTime, SystemTime},
};

use super::Event;
use crate::config::LogFormat;

/// Log lines that may wait for a standard error that takes none.
const LOG_LINES: usize = 4096;

/// What the thread is told.
#[derive(Debug)]
enum Word {
    Line(String),
    Log(Vec<u8>),
    Progress(String),
    Print(Vec<u8>, SyncSender<io::Result<()>>),
    Flush(SyncSender<()>),
}

/// Standard error for the driver's words, standard output for the workers'. Cheap to clone.
///
/// On a terminal a spinner shows the state of the job and steps aside for every line; otherwise there are
/// plain lines only.
#[derive(Clone, Debug)]
pub(crate) struct Terminal {
    words: Sender<Word>,
    /// Log lines that wait.
    logged: Arc<AtomicUsize>,
    progress: bool,
    /// What workers print would run into the progress line.
    shared: bool,
    /// Each line is a JSON object.
    json: bool,
}

impl Terminal {
    /// The terminal of this process; `progress` = show the spinner, if standard error is a terminal. With
    /// [`LogFormat::Json`] there is none, and each line is an object (docs/events.md).
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub(crate) fn new(progress: bool, format: LogFormat) -> io::Result<Self> {
        let json = format == LogFormat::Json;
        let progress = progress && !json && io::stderr().is_terminal();
        let (words, told) = channel();
        let logged = Arc::new(AtomicUsize::new(0));
        let waiting = Arc::clone(&logged);
        thread::Builder::new()
            .name("terminal".into())
            .spawn(move || {
                // It waits for people, and those that it writes for are not to wait for it.
                elasticrun_agent::use_default_time_slices();
                write(&told, &waiting, progress);
            })?;
        let shared = progress && io::stdout().is_terminal();
        Ok(Self {
            words,
            logged,
            progress,
            shared,
            json,
        })
    }

    /// Writes a line of the driver.
    pub(crate) fn line(&self, text: &str) {
        if self.json {
            self.event(&Event::message(Level::INFO), Some(text));
        } else {
            self.tell(Word::Line(format!("elasticrun: {text}")));
        }
    }

    /// Whether each line is a JSON object.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Writes an event as one line; `message` is what a person reads.
    pub(crate) fn event(&self, event: &Event, message: Option<&str>) {
        let mut timestamp = String::new();
        let _ = SystemTime.format_time(&mut Writer::new(&mut timestamp));
        let mut line = json!({
            "timestamp": timestamp,
            "level": event.level.as_str(),
            "event": event.name,
            "message": message,
        });
        if let Some(fields) = line.as_object_mut() {
            fields.extend(event.fields.clone());
        }
        self.tell(Word::Line(line.to_string()));
    }

    /// Writes what workers printed; blocks while nobody takes it.
    ///
    /// # Errors
    /// When standard output is closed.
    pub(crate) fn print(&self, bytes: &[u8]) -> io::Result<()> {
        if !self.shared {
            return print(bytes);
        }
        let (done, result) = sync_channel(1);
        self.tell(Word::Print(bytes.to_owned(), done));
        result.recv().unwrap_or(Ok(()))
    }

    /// Whether there is a progress line at all.
    pub(crate) fn shows_progress(&self) -> bool {
        self.progress
    }

    /// Shows the state of the job.
    pub(crate) fn progress(&self, text: &str) {
        if self.progress {
            self.tell(Word::Progress(text.to_owned()));
        }
    }

    /// Takes the progress line away when all is written; gives up after `patience`.
    pub(crate) fn flush(&self, patience: Duration) {
        let (done, flushed) = sync_channel(1);
        self.tell(Word::Flush(done));
        let _ = flushed.recv_timeout(patience);
    }

    fn tell(&self, word: Word) {
        // The thread ends only with the last of its handles.
        let _ = self.words.send(word);
    }
}

/// A log goes the same way as lines.
impl<'a> MakeWriter<'a> for Terminal {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> &'a Self {
        self
    }
}

impl Write for &Terminal {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.logged.fetch_add(1, Ordering::Relaxed) < LOG_LINES {
            self.tell(Word::Log(bytes.to_owned()));
        } else {
            self.logged.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The thread. That standard error is closed is nobody's trouble.
fn write(told: &Receiver<Word>, logged: &AtomicUsize, progress: bool) {
    let spinner = spinner(progress);
    for word in told {
        match word {
            Word::Line(text) => spinner.suspend(|| {
                let _ = writeln!(io::stderr().lock(), "{text}");
            }),
            Word::Log(bytes) => {
                logged.fetch_sub(1, Ordering::Relaxed);
                spinner.suspend(|| {
                    let _ = io::stderr().lock().write_all(&bytes);
                });
            }
            Word::Progress(text) => spinner.set_message(text),
            Word::Print(bytes, done) => {
                let result = spinner.suspend(|| print(&bytes));
                let _ = done.try_send(result);
            }
            Word::Flush(done) => {
                spinner.finish_and_clear();
                let _ = done.try_send(());
            }
        }
    }
}

fn spinner(progress: bool) -> ProgressBar {
    if !progress {
        return ProgressBar::hidden();
    }
    let spinner = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {msg}") {
        spinner.set_style(style);
    }
    spinner.enable_steady_tick(Duration::from_millis(200));
    spinner
}

fn print(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes)?;
    stdout.flush()
}
