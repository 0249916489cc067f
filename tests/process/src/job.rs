//! A job as a test describes it.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use tempfile::TempDir;

use crate::{DIRECTORY, Fault, HostsFile, Log, Plan, Running, Tag, binaries, hosts::write_script};

/// A job to start. See the crate.
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
    /// When no directory can be made.
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

    /// More flags, each a word of its own.
    #[must_use]
    pub fn flag<const N: usize>(mut self, words: [&str; N]) -> Self {
        self.flags.extend(words.map(str::to_owned));
        self
    }

    /// Hosts from a script that prints `text`, asked every 50 ms. [`Running::set_hosts`] changes it.
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

    /// Hosts from a shell script with this body.
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

    /// What the workers do.
    #[must_use]
    pub fn plan(mut self, change: impl FnOnce(&mut Plan)) -> Self {
        change(&mut self.plan);
        self
    }

    /// What goes wrong in the workers.
    #[must_use]
    pub fn fault(mut self, fault: Fault) -> Self {
        self.plan.faults.push(fault);
        self
    }

    /// Another command than the test worker.
    #[must_use]
    pub fn command<const N: usize>(mut self, words: [&str; N]) -> Self {
        self.command = Some(words.map(str::to_owned).to_vec());
        self
    }

    /// Runs `elasticrun` by this program, as in a network namespace.
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

    /// Where standard output goes, instead of a file of the harness.
    #[must_use]
    pub fn stdout(mut self, file: File) -> Self {
        self.stdout = Some(file);
        self
    }

    /// Where standard error goes, instead of a file of the harness.
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

    /// Starts it.
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
        let mut words = self.before.clone();
        let program = self.program.unwrap_or_else(binaries::elasticrun);
        words.push(program.display().to_string());
        words.extend(self.flags.iter().cloned());
        match &self.command {
            Some(command) => words.extend(command.iter().cloned()),
            None => words.push(binaries::worker().display().to_string()),
        }
        let (name, value) = self.tag.variable();
        let child = Command::new(&words[0])
            .args(&words[1..])
            // Workers on hosts that are not local have them, too.
            .env("ELASTICRUN_ENV", format!("{name};{DIRECTORY}"))
            .env(name, value)
            .env(DIRECTORY, self.directory.path())
            .stdin(Stdio::null())
            .stdout(self.stdout.unwrap_or_else(|| create("stdout")))
            .stderr(self.stderr.unwrap_or_else(|| create("stderr")))
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", words[0]));
        let log = Log::open(&path("events"));
        Running::new(
            child,
            words.join(" "),
            self.directory,
            self.tag,
            log,
            self.hosts,
        )
    }

    /// Starts it and waits for its end.
    ///
    /// # Panics
    /// As [`Running::end`].
    pub fn run(self) -> crate::Ended {
        self.start().end()
    }
}
