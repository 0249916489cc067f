//! Processes that run collectives together on command.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    os::fd::{AsRawFd, OwnedFd},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use elasticrun_collectives::create_region;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use tempfile::TempDir;

/// One process per rank. They are ended when this is dropped.
pub(crate) struct Team {
    members: Vec<Member>,
    _store: Option<TempDir>,
}

/// The cost of one operation.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sample {
    pub(crate) time: Duration,
    pub(crate) processor: Duration,
}

struct Member {
    process: Child,
    stdin: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Team {
    /// Our implementation, all ranks on one host.
    pub(crate) fn shared_memory(ranks: u32) -> Result<Self> {
        let region = create_region(ranks)?;
        // The children inherit it.
        fcntl(&region, FcntlArg::F_SETFD(FdFlag::empty()))?;
        let team = Self::ours(ranks, Some(&region), false);
        fcntl(&region, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
        team
    }

    /// Our implementation, each rank on a host of its own.
    pub(crate) fn tcp(ranks: u32, encrypt: bool) -> Result<Self> {
        Self::ours(ranks, None, encrypt)
    }

    fn ours(ranks: u32, region: Option<&OwnedFd>, encrypt: bool) -> Result<Self> {
        let program = env::current_exe()?;
        let commands = (0..ranks).map(|rank| {
            let mut command = Command::new(&program);
            command.args([
                "rank",
                "--rank",
                &rank.to_string(),
                "--size",
                &ranks.to_string(),
            ]);
            if encrypt {
                command.arg("--encrypt");
            }
            if let Some(region) = region {
                command.args(["--region", &region.as_raw_fd().to_string()]);
            }
            command
        });
        let mut team = Self::start(commands, None)?;
        let addresses = team.answers()?.join(" ");
        team.send(&addresses)?;
        team.answers()?;
        Ok(team)
    }

    /// torch's gloo.
    pub(crate) fn gloo(python: &Path, ranks: u32) -> Result<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("collectives_gloo.py");
        let store = TempDir::new()?;
        let file = store.path().join("store");
        let commands = (0..ranks).map(|rank| {
            let mut command = Command::new(python);
            command
                .arg(&script)
                .args([rank.to_string(), ranks.to_string()]);
            command.arg(&file).env("OMP_NUM_THREADS", "1");
            command
        });
        let mut team = Self::start(commands, Some(store))?;
        let ready = team.answers()?;
        eprintln!("gloo, {ranks} ranks: {}", ready[0]);
        Ok(team)
    }

    fn start(commands: impl Iterator<Item = Command>, store: Option<TempDir>) -> Result<Self> {
        let mut team = Self {
            members: Vec::new(),
            _store: store,
        };
        for mut command in commands {
            let mut process = command
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .with_context(|| format!("{command:?}"))?;
            let stdin = process.stdin.take().context("stdin was piped")?;
            let answers = process.stdout.take().context("stdout was piped")?;
            team.members.push(Member {
                process,
                stdin,
                answers: BufReader::new(answers),
            });
        }
        Ok(team)
    }

    /// The slowest rank's time per operation, and the processor time of all ranks together.
    pub(crate) fn measure(
        &mut self,
        operation: &str,
        bytes: usize,
        iterations: usize,
    ) -> Result<Sample> {
        self.send(&format!("{operation} {bytes} {iterations}"))?;
        let mut sample = Sample::default();
        for answer in self.answers()? {
            let (time, processor) = answer.split_once(' ').context("two numbers")?;
            sample.time = sample.time.max(Duration::from_nanos(time.parse()?));
            sample.processor += Duration::from_nanos(processor.parse()?);
        }
        Ok(sample)
    }

    fn send(&mut self, line: &str) -> Result<()> {
        for member in &mut self.members {
            writeln!(member.stdin, "{line}")?;
        }
        Ok(())
    }

    /// A line from each rank.
    fn answers(&mut self) -> Result<Vec<String>> {
        let read = |member: &mut Member| {
            let mut line = String::new();
            member.answers.read_line(&mut line)?;
            ensure!(!line.is_empty(), "a rank ended early; see above");
            Ok(line.trim_end().to_owned())
        };
        self.members.iter_mut().map(read).collect()
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        // They wait for commands, not for each other.
        for member in &mut self.members {
            let _ = member.process.kill();
            let _ = member.process.wait();
        }
    }
}
