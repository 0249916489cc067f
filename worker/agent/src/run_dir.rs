//! The run directory of one agent: its lock, its socket, and the error files of its workers.
//!
//! The path is `$XDG_RUNTIME_DIR/elasticrun/<hash>` or `/tmp/elasticrun-<uid>/<hash>`, with mode 0700. The hash is of
//! run and host, since the path of a Unix socket must be shorter than 108 bytes. `localhost` and `127.0.0.1` are two
//! hosts, so one machine may have two agents of a run.
//!
//! The holder of the lock (`flock`) is the only agent of this run and host. So a slot has at most one live process,
//! also when agents change (invariant R4). The directory of a killed agent is removed by the next agent of this run and
//! host, or by any driver or agent of this user after [`STALE_AGE`].

use std::{
    env,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Seek, Write},
    os::{
        fd::AsRawFd,
        unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use elasticrun_protocol::HostId;
use tokio::{sync::oneshot, time::timeout};
use xxhash_rust::xxh3::xxh3_128;

use crate::Error;

/// The longest root directory in which a socket's path still fits.
const MAX_DIR_LEN: usize = 60;

/// The age at which any agent removes the directory of a killed agent.
const STALE_AGE: Duration = Duration::from_secs(600);

/// How long to wait for the lock beyond the orphan timeout of its holder.
const EXTRA_WAIT: Duration = Duration::from_secs(5);

/// A run directory whose lock we hold. Dropping it removes the directory and releases the lock.
#[derive(Debug)]
pub(crate) struct RunDir {
    path: PathBuf,
    lock: File,
    is_fresh: bool,
}

/// The root of the run directories of all agents of this user. It also holds the sockets of drivers.
///
/// # Errors
/// The directory cannot be made, or other users have access to it.
pub fn root() -> Result<PathBuf, Error> {
    // SAFETY: geteuid has no arguments and cannot fail.
    let user = unsafe { libc::geteuid() };
    let runtime = env::var_os("XDG_RUNTIME_DIR").map(|dir| PathBuf::from(dir).join("elasticrun"));
    let usable = runtime.filter(|dir| dir.is_absolute() && dir.as_os_str().len() <= MAX_DIR_LEN);
    if let Some(dir) = usable
        && make(&dir, user).is_ok()
    {
        return Ok(dir);
    }
    let dir = PathBuf::from(format!("/tmp/elasticrun-{user}"));
    make(&dir, user)?;
    Ok(dir)
}

/// Makes a directory that only we can access, or checks that it is one. Returns whether it is new.
fn make(dir: &Path, user: u32) -> Result<bool, Error> {
    let fail = |why: String| Error::RunDirectory {
        path: dir.to_owned(),
        why,
    };
    let is_new = match DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => true,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
        Err(error) => return Err(fail(error.to_string())),
    };
    // Do not follow a link, which another user may have made.
    let found = fs::symlink_metadata(dir).map_err(|error| fail(error.to_string()))?;
    if !found.is_dir() {
        return Err(fail("it is no directory".into()));
    }
    if found.uid() != user {
        return Err(fail(format!("it belongs to user {}", found.uid())));
    }
    if found.mode() & 0o077 != 0 {
        return Err(fail(format!(
            "others may use it (mode {:o})",
            found.mode() & 0o777
        )));
    }
    Ok(is_new)
}

/// Removes the directories of agents of this user that were killed some time ago.
pub fn remove_stale_runs() {
    if let Ok(root) = root() {
        remove_stale(&root);
    }
}

/// Removes directories of agents that were killed at least [`STALE_AGE`] ago.
pub(crate) fn remove_stale(root: &Path) {
    let Ok(all) = fs::read_dir(root) else { return };
    for entry in all.flatten() {
        let path = entry.path();
        let written = fs::metadata(path.join("lock")).and_then(|lock| lock.modified());
        let age = written.ok().and_then(|time| time.elapsed().ok());
        if age.is_some_and(|age| age > STALE_AGE)
            && let Ok(Some(stale)) = RunDir::open(&path, libc::LOCK_EX | libc::LOCK_NB)
        {
            tracing::debug!(path = %path.display(), "removing what a killed agent left");
            drop(stale);
        }
    }
}

fn run_path(root: &Path, run_id: &str, host: &HostId) -> PathBuf {
    let hash = xxh3_128(format!("{run_id}\0{host}").as_bytes()) as u64;
    root.join(format!("{hash:016x}"))
}

impl RunDir {
    /// Waits for the lock of this run and host. It waits for the orphan timeout of the holder plus [`EXTRA_WAIT`].
    pub(crate) async fn lock(root: &Path, run_id: &str, host: &HostId) -> Result<Self, Error> {
        if let Some(locked) = Self::try_lock(root, run_id, host)? {
            return Ok(locked);
        }
        let path = run_path(root, run_id, host);
        let holder = Holder::read(&path.join("lock"));
        let max_wait = holder.orphan_timeout + EXTRA_WAIT;
        tracing::info!(pid = holder.pid, patience = ?max_wait, "another agent holds the lock of this host");
        let (send, locked) = oneshot::channel();
        let waited = path.clone();
        // `flock` blocks, so it needs a thread. After a timeout the agent ends, and the thread with it.
        thread::Builder::new()
            .name("lock".into())
            .spawn(move || {
                let _ = send.send(Self::wait_for_lock(&waited));
            })
            .map_err(Error::system("start a thread"))?;
        match timeout(max_wait, locked).await {
            Ok(Ok(result)) => result,
            _ => Err(Error::Locked {
                pid: holder.pid,
                host: host.clone(),
                run_id: run_id.to_owned(),
                waited: max_wait,
            }),
        }
    }

    /// Takes the lock if it is free.
    pub(crate) fn try_lock(
        root: &Path,
        run_id: &str,
        host: &HostId,
    ) -> Result<Option<Self>, Error> {
        let path = run_path(root, run_id, host);
        Self::open(&path, libc::LOCK_EX | libc::LOCK_NB)
    }

    fn wait_for_lock(path: &Path) -> Result<Self, Error> {
        loop {
            if let Some(locked) = Self::open(path, libc::LOCK_EX)? {
                return Ok(locked);
            }
        }
    }

    fn open(path: &Path, operation: libc::c_int) -> Result<Option<Self>, Error> {
        let fail = |error: io::Error| Error::RunDirectory {
            path: path.to_owned(),
            why: error.to_string(),
        };
        loop {
            // SAFETY: geteuid has no arguments and cannot fail.
            let is_fresh = make(path, unsafe { libc::geteuid() })?;
            let name = path.join("lock");
            let opened = OpenOptions::new()
                .create(true)
                .truncate(false)
                .read(true)
                .write(true)
                .mode(0o600)
                .open(&name);
            let lock = match opened {
                // The holder has just removed the directory.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                other => other.map_err(fail)?,
            };
            if !flock(&lock, operation).map_err(fail)? {
                return Ok(None);
            }
            // The holder may have removed the file between our open and our lock. Then the lock is void.
            let ours = lock.metadata().map_err(fail)?.ino();
            if fs::metadata(&name).is_ok_and(|found| found.ino() == ours) {
                let path = path.to_owned();
                return Ok(Some(Self {
                    path,
                    lock,
                    is_fresh,
                }));
            }
        }
    }

    /// Writes into the lock file how long another agent should wait for the lock.
    pub(crate) fn announce(&mut self, orphan_timeout: Duration) -> io::Result<()> {
        let text = format!("{} {}\n", std::process::id(), orphan_timeout.as_millis());
        self.lock.set_len(0)?;
        self.lock.rewind()?;
        self.lock.write_all(text.as_bytes())
    }

    /// Whether the directory is new: no killed agent of this run and host has left one.
    pub(crate) fn is_fresh(&self) -> bool {
        self.is_fresh
    }

    /// The directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The path of the socket for workers.
    pub(crate) fn socket(&self) -> PathBuf {
        self.path.join("agent")
    }

    /// The path of the error file of one worker.
    pub(crate) fn error_file(&self, process: elasticrun_protocol::Process) -> PathBuf {
        let (slot, start) = (process.local_rank, process.generation);
        self.path.join(format!("error-{slot}-{start}.json"))
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        // The lock is still held. It is released when the field is dropped.
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::debug!(%error, path = %self.path.display(), "a directory stays behind");
        }
    }
}

fn flock(file: &File, operation: libc::c_int) -> io::Result<bool> {
    loop {
        // SAFETY: an open descriptor and an integer.
        if unsafe { libc::flock(file.as_raw_fd(), operation) } == 0 {
            return Ok(true);
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::WouldBlock => return Ok(false),
            io::ErrorKind::Interrupted => {}
            _ => return Err(error),
        }
    }
}

/// The content of a lock file, written by its holder.
#[derive(Debug, PartialEq, Eq)]
struct Holder {
    pid: String,
    orphan_timeout: Duration,
}

impl Holder {
    fn read(lock: &Path) -> Self {
        let mut text = String::new();
        let read = File::open(lock).and_then(|file| file.take(100).read_to_string(&mut text));
        let mut words = text.split_whitespace();
        let pid = words.next().filter(|_| read.is_ok());
        let millis = words.next().and_then(|word| word.parse().ok());
        Self {
            pid: pid.unwrap_or("unknown").to_owned(),
            orphan_timeout: Duration::from_millis(millis.unwrap_or(0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    async fn lock(root: &Path, run: &str, host: &str) -> Result<RunDir, Error> {
        RunDir::lock(root, run, &HostId::new(host)).await
    }

    #[tokio::test]
    async fn runs_and_hosts_have_locks_of_their_own() {
        let root = tempfile::tempdir().unwrap();
        let one = lock(root.path(), "r", "localhost").await.unwrap();
        let two = lock(root.path(), "r", "127.0.0.1").await.unwrap();
        let three = lock(root.path(), "s", "localhost").await.unwrap();
        let sockets = [one.socket(), two.socket(), three.socket()];
        assert!(sockets.iter().all(|path| path.as_os_str().len() < 108));
        assert!(one.is_fresh() && two.is_fresh() && three.is_fresh());
        drop((one, two, three));
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn what_killed_agents_left_is_found_and_removed() {
        let root = tempfile::tempdir().unwrap();
        let hour = Duration::from_secs(3600);
        for (name, age) in [("old", hour), ("new", Duration::ZERO)] {
            let dir = root.path().join(name);
            DirBuilder::new().mode(0o700).create(&dir).unwrap();
            let lock = File::create(dir.join("lock")).unwrap();
            lock.set_modified(std::time::SystemTime::now() - age)
                .unwrap();
        }
        let held = lock(root.path(), "r", "h").await.unwrap();
        held.lock
            .set_modified(std::time::SystemTime::now() - hour)
            .unwrap();
        remove_stale(root.path());
        assert!(!root.path().join("old").exists());
        assert!(root.path().join("new").exists() && held.path.exists());
        // After a crash the lock is free and the directory remains.
        let copy = held.lock.try_clone().unwrap();
        std::mem::forget(held);
        flock(&copy, libc::LOCK_UN).unwrap();
        assert!(!lock(root.path(), "r", "h").await.unwrap().is_fresh());
    }

    #[tokio::test]
    async fn the_next_one_waits_and_gets_it() {
        let root = tempfile::tempdir().unwrap();
        let mut first = lock(root.path(), "r", "h").await.unwrap();
        first.announce(Duration::from_secs(1)).unwrap();
        let path = root.path().to_owned();
        let second = tokio::spawn(async move { lock(&path, "r", "h").await.map(drop) });
        tokio::task::yield_now().await;
        drop(first);
        second.await.unwrap().unwrap();
    }

    #[test]
    fn what_the_holder_wrote_is_read() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("lock");
        let holder = |pid: &str, millis| Holder {
            pid: pid.into(),
            orphan_timeout: Duration::from_millis(millis),
        };
        assert_eq!(Holder::read(&path), holder("unknown", 0));
        fs::write(&path, "12 5000\n").unwrap();
        assert_eq!(Holder::read(&path), holder("12", 5000));
        fs::write(&path, "").unwrap();
        assert_eq!(Holder::read(&path), holder("unknown", 0));
    }

    #[test]
    fn a_directory_of_others_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("d");
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
        let user = fs::metadata(&dir).unwrap().uid();
        let why = make(&dir, user).unwrap_err().to_string();
        assert!(why.contains("others may use it"), "{why}");
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).unwrap();
        make(&dir, user).unwrap();
        let why = make(&dir, user + 1).unwrap_err().to_string();
        assert!(why.contains("belongs to user"), "{why}");
        std::os::unix::fs::symlink(root.path(), root.path().join("link")).unwrap();
        make(&root.path().join("link"), user).unwrap_err();
    }
}
