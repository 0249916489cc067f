//! The peer: survivors that destroy and recreate their gloo group.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};

/// One survivor.
struct Rank {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

/// All survivors. They are ended when this is dropped.
pub(crate) struct Gloo {
    ranks: Vec<Rank>,
    groups: u32,
}

impl Gloo {
    /// Starts `size` survivors and waits until they have their first group.
    pub(crate) fn start(python: &Path, size: u32) -> anyhow::Result<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("recovery_gloo.py");
        // Free now; the store of rank 0 uses it.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut gloo = Self {
            ranks: Vec::new(),
            groups: 0,
        };
        for rank in 0..size {
            let mut child = Command::new(python)
                .arg(&script)
                .args([rank.to_string(), size.to_string(), port.to_string()])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .with_context(|| python.display().to_string())?;
            let to = child.stdin.take().context("a pipe")?;
            let from = BufReader::new(child.stdout.take().context("a pipe")?);
            gloo.ranks.push(Rank { child, to, from });
        }
        gloo.wait_for("ready")?;
        Ok(gloo)
    }

    /// Makes all survivors recreate the group. Returns the time until the last one has it and has
    /// summed a number.
    pub(crate) fn rebuild(&mut self) -> anyhow::Result<Duration> {
        self.groups += 1;
        let began = Instant::now();
        for rank in &mut self.ranks {
            writeln!(rank.to, "group{}", self.groups)?;
        }
        self.wait_for("ok")?;
        Ok(began.elapsed())
    }

    fn wait_for(&mut self, word: &str) -> anyhow::Result<()> {
        for rank in &mut self.ranks {
            let mut line = String::new();
            rank.from.read_line(&mut line)?;
            ensure!(
                line.starts_with(word),
                "a rank of gloo said {line:?} instead of {word}"
            );
        }
        Ok(())
    }
}

impl Drop for Gloo {
    fn drop(&mut self) {
        for rank in &mut self.ranks {
            let _ = rank.child.kill();
            let _ = rank.child.wait();
        }
    }
}
