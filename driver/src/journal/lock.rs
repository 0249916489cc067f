//! The lock of a journal: one driver at a time has it (J1).
//!
//! The lock is on a file of its own. The database has a lock, too, but the driver closes and opens the database after a
//! failed write, and another driver must not take it meanwhile. The file stays when the driver ends: a driver that removed it
//! could remove the lock of the next one.
//!
//! The text of the file is the process id of the driver, and the number of commits that were durable when it was written. A
//! database with fewer commits has lost some, as by a damaged header that makes redb go back to the commit before.

use std::{
    fs::{self, OpenOptions, TryLockError},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
};

use super::Error;

/// The size limit of the text in the file, in bytes.
const MAX_TEXT: usize = 64;

/// A held lock. It is released when this is dropped, or when the process ends.
#[derive(Debug)]
pub(super) struct Lock {
    file: fs::File,
    /// The durable commits, as an earlier driver counted them.
    commits: u64,
}

impl Lock {
    /// Takes the lock of a run, and writes the id of this process into the file.
    ///
    /// # Errors
    /// Another process holds it, or the file cannot be created.
    pub(super) fn take(path: &Path, run: &str) -> Result<Self, Error> {
        let file = (OpenOptions::new().read(true).write(true).create(true))
            .truncate(false)
            .mode(0o600)
            // A lock behind a link would be that of another file.
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)
            .map_err(Error::io(path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::Locked {
                    run: run.to_owned(),
                    pid: read(&file).and_then(|(pid, _)| u32::try_from(pid).ok()),
                });
            }
            Err(TryLockError::Error(source)) => return Err(Error::io(path)(source)),
        }
        let commits = read(&file).map_or(0, |(_, commits)| commits);
        let lock = Self { file, commits };
        lock.record(commits);
        Ok(lock)
    }

    /// The number of durable commits that the file names. A journal that was copied without its lock file has 0.
    pub(super) fn commits(&self) -> u64 {
        self.commits
    }

    /// Durably forgets the commits of an earlier journal.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn reset(&self) -> io::Result<()> {
        self.record(0);
        self.file.sync_data()
    }

    /// Writes the number of commits that are durable now.
    pub(super) fn record(&self, commits: u64) {
        // Of the same length each time, so that a full disk cannot leave half of it. It is only for a later reader: the lock
        // holds without it, and an older number is right, too.
        let text = format!("{:>10} {commits:>20}\n", std::process::id());
        let _ = self.file.write_all_at(text.as_bytes(), 0);
    }
}

/// The process and the number of commits that the file names.
fn read(file: &fs::File) -> Option<(u64, u64)> {
    let mut bytes = [0; MAX_TEXT];
    let length = read_at_start(file, &mut bytes).ok()?;
    let text = std::str::from_utf8(&bytes[..length]).ok()?;
    let mut words = text.split_whitespace().map(str::parse);
    Some((words.next()?.ok()?, words.next()?.ok()?))
}

fn read_at_start(file: &fs::File, bytes: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    loop {
        match file.read_at(&mut bytes[length..], length as u64)? {
            0 => return Ok(length),
            count => length += count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_driver_learns_the_process_of_the_first() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("lock");
        let first = Lock::take(&path, "r").expect("nobody holds it");
        let error = Lock::take(&path, "r").expect_err("it is held");
        let expected = format!("run r has a driver (process {})", std::process::id());
        assert_eq!(error.to_string(), expected);
        drop(first);
        Lock::take(&path, "r").expect("it is free");
    }

    #[test]
    fn a_link_is_not_followed() {
        let directory = tempfile::tempdir().expect("a directory");
        let (link, file) = (directory.path().join("lock"), directory.path().join("file"));
        fs::write(&file, "of a person").expect("ours");
        std::os::unix::fs::symlink(&file, &link).expect("ours");
        Lock::take(&link, "r").expect_err("a link");
        assert_eq!(fs::read(&file).expect("untouched"), b"of a person");
    }

    #[test]
    fn the_number_of_commits_outlives_the_driver() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("lock");
        let lock = Lock::take(&path, "r").expect("free");
        assert_eq!(lock.commits(), 0);
        lock.record(u64::MAX);
        lock.record(7);
        drop(lock);
        for _ in 0..2 {
            assert_eq!(Lock::take(&path, "r").expect("free").commits(), 7);
        }
        fs::write(&path, "garbage").expect("ours");
        assert_eq!(Lock::take(&path, "r").expect("free").commits(), 0);
    }
}
