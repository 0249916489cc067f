//! A real Slurm cluster of three nodes, all on this machine.

#![allow(dead_code, clippy::unwrap_used)]

use std::{
    io::{BufRead, BufReader},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;

pub(crate) const PLENTY: Duration = Duration::from_secs(20);

/// A cluster, which ends when this is dropped.
pub(crate) struct Cluster {
    directory: TempDir,
    process: Child,
}

impl Cluster {
    /// A cluster. If it is impossible, prints the reason and the skipped test.
    pub(crate) fn start_for(test: &str) -> Option<Self> {
        let cluster = Self::start();
        cluster
            .map_err(|why| eprintln!("skipped {test}: {why}"))
            .ok()
    }

    fn start() -> Result<Self, String> {
        let there = |program: &str| Path::new("/usr/sbin").join(program).exists();
        if !["munged", "slurmctld", "slurmd"].into_iter().all(there) {
            return Err("slurm-wlm is not installed".into());
        }
        let id = Command::new("id").arg("-u").output().unwrap();
        if id.stdout != b"0\n" {
            return Err("only root can start a cluster".into());
        }
        let directory = tempfile::tempdir().unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster.sh");
        let mut process = Command::new(script)
            .arg(directory.path())
            .arg(four_ports().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line, "ready\n");
        let cluster = Self { directory, process };
        // SAFETY: nextest runs each test in its own process, and there is no other thread yet.
        unsafe { std::env::set_var("SLURM_CONF", cluster.path("slurm.conf")) };
        Ok(cluster)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs a Slurm command and returns its output.
    pub(crate) fn run(&self, words: &str) -> String {
        // scontrol writes files there when it resizes a job.
        self.run_in(self.directory.path(), words)
    }

    /// Runs a Slurm command in a directory.
    pub(crate) fn run_in(&self, directory: &Path, words: &str) -> String {
        let mut words = words.split_whitespace();
        let output = Command::new(words.next().unwrap())
            .args(words)
            .current_dir(directory)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// Starts a job on all nodes and returns its id. Its environment becomes that of this process.
    pub(crate) fn job(&self) -> String {
        let environment = self.path("environment");
        let script = self.path("job.sh");
        let text = format!(
            "#!/bin/sh\nenv >{0}.new\nmv {0}.new {0}\nexec sleep 600\n",
            environment.display()
        );
        std::fs::write(&script, text).unwrap();
        let submitted = self.run(&format!(
            "sbatch --parsable --nodes=3 --ntasks-per-node=2 --no-kill --output=/dev/null {}",
            script.display()
        ));
        let started = Instant::now();
        while !environment.exists() {
            assert!(started.elapsed() < PLENTY, "the job does not start");
            std::thread::yield_now();
        }
        for line in std::fs::read_to_string(environment).unwrap().lines() {
            if let Some((name, value)) = line.split_once('=')
                && name.starts_with("SLURM_")
                && name != "SLURM_CONF"
            {
                // SAFETY: as above.
                unsafe { std::env::set_var(name, value) };
            }
        }
        submitted.trim().to_owned()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// Four free ports in a row.
fn four_ports() -> u16 {
    (0..100)
        .find_map(|_| {
            let first = TcpListener::bind("0.0.0.0:0").ok()?;
            let port = first.local_addr().ok()?.port();
            let others: Vec<_> = (1..4)
                .map(|next| TcpListener::bind(("0.0.0.0", port.checked_add(next)?)).ok())
                .collect();
            others.iter().all(Option::is_some).then_some(port)
        })
        .expect("four free ports")
}
