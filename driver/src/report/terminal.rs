//! The terminal, shared by the progress line, the driver's own lines and the workers' output.

use std::{
    io::{self, IsTerminal, Write},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Standard error for the driver's words, standard output for the workers'. Cheap to clone.
///
/// On a terminal a spinner shows the state of the job and steps aside for every line; otherwise there are
/// plain lines only.
#[derive(Clone, Debug)]
pub(crate) struct Terminal {
    spinner: ProgressBar,
}

impl Terminal {
    /// The terminal of this process; `progress` = show the spinner, if standard error is a terminal.
    pub(crate) fn new(progress: bool) -> Self {
        if !progress || !io::stderr().is_terminal() {
            return Self {
                spinner: ProgressBar::hidden(),
            };
        }
        let spinner = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {msg}") {
            spinner.set_style(style);
        }
        spinner.enable_steady_tick(Duration::from_millis(200));
        Self { spinner }
    }

    /// Writes a line of the driver.
    pub(crate) fn line(&self, text: &str) {
        self.spinner.suspend(|| {
            let _ = writeln!(io::stderr().lock(), "elasticrun: {text}");
        });
    }

    /// Writes what workers printed.
    ///
    /// # Errors
    /// When standard output is closed.
    pub(crate) fn print(&self, bytes: &[u8]) -> io::Result<()> {
        self.spinner.suspend(|| {
            let mut stdout = io::stdout().lock();
            stdout.write_all(bytes)?;
            stdout.flush()
        })
    }

    /// Whether there is a progress line at all.
    pub(crate) fn shows_progress(&self) -> bool {
        !self.spinner.is_hidden()
    }

    /// Shows the state of the job.
    pub(crate) fn progress(&self, text: &str) {
        if self.shows_progress() {
            self.spinner.set_message(text.to_owned());
        }
    }

    /// Takes the progress line away.
    pub(crate) fn clear(&self) {
        self.spinner.finish_and_clear();
    }
}
