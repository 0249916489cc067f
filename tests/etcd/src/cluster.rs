//! A cluster of members.

use std::{
    io,
    path::Path,
    process,
    sync::atomic::{AtomicU16, Ordering},
    thread,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{http, member::Member};

/// How long a cluster has to become ready, on the busiest machine.
const READY: Duration = Duration::from_secs(60);

/// How long nothing has been written when a test takes a journal for complete. It has new entries every 20 ms.
const QUIET: Duration = Duration::from_millis(500);

/// There is no etcd here.
#[derive(Debug, thiserror::Error)]
#[error("the program etcd is not installed (Debian: etcd-server)")]
pub struct Unavailable;

/// A cluster of etcd.
#[derive(Debug)]
pub struct Cluster {
    members: Vec<Member>,
    peers: String,
    scheme: &'static str,
    flags: Vec<String>,
    // Dropped last: the members end before.
    directory: TempDir,
}

impl Cluster {
    /// Starts a cluster and waits until it is ready.
    ///
    /// # Errors
    /// If there is no etcd.
    ///
    /// # Panics
    /// If it does not become ready.
    pub fn start(count: usize) -> Result<Self, Unavailable> {
        let cluster = Self::launch(count, "http", |_, _| Vec::new())?;
        cluster.wait_ready();
        Ok(cluster)
    }

    /// Starts one member that serves https with these flags, which get the directory and the address of the
    /// cluster. It may not be ready yet.
    ///
    /// # Errors
    /// If there is no etcd.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start_secure(
        flags: impl FnOnce(&Path, &str) -> Vec<String>,
    ) -> Result<Self, Unavailable> {
        Self::launch(1, "https", flags)
    }

    fn launch(
        count: usize,
        scheme: &'static str,
        flags: impl FnOnce(&Path, &str) -> Vec<String>,
    ) -> Result<Self, Unavailable> {
        // Memory, if there is a file system for it: members wait for the disk at each write.
        let directory = TempDir::new_in("/dev/shm")
            .or_else(|_| TempDir::new())
            .expect("a directory");
        let address = address();
        let members: Vec<_> = (0..count)
            .map(|index| Member::new(index, &address, ports(), directory.path()))
            .collect();
        let peers: Vec<_> = members.iter().map(Member::peer_entry).collect();
        let mut cluster = Self {
            peers: peers.join(","),
            members,
            scheme,
            flags: flags(directory.path(), &address),
            directory,
        };
        for index in 0..count {
            match cluster.try_restart(index) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Unavailable),
                result => result.expect("etcd can be started"),
            }
        }
        Ok(cluster)
    }

    /// The addresses of all members.
    pub fn endpoints(&self) -> Vec<String> {
        self.members
            .iter()
            .map(|member| member.client.clone())
            .collect()
    }

    /// The directory of the cluster, for files of a test.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Kills a member, and waits for its end.
    pub fn kill(&mut self, index: usize) {
        self.members[index].kill();
    }

    /// Starts a member that was killed.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn restart(&mut self, index: usize) {
        self.try_restart(index).expect("etcd can be started");
    }

    fn try_restart(&mut self, index: usize) -> io::Result<()> {
        self.members[index].start(&self.peers, self.scheme, &self.flags)
    }

    /// Stops a member: it is silent, and its connections stay open.
    pub fn stop(&self, index: usize) {
        self.members[index].signal(Signal::SIGSTOP);
    }

    /// Continues a member that was stopped.
    pub fn resume(&self, index: usize) {
        self.members[index].signal(Signal::SIGCONT);
    }

    /// Waits until each running member answers a read that needs a quorum.
    ///
    /// # Panics
    /// If that takes too long.
    pub fn wait_ready(&self) {
        let read = json!({ "key": "AA==" });
        for index in (0..self.members.len()).filter(|index| self.members[*index].is_running()) {
            self.until(|| self.post(index, "kv/range", "", &read).ok());
        }
    }

    /// Waits until nothing has been written for some time: a journal that is written behind is complete.
    ///
    /// # Panics
    /// If that takes too long.
    pub fn wait_quiet(&self) {
        let read = json!({ "key": "AA==" });
        let revision = || {
            let mut members = 0..self.members.len();
            members.find_map(|index| {
                let answer = self.post(index, "kv/range", "", &read).ok()?;
                Some(answer["header"]["revision"].clone())
            })
        };
        let mut last = (revision(), Instant::now());
        self.until(|| {
            let now = revision();
            if now.is_none() || now != last.0 {
                last = (now, Instant::now());
            }
            (last.1.elapsed() > QUIET).then_some(())
        });
    }

    /// The index of the member that leads the others.
    ///
    /// # Panics
    /// If there is none for too long.
    pub fn leader(&self) -> usize {
        let status = |index| self.post(index, "maintenance/status", "", &json!({})).ok();
        self.until(|| {
            let running = (0..self.members.len()).filter(|index| self.members[*index].is_running());
            running.into_iter().find(|index| {
                status(*index).is_some_and(|status| {
                    let leader = &status["leader"];
                    leader.is_string() && *leader == status["header"]["member_id"]
                })
            })
        })
    }

    /// Posts a request to a member. Gives its answer.
    ///
    /// # Errors
    /// If the member does not answer with success.
    pub fn post(&self, index: usize, path: &str, token: &str, body: &Value) -> io::Result<Value> {
        http::post(&self.members[index].client, path, token, body)
    }

    fn until<T>(&self, mut found: impl FnMut() -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(found) = found() {
                return found;
            }
            if start.elapsed() > READY {
                let logs: Vec<_> = self.members.iter().map(Member::log).collect();
                panic!("etcd is not ready:\n{}", logs.join("\n\n"));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The loopback address of this process.
fn address() -> String {
    let id = process::id();
    format!(
        "127.{}.{}.{}",
        64 + (id >> 16 & 63),
        id >> 8 & 255,
        id & 255
    )
}

/// The first of two ports that no other member of this process has.
fn ports() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(10_000);
    NEXT.fetch_add(2, Ordering::Relaxed)
}
