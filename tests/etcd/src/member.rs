//! One member of a cluster.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// A member, which runs or not.
#[derive(Debug)]
pub(crate) struct Member {
    name: String,
    pub(crate) client: String,
    peer: String,
    directory: PathBuf,
    process: Option<Child>,
}

impl Member {
    pub(crate) fn new(index: usize, address: &str, port: u16, directory: &Path) -> Self {
        let name = format!("m{index}");
        Self {
            directory: directory.join(&name),
            name,
            client: format!("{address}:{port}"),
            peer: format!("{address}:{}", port + 1),
            process: None,
        }
    }

    /// The member in the list of a cluster.
    pub(crate) fn peer_entry(&self) -> String {
        format!("{}=http://{}", self.name, self.peer)
    }

    /// Starts the member, with what an earlier process of it has left.
    pub(crate) fn start(&mut self, peers: &str, scheme: &str, more: &[String]) -> io::Result<()> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.directory.with_extension("log"))?;
        let client = format!("{scheme}://{}", self.client);
        let peer = format!("http://{}", self.peer);
        let process = Command::new("etcd")
            .args(["--name", &self.name])
            .arg("--data-dir")
            .arg(&self.directory)
            .args([
                "--listen-client-urls",
                &client,
                "--advertise-client-urls",
                &client,
            ])
            .args([
                "--listen-peer-urls",
                &peer,
                "--initial-advertise-peer-urls",
                &peer,
            ])
            .args(["--initial-cluster", peers])
            .args(["--heartbeat-interval", "50", "--election-timeout", "500"])
            .args(more)
            // etcd 3.4 refuses processors that its authors do not test, unless they are named.
            .env(
                "ETCD_UNSUPPORTED_ARCH",
                std::env::consts::ARCH.replace("aarch64", "arm64"),
            )
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        self.process = Some(process);
        Ok(())
    }

    pub(crate) fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let process = self.process.as_ref().expect("the member runs");
        let id = i32::try_from(process.id()).expect("an id of a process");
        kill(Pid::from_raw(id), signal).expect("it is our child");
    }

    /// Kills the member, if it runs, and waits for its end.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// The end of its log, for messages.
    pub(crate) fn log(&self) -> String {
        let log = std::fs::read_to_string(self.directory.with_extension("log"));
        let log = log.unwrap_or_default();
        let lines: Vec<_> = log.lines().rev().take(20).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.kill();
    }
}
