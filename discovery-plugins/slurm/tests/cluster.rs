//! The plugin in a job of a real Slurm cluster of three nodes, all on this machine.

#![allow(clippy::unwrap_used)]

use std::{
    io::{BufRead, BufReader},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use elasticrun_plugin_sdk::{ErrorKind, Host, HostState, Plugin, from_options};
use elasticrun_plugin_slurm::Slurm;
use elasticrun_process_tests::assert_conforms;
use tempfile::TempDir;

const PLENTY: Duration = Duration::from_secs(20);

/// A cluster that ends with this.
struct Cluster {
    directory: TempDir,
    process: Child,
}

impl Cluster {
    /// A cluster; or why there can be none.
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
        // SAFETY: this file's tests run each in a process of its own, and no other thread is there yet.
        unsafe { std::env::set_var("SLURM_CONF", cluster.path("slurm.conf")) };
        Ok(cluster)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs a command of Slurm; gives what it prints.
    fn run(&self, words: &str) -> String {
        let mut words = words.split_whitespace();
        // Where scontrol may leave what it writes when a job is resized.
        let output = Command::new(words.next().unwrap())
            .args(words)
            .current_dir(self.directory.path())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// A job on all nodes that runs; gives its number. Its environment becomes ours.
    fn job(&self) -> String {
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

fn plugin(options: &str) -> Slurm {
    Slurm::create(from_options(options.as_bytes()).unwrap()).unwrap()
}

fn seen(hosts: &[Host]) -> Vec<(&str, HostState)> {
    hosts
        .iter()
        .map(|host| (host.id.as_str(), host.state))
        .collect()
}

#[test]
fn nodes_of_a_job_are_drained_and_taken_away() {
    use HostState::{Draining, Ready};
    let cluster = match Cluster::start() {
        Ok(cluster) => cluster,
        Err(why) => {
            eprintln!("skipped nodes_of_a_job_are_drained_and_taken_away: {why}");
            return;
        }
    };
    let job = cluster.job();
    let mut plugin = plugin("{}");
    let snapshot = plugin.poll(PLENTY).unwrap();
    assert_eq!(
        seen(&snapshot.hosts),
        [("n1", Ready), ("n2", Ready), ("n3", Ready)]
    );
    assert!(snapshot.hosts.iter().all(|host| host.slots == Some(2)));
    // The library that users get lies beside this program.
    let own = std::env::current_exe().unwrap();
    assert_conforms("slurm", own.parent().unwrap());

    cluster.run("scontrol update NodeName=n3 State=DRAIN Reason=test");
    let snapshot = plugin.poll(PLENTY).unwrap();
    assert_eq!(
        seen(&snapshot.hosts),
        [("n1", Ready), ("n2", Ready), ("n3", Draining)]
    );
    assert_eq!(
        snapshot.hosts[2].reason.as_deref(),
        Some("its node is draining")
    );

    cluster.run(&format!("scontrol update JobId={job} NodeList=n1,n2"));
    let snapshot = plugin.poll(PLENTY).unwrap();
    assert_eq!(seen(&snapshot.hosts), [("n1", Ready), ("n2", Ready)]);
    assert!(snapshot.hosts.iter().all(|host| host.slots == Some(2)));

    let error = self::plugin(r#"{"job": "99"}"#).poll(PLENTY).unwrap_err();
    assert_eq!(error.kind, ErrorKind::UnknownGroup);
    assert_eq!(error.message, "Slurm knows no job 99, or it has ended");
}
