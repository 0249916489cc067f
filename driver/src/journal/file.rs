//! An open journal: its files, its lock, and the durable write of entries.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::Path,
};

use redb::Database;

use super::{
    Entries, Error, Files,
    database::{
        FIRST_COMMIT, META, STATE, guard, now_millis, open_database, read_all, run_of, storage,
        write_new,
    },
    lock::Lock,
    seal::Key,
    thread::Dirty,
};

/// An open journal, with its lock.
#[derive(Debug)]
pub(super) struct File {
    files: Files,
    run: String,
    key: Key,
    /// `None` after a failed write. The database is opened again for the next one.
    database: Option<Database>,
    /// The device and the inode of the database.
    identity: (u64, u64),
    made_directory: bool,
    /// How many commits the database has.
    commits: u64,
    lock: Lock,
}

impl File {
    /// Creates the files of a new run. The second value is the run without an outcome whose journal was there.
    ///
    /// # Errors
    /// See [`super::Journal::create`].
    pub(super) fn create(path: &Path, run: &str) -> Result<(Self, Option<String>), Error> {
        let files = Files::beside(path);
        let made = make_directory(path)?;
        let mut created = Self::create_files(&files, run);
        match &mut created {
            Ok((file, _)) => file.made_directory = made,
            Err(_) if made => files.remove_directory(),
            Err(_) => {}
        }
        created
    }

    fn create_files(files: &Files, run: &str) -> Result<(Self, Option<String>), Error> {
        let lock_is_new = !files.lock.exists();
        let lock = Lock::take(&files.lock, run);
        let is_in_use = matches!(lock, Err(Error::Locked { .. }));
        let made_room = lock.and_then(|lock| Ok((make_room(files, &lock)?, lock)));
        if made_room.is_err() && lock_is_new && !is_in_use {
            let _ = fs::remove_file(&files.lock);
        }
        let (replaced, lock) = made_room.map_err(|error| match error {
            // The new run has no driver yet.
            Error::Locked { pid, .. } => Error::InUse {
                path: files.database.clone(),
                pid,
            },
            error => error,
        })?;
        let written = write_new(files, run);
        if written.is_err() {
            files.remove();
        }
        let (key, database) = written?;
        lock.record(FIRST_COMMIT);
        let file = Self {
            identity: identity(&files.database).map_err(Error::io(&files.database))?,
            files: files.clone(),
            run: run.to_owned(),
            key,
            database: Some(database),
            made_directory: false,
            commits: FIRST_COMMIT,
            lock,
        };
        Ok((file, replaced))
    }

    /// Opens the journal of a run, and reads its entries.
    ///
    /// # Errors
    /// See [`super::Journal::read`].
    pub(super) fn open(path: &Path, run: &str) -> Result<(Self, Entries), Error> {
        let files = Files::beside(path);
        if !path.exists() {
            return Err(Error::Unknown {
                run: run.to_owned(),
                path: path.to_owned(),
            });
        }
        let lock = Lock::take(&files.lock, run)?;
        let key = Key::read(&files.database, &files.key)?;
        let database = open_database(&files.database, run)?;
        let (read, commits) = guard(path, || read_all(&database, &files, run, &key))?;
        if commits < lock.commits() {
            return Err(Error::Damaged {
                path: path.to_owned(),
                why: "its newest commits are missing".to_owned(),
            });
        }
        let file = Self {
            identity: identity(path).map_err(Error::io(path))?,
            run: run.to_owned(),
            key,
            database: Some(database),
            made_directory: false,
            files,
            commits,
            lock,
        };
        Ok((file, read))
    }

    /// Closes the journal and removes its files, with the directory that was made for them.
    pub(super) fn discard(self) {
        drop(self.database);
        self.files.remove();
        if self.made_directory {
            self.files.remove_directory();
        }
    }

    /// Writes entries in one durable transaction. With `ended`, marks the run as ended.
    ///
    /// # Errors
    /// The reason, as one line. Nothing is written then, and a later call may succeed.
    pub(super) fn commit(&mut self, entries: &Dirty, ended: bool) -> Result<(), String> {
        let path = &self.files.database;
        if identity(path).ok() != Some(self.identity) {
            return Err(format!("{} is gone", path.display()));
        }
        let database = match self.database.take() {
            Some(database) => database,
            None => open_database(path, &self.run).map_err(|error| error.to_string())?,
        };
        let written = guard(path, || {
            self.write(&database, entries, ended)
                .map_err(|error| storage(path, error))
        });
        match written {
            Ok(()) => {
                self.database = Some(database);
                self.commits += 1;
                self.lock.record(self.commits);
            }
            // The database refuses everything after a failed write.
            Err(_) => drop(database),
        }
        written.map_err(|error| match error {
            Error::Io { source, .. } => format!("{}: {source}", path.display()),
            error => error.to_string(),
        })
    }

    fn write(&self, database: &Database, entries: &Dirty, ended: bool) -> Result<(), redb::Error> {
        let mut transaction = database.begin_write()?;
        // A journal that was not closed opens without a walk through the file.
        transaction.set_quick_repair(true);
        {
            let mut state = transaction.open_table(STATE)?;
            for (entry, value) in entries {
                match value {
                    Some(value) => {
                        let sealed = self.key.seal(&self.run, entry, value)?;
                        state.insert(entry.as_str(), sealed.as_slice())?;
                    }
                    None => {
                        state.remove(entry.as_str())?;
                    }
                }
            }
            let mut meta = transaction.open_table(META)?;
            meta.insert("written", now_millis().to_string().as_str())?;
            meta.insert("commits", (self.commits + 1).to_string().as_str())?;
            meta.insert("software", env!("CARGO_PKG_VERSION"))?;
            if ended {
                meta.insert("ended", "true")?;
            }
        }
        transaction.commit()?;
        Ok(())
    }
}

/// Makes the directory of a journal if it is missing, only for its user. Returns whether it was missing.
fn make_directory(path: &Path) -> Result<bool, Error> {
    let Some(parent) = path.parent().filter(|parent| !parent.exists()) else {
        return Ok(false);
    };
    (fs::DirBuilder::new().recursive(true).mode(0o700))
        .create(parent)
        .map_err(Error::io(parent))?;
    Ok(true)
}

/// Removes the journal at the path of a new one. No driver has it, since this one has its lock. Returns its run if that has no
/// outcome.
///
/// # Errors
/// Something else is there.
fn make_room(files: &Files, lock: &Lock) -> Result<Option<String>, Error> {
    let path = &files.database;
    let of_file = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        of_file => of_file.map_err(Error::io(path))?,
    };
    // A driver that was killed at its start leaves an empty file.
    let found = match of_file.is_file() && of_file.len() == 0 {
        true => None,
        false => Some(run_of(path).map_err(|error| match error {
            Error::Damaged { path, why } => Error::Occupied { path, why },
            error => error,
        })?),
    };
    // Durable before the new database is there, which has fewer commits.
    lock.reset().map_err(Error::io(&files.lock))?;
    fs::remove_file(path).map_err(Error::io(path))?;
    Ok(found.and_then(|(run, ended)| (!ended).then_some(run)))
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let of_file = fs::metadata(path)?;
    Ok((of_file.dev(), of_file.ino()))
}
