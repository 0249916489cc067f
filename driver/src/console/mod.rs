//! Writes the output of workers to standard output with a prefix, and to files by rank.
//!
//! A thread writes, so that a stopped terminal, a full pipe or a slow disk delays only the workers' output. A file that
//! cannot be written (a full disk) is reported once. The job and the console continue.

mod files;

use std::{
    io::{self, Write},
    time::SystemTime,
};

use elasticrun_protocol::control::Output;
use tokio::sync::mpsc;

use crate::{
    config::{self, Prefix},
    control::Lines,
    report::Terminal,
};
pub(crate) use files::{Error, Files};

/// Writes the output of workers.
#[derive(Debug)]
pub(crate) struct Console {
    prefix: Prefix,
    files: Option<Files>,
    terminal: Terminal,
}

impl Console {
    /// Creates the directory of the files, if the settings name one.
    ///
    /// # Errors
    /// The directory cannot be created or written.
    pub(crate) fn new(settings: &config::Output, terminal: Terminal) -> Result<Self, Error> {
        let files = settings
            .directory
            .as_deref()
            .map(Files::create)
            .transpose()?;
        Ok(Self {
            prefix: settings.prefix,
            files,
            terminal,
        })
    }

    /// Writes until the channel closes.
    pub(crate) fn run(mut self, mut lines: mpsc::Receiver<Lines>) {
        let mut out = Vec::new();
        while let Some(first) = lines.blocking_recv() {
            out.clear();
            self.write(&first, &mut out);
            while out.len() < 1 << 16
                && let Ok(more) = lines.try_recv()
            {
                self.write(&more, &mut out);
            }
            // If the reader has closed the pipe, the files and the job continue.
            let _ = self.terminal.print(&out);
        }
    }

    fn write(&mut self, lines: &Lines, out: &mut Vec<u8>) {
        if let Some(files) = &mut self.files
            && let Some(warning) = files.append(lines)
        {
            self.terminal.line(&warning);
        }
        for line in lines.output.text.split_inclusive('\n') {
            let _ = self.prefix(&lines.output, out);
            out.extend_from_slice(line.as_bytes());
            if !line.ends_with('\n') {
                out.push(b'\n');
            }
        }
    }

    fn prefix(&self, output: &Output, out: &mut Vec<u8>) -> io::Result<()> {
        if self.prefix == Prefix::None {
            return Ok(());
        }
        if self.prefix == Prefix::TimeAndRank {
            write!(out, "{} ", timestamp(SystemTime::now()))?;
        }
        let stream = if output.stderr { "stderr" } else { "stdout" };
        match output.rank {
            Some(rank) => write!(out, "[{rank}]<{stream}>:"),
            None => write!(out, "[-]<{stream}>:"),
        }
    }
}

/// A time in UTC with milliseconds, as in RFC 3339.
fn timestamp(now: SystemTime) -> String {
    let since = now
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let (seconds, millis) = (since.as_secs(), since.subsec_millis());
    let (year, month, day) = civil(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// The date that is `days` after 1970-01-01. The calculation counts years from March to February.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    (year + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_timestamp_is_rfc_3339() {
        let at = |seconds| timestamp(SystemTime::UNIX_EPOCH + Duration::from_millis(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(at(951_782_400_123), "2000-02-29T00:00:00.123Z");
        assert_eq!(at(1_795_219_199_999), "2026-11-20T23:59:59.999Z");
    }
}
