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
        FIRST_COMMIT, META, STATE, guard, has_ended, now_millis, open_database, read_all, storage,
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
    /// Creates the files of a new run.
    ///
    /// # Errors
    /// A file cannot be created, or there is the journal of a run that has not ended. Nothing is left behind.
    pub(super) fn create(path: &Path, run: &str) -> Result<Self, Error> {
        let files = Files::beside(path);
        let made = make_directory(path)?;
        let mut created = Self::create_files(&files, run);
        match &mut created {
            Ok(file) => file.made_directory = made,
            Err(_) if made => files.remove_directory(),
            Err(_) => {}
        }
        created
    }

    fn create_files(files: &Files, run: &str) -> Result<Self, Error> {
        let lock_is_new = !files.lock.exists();
        let lock = Lock::take(&files.lock, run)?;
        if let Err(error) = make_room(files) {
            if lock_is_new {
                let _ = fs::remove_file(&files.lock);
            }
            return Err(error);
        }
        let written = write_new(files, run);
        if written.is_err() {
            files.remove();
        }
        let (key, database) = written?;
        lock.record(FIRST_COMMIT);
        Ok(Self {
            identity: identity(&files.database).map_err(Error::io(&files.database))?,
            files: files.clone(),
            run: run.to_owned(),
            key,
            database: Some(database),
            made_directory: false,
            commits: FIRST_COMMIT,
            lock,
        })
    }

    /// Opens the journal of a run, and reads its entries.
    ///
    /// # Errors
    /// See [`super::Journal::open`].
    pub(super) fn open(path: &Path, run: &str) -> Result<(Self, Entries), Error> {
        let files = Files::beside(path);
        if !path.exists() {
            return Err(Error::Unknown {
                run: run.to_owned(),
                path: path.to_owned(),
            });
        }
        let lock = Lock::take(&files.lock, run)?;
        let key = Key::read(&files)?;
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

    /// The files of the journal.
    pub(super) fn files(&self) -> &Files {
        &self.files
    }

    /// Whether the directory of the files was made for them.
    pub(super) fn made_directory(&self) -> bool {
        self.made_directory
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
            meta.insert("written", now_millis().as_str())?;
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

/// Removes the journal of an ended run at the path of a new one.
///
/// # Errors
/// A run that has not ended has its journal there, or something else is there.
fn make_room(files: &Files) -> Result<(), Error> {
    let path = &files.database;
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        of_file => of_file.map_err(Error::io(path))?,
    };
    if has_ended(path) != Some(true) {
        return Err(Error::Exists {
            path: path.clone(),
            found: None,
        });
    }
    fs::remove_file(path).map_err(Error::io(path))
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let of_file = fs::metadata(path)?;
    Ok((of_file.dev(), of_file.ino()))
}
