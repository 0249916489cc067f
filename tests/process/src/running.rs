//! A running job, and the results of an ended one.

use std::{
    fs::{self, File},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, ExitStatus},
    thread,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::{Event, HostsFile, Kind, Log, Tag, driver_command::DriverCommand, send_signal};

/// How long a wait of a test may take. This is many times what a busy machine needs, and less than the default
/// timeouts of a job: those for workers that do not start, come back or reach a boundary are a minute or more.
pub const PATIENCE: Duration = Duration::from_secs(45);

/// How long the kernel and the agents' reaper processes may take for processes that end with the driver. It is
/// shorter than the default orphan timeout of 5 s, so a process that only ends with an orphaned agent fails the
/// test.
const LAST_DEATHS: Duration = Duration::from_secs(4);

/// Interval between two checks of a condition.
const POLL: Duration = Duration::from_millis(4);

/// A running job. If it is dropped before its end, as by a failed test, all its processes are killed.
#[derive(Debug)]
pub struct Running {
    child: Child,
    driver: DriverCommand,
    /// The words of the driver that runs.
    command: String,
    /// The number of drivers that were started.
    started: u32,
    /// Which of them this is.
    number: u32,
    /// Moves to [`Ended`] when the run ends.
    directory: Option<TempDir>,
    tag: Tag,
    log: Log,
    hosts: Option<HostsFile>,
    status: Option<ExitStatus>,
}

impl Running {
    pub(crate) fn new(
        child: Child,
        (driver, arguments): (DriverCommand, Vec<String>),
        directory: TempDir,
        tag: Tag,
        log: Log,
        hosts: Option<HostsFile>,
    ) -> Self {
        Self {
            child,
            command: driver.words(&arguments).join(" "),
            driver,
            started: 1,
            number: 1,
            directory: Some(directory),
            tag,
            log,
            hosts,
            status: None,
        }
    }

    /// The driver's process id.
    pub fn driver(&self) -> u32 {
        self.child.id()
    }

    /// The tag of the run.
    pub fn tag(&self) -> &Tag {
        &self.tag
    }

    /// A path in the directory of the run.
    pub fn path(&self, name: &str) -> PathBuf {
        path_in(self.directory.as_ref(), name)
    }

    /// Changes the answer of discovery.
    ///
    /// # Panics
    /// When the job's hosts do not come from [`crate::Job::discovered`].
    pub fn set_hosts(&self, text: &str) {
        self.hosts
            .as_ref()
            .expect("a job with a discovery script")
            .set(text);
    }

    /// Makes a control file that faults or workers wait for.
    ///
    /// # Panics
    /// When the file cannot be made.
    pub fn touch(&self, name: &str) {
        fs::write(self.path(name), "").expect("a control file can be made");
    }

    /// Makes the workers end their training at a common step.
    pub fn finish(&self) {
        self.touch("finish");
    }

    /// All events so far.
    pub fn events(&mut self) -> &[Event] {
        self.log.events()
    }

    /// Standard error so far of the driver that was started last.
    pub fn said(&self) -> String {
        read(&self.output("stderr"))
    }

    /// The events of this name that the driver has written. The job has `--log-format json`.
    pub fn decisions(&self, name: &str) -> Vec<Value> {
        let said = self.said();
        let records = said
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        records
            .filter(|record: &Value| record["event"] == name)
            .collect()
    }

    /// The driver that a supervisor has started last, if there is one.
    pub fn supervised_driver(&self) -> Option<u32> {
        let pid = self.driver();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        children.ok()?.split_whitespace().next()?.parse().ok()
    }

    /// The path of an output of the driver.
    fn output(&self, stream: &str) -> PathBuf {
        self.output_of(self.number, stream)
    }

    fn output_of(&self, number: u32, stream: &str) -> PathBuf {
        match number {
            1 => self.path(stream),
            number => self.path(&format!("{stream}-{number}")),
        }
    }

    /// Waits until `condition` gives a value.
    ///
    /// # Panics
    /// When it takes too long or the driver ends before; the message is a full report of the run.
    pub fn wait_for<T>(
        &mut self,
        what: &str,
        mut condition: impl FnMut(&[Event]) -> Option<T>,
    ) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let over = self.has_ended();
            if let Some(value) = condition(self.log.events()) {
                return value;
            }
            if over || Instant::now() > deadline {
                let why = if over {
                    "the driver ended"
                } else {
                    "time is over"
                };
                panic!("{why} before: {what}\n{}", self.report());
            }
            thread::sleep(POLL);
        }
    }

    /// Waits until `condition` gives a value of the run itself.
    ///
    /// # Panics
    /// As [`Running::wait_for`].
    pub fn wait_until<T>(&mut self, what: &str, condition: impl Fn(&Self) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let over = self.has_ended();
            if let Some(value) = condition(self) {
                return value;
            }
            let late = Instant::now() > deadline;
            assert!(!over && !late, "not so in time: {what}\n{}", self.report());
            thread::sleep(POLL);
        }
    }

    /// Waits until all workers of a round of this size have committed a step in it that is at least `step`. Gives
    /// these events, by rank. Only the newest round with a step counts.
    ///
    /// # Panics
    /// As [`Running::wait_for`].
    pub fn wait_training(&mut self, size: u32, step: u64) -> Vec<Event> {
        self.wait_for(
            &format!("{size} workers train at step {step} or later"),
            |events| {
                let round = events
                    .iter()
                    .filter(|event| event.kind == Kind::Step)
                    .map(|event| event.round)
                    .max()?;
                let of_round = events
                    .iter()
                    .filter(|e| e.kind == Kind::Step && e.round == round && e.step >= step);
                let mut last: Vec<Event> = Vec::new();
                for event in of_round {
                    last.retain(|other| other.rank != event.rank);
                    last.push(event.clone());
                }
                last.sort_by_key(|event| event.rank);
                (last.len() == size as usize && last[0].size == size).then_some(last)
            },
        )
    }

    /// Waits until `text` is in the standard error of the driver.
    ///
    /// # Panics
    /// As [`Running::wait_for`].
    pub fn wait_said(&mut self, text: &str) {
        let path = self.output("stderr");
        self.wait_for(&format!("the driver says {text:?}"), |_| {
            read(&path).contains(text).then_some(())
        });
    }

    /// Waits until the driver and all processes of the run have ended.
    ///
    /// # Panics
    /// When the driver does not end, or a process is left behind.
    pub fn end(self) -> Ended {
        self.end_within(LAST_DEATHS)
    }

    /// As [`Running::end`], for a run whose last processes have this long to end after their driver.
    ///
    /// # Panics
    /// As [`Running::end`].
    pub fn end_within(mut self, last_deaths: Duration) -> Ended {
        self.wait_end();
        let deadline = Instant::now() + last_deaths;
        while !self.tag.processes().is_empty() {
            let left = self.tag.processes();
            assert!(
                Instant::now() < deadline,
                "left behind: {left:?}\n{}",
                self.report()
            );
            thread::sleep(POLL);
        }
        self.ended()
    }

    /// Waits until the driver has ended.
    ///
    /// # Panics
    /// When it does not end.
    pub fn wait_end(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while !self.has_ended() {
            let late = Instant::now() > deadline;
            assert!(!late, "the driver does not end\n{}", self.report());
            thread::sleep(POLL);
        }
    }

    /// The exit code of a driver that has ended by itself.
    pub fn code(&self) -> Option<i32> {
        self.status.and_then(|status| status.code())
    }

    /// Kills the driver and waits for its end. All other processes stay.
    ///
    /// # Panics
    /// When the driver cannot be waited for.
    pub fn kill_only_driver(&mut self) {
        send_signal(self.driver(), Signal::SIGKILL);
        self.status = Some(self.child.wait().expect("the driver is our child"));
    }

    /// Waits until no process of the run is left, whose driver has been killed.
    ///
    /// # Panics
    /// When it takes too long.
    pub fn wait_all_gone(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while !self.tag.processes().is_empty() {
            assert!(Instant::now() < deadline, "left behind\n{}", self.report());
            thread::sleep(POLL);
        }
    }

    /// Kills all processes of the run at once, as a loss of power would, and waits for their end.
    ///
    /// # Panics
    /// When it takes too long.
    pub fn kill_everything(&mut self) {
        send_signal(self.driver(), Signal::SIGKILL);
        self.tag.kill_all();
        self.status = Some(self.child.wait().expect("the driver is our child"));
        let deadline = Instant::now() + PATIENCE;
        while !self.tag.processes().is_empty() {
            assert!(Instant::now() < deadline, "left behind\n{}", self.report());
            self.tag.kill_all();
            thread::sleep(POLL);
        }
    }

    /// Starts the next driver of the run, as [`Running::start_beside`].
    ///
    /// # Panics
    /// When the last driver still runs, or the next one cannot be started.
    #[must_use]
    pub fn resume(mut self, arguments: &str) -> Self {
        assert!(self.has_ended(), "the last driver still runs");
        let next = self.start_beside(arguments);
        self.continue_with(next)
    }

    /// Starts a driver beside the one that runs, with these arguments (split at white space). It has the environment and the
    /// directory of the first one, and its own output files.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start_beside(&mut self, arguments: &str) -> Beside {
        let arguments: Vec<_> = arguments.split_whitespace().map(str::to_owned).collect();
        self.started += 1;
        let create = |path: PathBuf| File::create(path).expect("an output file can be made");
        let stderr = self.output_of(self.started, "stderr");
        let stdout = create(self.output_of(self.started, "stdout"));
        let child = (self.driver).spawn(&arguments, stdout, create(stderr.clone()));
        Beside {
            child,
            number: self.started,
            command: self.driver.words(&arguments).join(" "),
            stderr,
        }
    }

    /// Goes on with a driver that was started beside the one before.
    ///
    /// # Panics
    /// When the last driver still runs.
    #[must_use]
    pub fn continue_with(mut self, next: Beside) -> Self {
        assert!(self.has_ended(), "the last driver still runs");
        self.number = next.number;
        self.command = next.command;
        self.child = next.child;
        self.status = None;
        self
    }

    /// Kills the driver and waits until no process of the run is left. Gives how long that took.
    ///
    /// # Panics
    /// When it takes too long.
    pub fn kill_driver(mut self) -> Duration {
        send_signal(self.driver(), Signal::SIGKILL);
        let began = Instant::now();
        let _ = self.child.wait();
        while !self.tag.processes().is_empty() {
            assert!(
                began.elapsed() < PATIENCE,
                "left behind: {:?}\n{}",
                self.tag.processes(),
                self.report()
            );
            thread::sleep(POLL);
        }
        began.elapsed()
    }

    fn ended(mut self) -> Ended {
        let status = self.status.expect("it has ended");
        Ended {
            code: status
                .code()
                .unwrap_or_else(|| 1000 + status.signal().unwrap_or(0)),
            stdout: read(&self.output("stdout")),
            stderr: read(&self.output("stderr")),
            events: self.log.events().to_vec(),
            directory: self.directory.take(),
        }
    }

    fn has_ended(&mut self) -> bool {
        if self.status.is_none() {
            self.status = self.child.try_wait().expect("the driver is our child");
        }
        self.status.is_some()
    }

    fn report(&mut self) -> String {
        let status = self
            .status
            .map_or("still runs".to_owned(), |status| status.to_string());
        let (stdout, stderr) = (read(&self.output("stdout")), self.said());
        let left = self.tag.processes();
        let events = self.log.events();
        let tail: Vec<_> = events[events.len().saturating_sub(12)..]
            .iter()
            .map(|e| format!("{e:?}"))
            .collect();
        format!(
            "{}\ndriver: {status}\n--- stderr\n{}\n--- stdout\n{}\n--- last of {} events\n{}\n--- processes\n{left:?}",
            self.command,
            end_of(&stderr),
            end_of(&stdout),
            events.len(),
            tail.join("\n")
        )
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.tag.kill_all();
        let _ = self.child.wait();
    }
}

/// A driver that runs beside the one of [`Running`].
#[derive(Debug)]
pub struct Beside {
    child: Child,
    number: u32,
    command: String,
    stderr: PathBuf,
}

impl Beside {
    /// Its standard error so far.
    pub fn said(&self) -> String {
        read(&self.stderr)
    }

    /// Where it will listen, once it has said so: it is a standby driver.
    pub fn standby_address(&self) -> Option<String> {
        let said = self.said();
        let after = said.split(": standby driver at ").nth(1)?;
        after.split([';', ',']).next().map(str::to_owned)
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until `text` is in its standard error.
    ///
    /// # Panics
    /// When it takes too long, or it ends before.
    pub fn wait_said(&mut self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.said().contains(text) {
            let ended = self.child.try_wait().expect("it is our child");
            let over = ended.is_some() || Instant::now() > deadline;
            assert!(
                !over || self.said().contains(text),
                "{} has not said {text:?} ({ended:?}):\n{}",
                self.command,
                self.said()
            );
            thread::sleep(POLL);
        }
    }

    /// Waits for its end. Gives its exit code and its standard error.
    ///
    /// # Panics
    /// When it does not end.
    pub fn end(mut self) -> (i32, String) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                let code = status.code();
                let code = code.unwrap_or_else(|| 1000 + status.signal().unwrap_or(0));
                return (code, self.said());
            }
            let late = Instant::now() > deadline;
            assert!(!late, "{} does not end:\n{}", self.command, self.said());
            thread::sleep(POLL);
        }
    }
}

fn path_in(directory: Option<&TempDir>, name: &str) -> PathBuf {
    directory
        .expect("it is there until the run has ended")
        .path()
        .join(name)
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

fn end_of(text: &str) -> &str {
    let mut start = text.len().saturating_sub(6000);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

/// A job that has ended and has left no process behind.
#[derive(Debug)]
pub struct Ended {
    directory: Option<TempDir>,
    /// The exit code; 1000 and the signal if a signal ended the driver.
    pub code: i32,
    /// Standard output of the driver.
    pub stdout: String,
    /// Standard error of the driver.
    pub stderr: String,
    /// All events.
    pub events: Vec<Event>,
}

impl Drop for Ended {
    /// A test that fails after the end of its job shows the job's standard error.
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- stderr of the job\n{}", self.stderr);
        }
    }
}

impl Ended {
    /// A path in the directory of the run, which exists as long as this value.
    ///
    /// # Panics
    /// Never.
    pub fn path(&self, name: &str) -> PathBuf {
        path_in(self.directory.as_ref(), name)
    }

    /// The last line of standard error.
    pub fn last_line(&self) -> &str {
        self.stderr.trim_end().lines().next_back().unwrap_or("")
    }

    /// Checks the exit code, and that the last line of standard error contains all of `last_line`.
    ///
    /// # Panics
    /// When one of them differs.
    #[track_caller]
    pub fn expect(&self, code: i32, last_line: &[&str]) -> &Self {
        assert_eq!(self.code, code, "{}", self.stderr);
        for words in last_line {
            assert!(
                self.last_line().contains(words),
                "{words:?} is not in the last line\n{}",
                self.stderr
            );
        }
        self
    }

    /// Sizes of the rounds that began for a worker, in order.
    pub fn sizes(&self) -> Vec<u32> {
        self.rounds().iter().map(|round| round[0].size).collect()
    }

    /// The beginnings of each round that any worker trained in, by rank.
    pub fn rounds(&self) -> Vec<Vec<Event>> {
        let mut rounds: Vec<Vec<Event>> = Vec::new();
        for event in self.events.iter().filter(|event| event.kind == Kind::Round) {
            match rounds
                .iter_mut()
                .find(|round| round[0].round == event.round)
            {
                Some(round) => round.push(event.clone()),
                None => rounds.push(vec![event.clone()]),
            }
        }
        rounds.sort_by_key(|round| round[0].round);
        for round in &mut rounds {
            round.sort_by_key(|event| event.rank);
        }
        rounds
    }
}
