//! The progress line at the bottom of a terminal.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A spinner with the state of the job. It is hidden while others write, and while they leave a line open: it takes a line
/// of its own.
#[derive(Debug)]
pub(super) struct Spinner {
    shows: bool,
    began: Instant,
    message: String,
    /// `None` while it is hidden.
    bar: Option<ProgressBar>,
}

impl Spinner {
    /// A spinner that shows, or one that never does.
    pub(super) fn new(shows: bool) -> Self {
        let mut spinner = Self {
            shows,
            began: Instant::now(),
            message: String::new(),
            bar: None,
        };
        spinner.show();
        spinner
    }

    /// Shows the state of the job.
    pub(super) fn set_message(&mut self, text: String) {
        if let Some(bar) = &self.bar {
            bar.set_message(text.clone());
        }
        self.message = text;
    }

    /// Calls `write`, which writes to the terminal. `leaves_open`: what it writes has no line end.
    pub(super) fn write(&mut self, leaves_open: bool, write: impl FnOnce()) {
        match &self.bar {
            Some(bar) if !leaves_open => bar.suspend(write),
            _ => {
                self.hide();
                write();
                if !leaves_open {
                    self.show();
                }
            }
        }
    }

    /// Removes the line for good.
    pub(super) fn remove(&mut self) {
        self.hide();
        self.shows = false;
    }

    fn show(&mut self) {
        if !self.shows {
            return;
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {msg}") {
            bar.set_style(style);
        }
        let bar = bar
            .with_elapsed(self.began.elapsed())
            .with_message(self.message.clone());
        bar.enable_steady_tick(Duration::from_millis(200));
        self.bar = Some(bar);
    }

    fn hide(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}
