//! Standard error of the driver: the progress line, the driver's lines and its log. Workers' output shares it.
//!
//! - T1 A thread writes the driver's lines, so that a stopped terminal or a full pipe delays only that thread. The console's
//!   thread writes workers' output. Both hold the lock of [`Device`] while they write to standard error, or to standard
//!   output if that is the same file or terminal.
//! - T2 A line of the driver begins a line. If a worker has left a line open, as with a prompt, the driver ends it.
//! - T3 After [`Terminal::end_log`] no log line is written. So the last line of a job is that of its summary, even if a
//!   plugin still prints.
//!
//! Not promised: log lines beyond [`LOG_LINES`] that wait.

use std::{
    borrow::Cow,
    io::{self, IsTerminal, Write},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    },
    thread,
    time::Duration,
};

use nix::sys::stat::fstat;
use serde_json::json;
use tracing::Level;
use tracing_subscriber::fmt::{
    MakeWriter,
    format::Writer,
    time::{FormatTime, SystemTime},
};

use super::{Event, spinner::Spinner};
use crate::config::LogFormat;

/// Log lines that may wait for standard error.
const LOG_LINES: usize = 4096;

/// A message to the thread.
#[derive(Debug)]
enum Message {
    Line(String),
    Log(Vec<u8>),
    Progress(String),
    Flush(SyncSender<()>),
}

/// Writes lines of the driver to standard error. Cheap to clone.
///
/// On a terminal, a spinner shows the state of the job. It is hidden while a line is written, and while a worker leaves a
/// line open. Otherwise there are only plain lines.
#[derive(Clone, Debug)]
pub(crate) struct Terminal {
    messages: Sender<Message>,
    /// Number of log lines that wait.
    logged: Arc<AtomicUsize>,
    log_ended: Arc<AtomicBool>,
    device: Arc<Mutex<Device>>,
    progress: bool,
    /// Standard output and standard error are one file or terminal.
    one_file: bool,
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
        let device = Arc::new(Mutex::new(Device {
            spinner: Spinner::new(progress),
            is_open: false,
        }));
        let written = Arc::clone(&device);
        thread::Builder::new()
            .name("terminal".into())
            .spawn(move || {
                // This thread waits for the terminal, so it must not delay the threads that send to it.
                elasticrun_agent::use_default_time_slices();
                write(&received, &waiting, &written);
            })?;
        Ok(Self {
            messages,
            logged,
            log_ended: Arc::default(),
            device,
            progress,
            one_file: is_one_file(),
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

    /// Whether standard output and standard error are one file, pipe or terminal.
    pub(crate) fn is_one_file(&self) -> bool {
        self.one_file
    }

    /// Writes output of workers where lines of the driver are written, too. `compose` gets whether the line is still open
    /// that it left open last. It returns whether it leaves one open, and what writes.
    pub(crate) fn write_shared<W: FnOnce()>(&self, compose: impl FnOnce(bool) -> (bool, W)) {
        let mut device = lock(&self.device);
        let (is_open, write) = compose(device.is_open);
        device.spinner.write(is_open, write);
        device.is_open = is_open;
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

/// Standard error, perhaps together with standard output.
#[derive(Debug)]
struct Device {
    spinner: Spinner,
    /// The last line is of a worker and has no end.
    is_open: bool,
}

impl Device {
    /// Writes lines of the driver. A closed standard error is ignored.
    fn write(&mut self, lines: &[u8]) {
        let lines = whole_lines(self.is_open, lines);
        self.is_open = false;
        self.spinner.write(false, || {
            let _ = io::stderr().lock().write_all(&lines);
        });
    }
}

/// The bytes that put these lines behind a line that is open or not.
fn whole_lines(is_open: bool, lines: &[u8]) -> Cow<'_, [u8]> {
    if is_open {
        [b"\n", lines].concat().into()
    } else {
        lines.into()
    }
}

fn lock(device: &Mutex<Device>) -> MutexGuard<'_, Device> {
    device.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the thread.
fn write(messages: &Receiver<Message>, logged: &AtomicUsize, device: &Mutex<Device>) {
    for message in messages {
        match message {
            Message::Line(text) => lock(device).write(format!("{text}\n").as_bytes()),
            Message::Log(bytes) => {
                logged.fetch_sub(1, Ordering::Relaxed);
                lock(device).write(&bytes);
            }
            Message::Progress(text) => lock(device).spinner.set_message(text),
            Message::Flush(done) => {
                lock(device).spinner.remove();
                let _ = done.try_send(());
            }
        }
    }
}

/// Whether standard output and standard error are one file, pipe or terminal. A terminal may have several names.
fn is_one_file() -> bool {
    let (stdout, stderr) = (io::stdout(), io::stderr());
    if stdout.is_terminal() && stderr.is_terminal() {
        return true;
    }
    matches!((fstat(stdout), fstat(stderr)), (Ok(stdout), Ok(stderr))
        if (stdout.st_dev, stdout.st_ino) == (stderr.st_dev, stderr.st_ino))
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
            device: Arc::new(Mutex::new(Device {
                spinner: Spinner::new(false),
                is_open: false,
            })),
            progress: false,
            one_file: false,
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

    #[test]
    fn a_line_of_the_driver_begins_a_line() {
        assert_eq!(whole_lines(false, b"round 1\n")[..], b"round 1\n"[..]);
        assert_eq!(whole_lines(true, b"round 1\n")[..], b"\nround 1\n"[..]);
    }
}
