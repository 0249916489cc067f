//! The measured job: its command and its output.

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
    /// Starts a job with these flags. Its workers run the calling program, with these variables.
    /// The driver's log goes to a file if one is named.
    ///
    /// # Errors
    /// The driver cannot be started, or is not built beside this program.
    pub fn start(
        flags: &[String],
        variables: &[(&str, &OsStr)],
        log: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        let program = env::current_exe()?;
        let driver = program.with_file_name("elasticrun");
        ensure!(driver.is_file(), "{} is not built", driver.display());
        let mut command = Command::new(driver);
        command.args(flags);
        if log.is_some() {
            command.args(["--log-level", "trace"]);
        }
        let output: PathBuf = log.map_or_else(|| directory.path().join("stderr"), Into::into);
        let output = File::options().create(true).append(true).open(output)?;
        let child = command
            .arg(program)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(File::create(directory.path().join("stdout"))?)
            .stderr(output)
            .spawn()
            .context("elasticrun cannot be started")?;
        Ok(Self {
            child: child.into(),
            directory,
        })
    }

    /// Checks that the job still runs.
    ///
    /// # Errors
    /// It has ended.
    pub fn check(&self) -> anyhow::Result<()> {
        match self.child.borrow_mut().try_wait()? {
            None => Ok(()),
            Some(status) => bail!("the job ended ({status})\n{}", self.output_tail()),
        }
    }

    /// The last lines of the output of driver and workers.
    pub fn output_tail(&self) -> String {
        let text = self.text();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    fn text(&self) -> String {
        let read = |name| fs::read_to_string(self.directory.path().join(name)).unwrap_or_default();
        read("stderr") + &read("stdout")
    }

    /// Waits until the job has ended well. Returns the times of the rounds that followed a failure,
    /// from the driver's summary: milliseconds from the first report of the failure to the start.
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
                    self.output_tail()
                );
                return Ok(parse_round_times(&self.text()));
            }
            ensure!(
                Instant::now() < deadline,
                "the job does not end\n{}",
                self.output_tail()
            );
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Parses the summary: round, time, `s`, workers, survivors, commit, time, `ms`, cause.
fn parse_round_times(text: &str) -> Vec<f64> {
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
        // The job's agent ends the workers once the driver is gone.
        let _ = child.kill();
        let _ = child.wait();
    }
}
