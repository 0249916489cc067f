//! The builder of a job under test.

use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use crate::{
    DIRECTORY, Fault, HostsFile, Log, Plan, Running, Tag, binaries, driver_command::DriverCommand,
    hosts::write_script,
};

/// Subdirectory of programs that the driver finds before those of the system.
const PROGRAMS: &str = "programs";

/// Subdirectory in which the driver keeps its journal.
pub const STATE: &str = "state";

/// A job to start: its flags, hosts, command and plan.
#[derive(Debug)]
pub struct Job {
    directory: TempDir,
    tag: Tag,
    before: Vec<String>,
    program: Option<PathBuf>,
    flags: Vec<String>,
    command: Option<Vec<String>>,
    plan: Plan,
    hosts: Option<HostsFile>,
    stdout: Option<File>,
    stderr: Option<File>,
}

impl Job {
    /// `elasticrun` with these flags (split at white space) and the test worker as its command.
    ///
    /// # Panics
    /// When the directory of the run cannot be made.
    pub fn new(flags: &str) -> Self {
        Self {
            directory: tempfile::Builder::new()
                .prefix("elasticrun-test.")
                .tempdir()
                .expect("a directory can be made"),
            tag: Tag::new(),
            before: Vec::new(),
            program: None,
            flags: flags.split_whitespace().map(str::to_owned).collect(),
            command: None,
            plan: Plan::default(),
            hosts: None,
            stdout: None,
            stderr: None,
        }
    }

    /// Adds flags, each as one word.
    #[must_use]
    pub fn flag<const N: usize>(mut self, words: [&str; N]) -> Self {
        self.flags.extend(words.map(str::to_owned));
        self
    }

    /// Hosts come from a script that prints `text` and runs every 50 ms. [`Running::set_hosts`] changes the text.
    #[must_use]
    pub fn discovered(mut self, text: &str) -> Self {
        let hosts = HostsFile::create(self.directory.path(), text);
        let script = hosts.script().display().to_string();
        self.hosts = Some(hosts);
        self.flag([
            "--host-discovery-script",
            &script,
            "--discovery-interval",
            "50ms",
        ])
    }

    /// Hosts come from a shell script with this body, which runs every 50 ms.
    #[must_use]
    pub fn script(self, body: &str) -> Self {
        let script = self.directory.path().join("discover.sh");
        write_script(&script, body);
        self.flag([
            "--host-discovery-script",
            &script.display().to_string(),
            "--discovery-interval",
            "50ms",
        ])
    }

    /// Changes the plan of the workers.
    #[must_use]
    pub fn plan(mut self, change: impl FnOnce(&mut Plan)) -> Self {
        change(&mut self.plan);
        self
    }

    /// Adds a fault to the plan of the workers.
    #[must_use]
    pub fn fault(mut self, fault: Fault) -> Self {
        self.plan.faults.push(fault);
        self
    }

    /// Runs this command instead of the test worker.
    #[must_use]
    pub fn command<const N: usize>(mut self, words: [&str; N]) -> Self {
        self.command = Some(words.map(str::to_owned).to_vec());
        self
    }

    /// Starts `elasticrun` through this program, such as `ip netns exec`.
    #[must_use]
    pub fn before<const N: usize>(mut self, words: [&str; N]) -> Self {
        self.before = words.map(str::to_owned).to_vec();
        self
    }

    /// Runs this file instead of the binary of the build.
    #[must_use]
    pub fn program(mut self, path: PathBuf) -> Self {
        self.program = Some(path);
        self
    }

    /// The driver runs a shell script with this body in place of ssh. The script has the environment of the driver.
    #[must_use]
    pub fn ssh(self, body: &str) -> Self {
        let directory = self.directory.path().join(PROGRAMS);
        fs::create_dir_all(&directory).expect("a directory can be made");
        write_script(&directory.join("ssh"), body);
        self
    }

    /// Sends standard output to `file` instead of a file of the harness.
    #[must_use]
    pub fn stdout(mut self, file: File) -> Self {
        self.stdout = Some(file);
        self
    }

    /// Sends standard error to `file` instead of a file of the harness.
    #[must_use]
    pub fn stderr(mut self, file: File) -> Self {
        self.stderr = Some(file);
        self
    }

    /// The directory of the run: event log, control files, outputs.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The tag of the run.
    pub fn tag(&self) -> &Tag {
        &self.tag
    }

    /// Starts the job.
    ///
    /// # Panics
    /// When the driver cannot be started, or the plan has rows and the feature `worker` is off.
    pub fn start(self) -> Running {
        let path = |name: &str| -> PathBuf { self.directory.path().join(name) };
        let plan = serde_json::to_vec(&self.plan).expect("a plan is always JSON");
        fs::write(path("plan.json"), plan).expect("the plan can be written");
        if self.plan.rows > 0 {
            #[cfg(feature = "worker")]
            crate::dataset::write(&path(crate::dataset::NAME), self.plan.rows);
            #[cfg(not(feature = "worker"))]
            panic!("a plan with rows needs the feature `worker`, which writes the data set");
        }
        let create = |name: &str| File::create(path(name)).expect("an output file can be made");
        let program = self.program.unwrap_or_else(binaries::elasticrun);
        let (name, value) = self.tag.variable();
        let mut search = path(PROGRAMS).into_os_string();
        search.push(":");
        search.push(env::var_os("PATH").unwrap_or_default());
        let environment = [
            // Workers on hosts that are not local get both variables, too.
            ("ELASTICRUN_ENV", format!("{name};{DIRECTORY}").into()),
            (name, value.into()),
            (DIRECTORY, self.directory.path().into()),
            ("PATH", search),
            ("XDG_STATE_HOME", path(STATE).into()),
        ];
        let environment = environment.map(|(name, value)| (name.into(), value));
        let driver = DriverCommand::new(
            &self.before,
            program.display().to_string(),
            environment.into(),
        );
        let mut arguments = self.flags.clone();
        match &self.command {
            Some(command) => arguments.extend(command.iter().cloned()),
            None => arguments.push(binaries::worker().display().to_string()),
        }
        let stdout = self.stdout.unwrap_or_else(|| create("stdout"));
        let stderr = self.stderr.unwrap_or_else(|| create("stderr"));
        let child = driver.spawn(&arguments, stdout, stderr);
        let log = Log::open(&path("events"));
        Running::new(
            child,
            (driver, arguments),
            self.directory,
            self.tag,
            log,
            self.hosts,
        )
    }

    /// Starts the job and waits for its end.
    ///
    /// # Panics
    /// As [`Running::end`].
    pub fn run(self) -> crate::Ended {
        self.start().end()
    }
}
