//! The job that is measured: its command, and what it says.

use std::{
    cell::RefCell,
    env,
    ffi::OsStr,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use tempfile::TempDir;

/// A running job. Dropping it ends it.
#[derive(Debug)]
pub struct Job {
    child: RefCell<Child>,
    directory: TempDir,
}

impl Job {
    /// Starts a job with these flags; its workers are the program that calls this, with these variables. The driver's log
    /// goes to a file if one is named.
    ///
    /// # Errors
    /// It cannot be started; a driver that is not built beside this program.
    pub fn start(
        flags: &[String],
        variables: &[(&str, &OsStr)],
        log: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        let own = env::current_exe()?;
        let driver = own.with_file_name("elasticrun");
        ensure!(driver.is_file(), "{} is not built", driver.display());
        let mut command = Command::new(driver);
        command.args(flags);
        if log.is_some() {
            command.args(["--log-level", "trace"]);
        }
        let said: PathBuf = log.map_or_else(|| directory.path().join("stderr"), Into::into);
        let said = File::options().create(true).append(true).open(said)?;
        let child = command
            .arg(own)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(File::create(directory.path().join("stdout"))?)
            .stderr(said)
            .spawn()
            .context("elasticrun cannot be started")?;
        Ok(Self {
            child: child.into(),
            directory,
        })
    }

    /// # Errors
    /// It has ended.
    pub fn check(&self) -> anyhow::Result<()> {
        match self.child.borrow_mut().try_wait()? {
            None => Ok(()),
            Some(status) => bail!("the job ended ({status})\n{}", self.said()),
        }
    }

    /// What driver and workers have said.
    pub fn said(&self) -> String {
        let text = self.text();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    fn text(&self) -> String {
        let read = |name| fs::read_to_string(self.directory.path().join(name)).unwrap_or_default();
        read("stderr") + &read("stdout")
    }

    /// Waits until it has ended well. Gives what its summary says of the rounds that followed a failure:
    /// milliseconds from the first word of it to the start.
    ///
    /// # Errors
    /// It does not end, or not well.
    pub fn end(self) -> anyhow::Result<Vec<f64>> {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(status) = self.child.borrow_mut().try_wait()? {
                ensure!(
                    status.success(),
                    "the job ended ({status})\n{}",
                    self.said()
                );
                return Ok(formed(&self.text()));
            }
            ensure!(
                Instant::now() < deadline,
                "the job does not end\n{}",
                self.said()
            );
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A line of the summary: round, time, `s`, workers, survivors, commit, time, `ms`, cause.
fn formed(text: &str) -> Vec<f64> {
    text.lines()
        .filter(|line| line.contains("worker failed (") && !line.contains("started with"))
        .filter_map(|line| {
            let words: Vec<_> = line
                .trim_start_matches("elasticrun:")
                .split_whitespace()
                .collect();
            let is_summary = words.get(2) == Some(&"s") && words.get(7) == Some(&"ms");
            is_summary.then(|| words[6].parse().ok())?
        })
        .collect()
}

impl Drop for Job {
    fn drop(&mut self) {
        let child = self.child.get_mut();
        // Its agent ends the workers once the driver is gone.
        let _ = child.kill();
        let _ = child.wait();
    }
}
