//! The name of a node in its job: that of the machine. Further nodes of the same machine have a number behind it.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use elasticrun_agent::machine_name;
use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
};

/// A name that no other node of the job has, as long as this lives. Its lock file is removed at the end.
#[derive(Debug)]
pub(super) struct NodeName {
    name: String,
    /// Files of this node begin with this.
    stem: PathBuf,
    _lock: Flock<File>,
}

impl NodeName {
    /// Takes a name in the job `id`. `directory` is shared by the nodes of one machine.
    ///
    /// # Errors
    /// The lock file cannot be opened, or the machine has no name.
    pub(super) fn take(directory: &Path, id: &str) -> anyhow::Result<Self> {
        let machine = machine_name().context("this machine has no name")?;
        Self::of_machine(directory, id, &machine)
    }

    fn of_machine(directory: &Path, id: &str, machine: &str) -> anyhow::Result<Self> {
        let id: String = id.chars().map(plain).collect();
        for number in 1.. {
            let name = match number {
                1 => machine.to_owned(),
                number => format!("{machine}-{number}"),
            };
            let stem = directory.join(format!("{id}_{name}"));
            let path = stem.with_added_extension("lock");
            let lock = lock(&path).with_context(|| path.display().to_string())?;
            if let Some(_lock) = lock {
                return Ok(Self { name, stem, _lock });
            }
        }
        unreachable!("numbers do not end")
    }

    pub(super) fn as_str(&self) -> &str {
        &self.name
    }

    /// A file of this node.
    pub(super) fn path(&self, extension: &str) -> PathBuf {
        self.stem.with_added_extension(extension)
    }
}

impl Drop for NodeName {
    fn drop(&mut self) {
        // While it is locked: who waits for nothing finds the next number, and who has it open sees that it is gone.
        let _ = fs::remove_file(self.path("lock"));
    }
}

/// Locks a file. `None` if another process has locked it.
fn lock(path: &Path) -> io::Result<Option<Flock<File>>> {
    loop {
        let open = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(path)?;
        match Flock::lock(open, FlockArg::LockExclusiveNonblock) {
            // It may have been removed between the two calls.
            Ok(lock) if lock.metadata()?.nlink() == 0 => {}
            Ok(lock) => return Ok(Some(lock)),
            Err((_, Errno::EWOULDBLOCK)) => return Ok(None),
            Err((_, error)) => return Err(error.into()),
        }
    }
}

/// A character that any file name may have.
fn plain(c: char) -> char {
    match c {
        c if c.is_ascii_alphanumeric() || "._-".contains(c) => c,
        _ => '_',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_one_machine_have_different_names() {
        let directory = tempfile::tempdir().expect("a directory");
        let take = |id: &str| {
            NodeName::of_machine(directory.path(), id, "m").expect("the directory is ours")
        };
        let (first, second, other) = (take("a/b"), take("a/b"), take("c"));
        let names = [&first, &second, &other].map(NodeName::as_str);
        assert_eq!(names, ["m", "m-2", "m"]);
        assert!(first.path("token").ends_with("a_b_m.token"));
        drop(first);
        assert_eq!(take("a/b").as_str(), "m");
        drop((second, other));
        let left = fs::read_dir(directory.path()).expect("it is ours").count();
        assert_eq!(left, 0, "no lock file stays");
    }
}
