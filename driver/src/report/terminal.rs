//! The terminal, shared by the progress line, the driver's lines, its log and the workers' output.
//!
//! A thread writes to standard error, so that a stopped terminal or a full pipe delays only that thread. The console's
//! thread writes workers' output directly to standard output. If both are terminals, this thread writes the output
//! instead, and hides the progress line meanwhile.
//!
//! Invariant: after [`Terminal::end_log`] no log line is written. So the last line of a job is that of its summary, even if a
//! plugin still prints.
//!
//! Not promised: log lines beyond [`LOG_LINES`] that wait.

use std::{
    io::{self, IsTerminal, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
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

/// Log lines that may wait for standard error.
const LOG_LINES: usize = 4096;

/// A message to the thread.
#[derive(Debug)]
enum Message {
    Line(String),
    Log(Vec<u8>),
    Progress(String),
    Print(Vec<u8>, SyncSender<io::Result<()>>),
    Flush(SyncSender<()>),
}

/// Writes lines of the driver to standard error and output of workers to standard output. Cheap to clone.
///
/// On a terminal, a spinner shows the state of the job and is hidden while a line is written. Otherwise there are only
/// plain lines.
#[derive(Clone, Debug)]
pub(crate) struct Terminal {
    messages: Sender<Message>,
    /// Number of log lines that wait.
    logged: Arc<AtomicUsize>,
    log_ended: Arc<AtomicBool>,
    progress: bool,
    /// Output of workers shares the terminal with the progress line.
    shared: bool,
    /// Each line is a JSON object.
    json: bool,
}

impl Terminal {
    /// The terminal of this process. `progress` shows the spinner if standard error is a terminal. With
    /// [`LogFormat::Json`] there is no spinner, and each line is an object (docs/events.md).
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(crate) fn new(progress: bool, format: LogFormat) -> io::Result<Self> {
        let json = format == LogFormat::Json;
        let progress = progress && !json && io::stderr().is_terminal();
        let (messages, received) = channel();
        let logged = Arc::new(AtomicUsize::new(0));
        let waiting = Arc::clone(&logged);
        thread::Builder::new()
            .name("terminal".into())
            .spawn(move || {
                // This thread waits for the terminal, so it must not delay the threads that send to it.
                elasticrun_agent::use_default_time_slices();
                write(&received, &waiting, progress);
            })?;
        let shared = progress && io::stdout().is_terminal();
        Ok(Self {
            messages,
            logged,
            log_ended: Arc::default(),
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
            self.send(Message::Line(format!("elasticrun: {text}")));
        }
    }

    /// Whether each line is a JSON object.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Writes an event as one line. `message` is its text for the user.
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
        self.send(Message::Line(line.to_string()));
    }

    /// Writes output of workers. Blocks until standard output takes it.
    ///
    /// # Errors
    /// Standard output is closed.
    pub(crate) fn print(&self, bytes: &[u8]) -> io::Result<()> {
        if !self.shared {
            return print(bytes);
        }
        let (done, result) = sync_channel(1);
        self.send(Message::Print(bytes.to_owned(), done));
        result.recv().unwrap_or(Ok(()))
    }

    /// Whether there is a progress line.
    pub(crate) fn shows_progress(&self) -> bool {
        self.progress
    }

    /// Shows the state of the job.
    pub(crate) fn progress(&self, text: &str) {
        if self.progress {
            self.send(Message::Progress(text.to_owned()));
        }
    }

    /// Drops all later log lines.
    pub(crate) fn end_log(&self) {
        self.log_ended.store(true, Ordering::Relaxed);
    }

    /// Waits until all lines are written, for at most `limit`, and removes the progress line.
    pub(crate) fn flush(&self, limit: Duration) {
        let (done, flushed) = sync_channel(1);
        self.send(Message::Flush(done));
        let _ = flushed.recv_timeout(limit);
    }

    fn send(&self, message: Message) {
        // The thread ends only after the last handle is dropped.
        let _ = self.messages.send(message);
    }
}

/// Log lines go to the same thread as other lines.
impl<'a> MakeWriter<'a> for Terminal {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> &'a Self {
        self
    }
}

impl Write for &Terminal {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.log_ended.load(Ordering::Relaxed) {
            return Ok(bytes.len());
        }
        if self.logged.fetch_add(1, Ordering::Relaxed) < LOG_LINES {
            self.send(Message::Log(bytes.to_owned()));
        } else {
            self.logged.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs the thread. A closed standard error is ignored.
fn write(messages: &Receiver<Message>, logged: &AtomicUsize, progress: bool) {
    let spinner = spinner(progress);
    for message in messages {
        match message {
            Message::Line(text) => spinner.suspend(|| {
                let _ = writeln!(io::stderr().lock(), "{text}");
            }),
            Message::Log(bytes) => {
                logged.fetch_sub(1, Ordering::Relaxed);
                spinner.suspend(|| {
                    let _ = io::stderr().lock().write_all(&bytes);
                });
            }
            Message::Progress(text) => spinner.set_message(text),
            Message::Print(bytes, done) => {
                let result = spinner.suspend(|| print(&bytes));
                let _ = done.try_send(result);
            }
            Message::Flush(done) => {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_is_behind_all_log_lines() {
        let (messages, received) = channel();
        let terminal = Terminal {
            messages,
            logged: Arc::default(),
            log_ended: Arc::default(),
            progress: false,
            shared: false,
            json: false,
        };
        let log = |text: &str| (&terminal).write_all(text.as_bytes()).unwrap();
        log("before");
        terminal.end_log();
        terminal.line("succeeded");
        log("after");
        let sent: Vec<_> = received.try_iter().collect();
        assert!(
            matches!(&sent[..], [Message::Log(_), Message::Line(line)] if line == "elasticrun: succeeded"),
            "{sent:?}"
        );
    }
}
