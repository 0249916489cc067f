//! The database of a journal: a redb file with two tables.
//!
//! - `meta` is plain text: the versions, the run, the release, the id of the key, the time, the number
//!   of commits, and whether the run has ended.
//! - `state` has the sealed value of each entry.
//!
//! A reader refuses a journal whose `reader` is greater than [`READER`]. New fields of a value have defaults, and an entry of
//! an unknown kind is kept, so neither raises `reader`. A change that an older release must not ignore does. No writer lowers it.

use std::{
    fs::{self, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use redb::{
    Builder, Database, DatabaseError, ReadableDatabase as _, ReadableTable as _, TableDefinition,
};

use super::{Entries, Error, Files, outcome, seal::Key};

/// The format that this release writes.
pub(super) const FORMAT: u32 = 1;

/// The newest `reader` that this release may read.
pub(super) const READER: u32 = 1;

/// The number of the commit that creates a journal.
pub(super) const FIRST_COMMIT: u64 = 1;

/// Memory for pages, in bytes. The journal of some thousand hosts is larger, and is read once.
const CACHE: usize = 1 << 20;

pub(super) const META: TableDefinition<'_, &str, &str> = TableDefinition::new("meta");
pub(super) const STATE: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("state");

/// Whether the journal at this path is marked as that of a run that has ended. `None` if it cannot be read without a change, as after the
/// death of its driver.
#[cfg(test)]
pub(super) fn has_ended(path: &Path) -> Option<bool> {
    let ended = guard(path, || {
        let read = || -> Result<bool, redb::Error> {
            let database = Builder::new().set_cache_size(CACHE).open_read_only(path)?;
            let meta = database.begin_read()?.open_table(META)?;
            Ok(meta.get("ended")?.is_some())
        };
        read().map_err(|error| storage(path, error))
    });
    ended.ok()
}

/// The run of a journal that no driver has, and whether it has an outcome. Repairs the journal of a driver that was killed.
///
/// # Errors
/// It is damaged or no journal, or an older release must not read it.
pub(super) fn run_of(path: &Path) -> Result<(String, bool), Error> {
    let database = open_database(path, "")?;
    guard(path, || {
        let read = || -> Result<_, redb::Error> {
            let transaction = database.begin_read()?;
            let meta = transaction.open_table(META)?;
            let text = |name: &str| -> Result<Option<String>, redb::Error> {
                Ok(meta.get(name)?.map(|value| value.value().to_owned()))
            };
            let state = transaction.open_table(STATE)?;
            let ended = text("ended")?.is_some() || state.get(outcome::KEY)?.is_some();
            Ok((text("reader")?, text("run_id")?, text("software")?, ended))
        };
        let (needs, run, software, ended) = read().map_err(|error| storage(path, error))?;
        check_reader(path, needs.as_deref(), software)?;
        let run = run.ok_or_else(|| damaged(path, "it has no run"))?;
        Ok((run, ended))
    })
}

/// Refuses a journal that this release must not read.
fn check_reader(path: &Path, needs: Option<&str>, software: Option<String>) -> Result<(), Error> {
    let needs = needs.and_then(|reader| reader.parse().ok());
    let needs: u32 = needs.ok_or_else(|| damaged(path, "it has no version"))?;
    if needs > READER {
        return Err(Error::Newer {
            path: path.to_owned(),
            needs,
            reads: READER,
            software: software.unwrap_or_default(),
        });
    }
    Ok(())
}

fn damaged(path: &Path, why: &str) -> Error {
    Error::Damaged {
        path: path.to_owned(),
        why: why.to_owned(),
    }
}

/// Makes the key and the database of a new run.
///
/// # Errors
/// A file cannot be written.
pub(super) fn write_new(files: &Files, run: &str) -> Result<(Key, Database), Error> {
    let path = &files.database;
    let key = Key::create(&files.key).map_err(Error::io(&files.key))?;
    // The mode is right from the first moment. redb begins a database in an empty file.
    (OpenOptions::new().write(true).create_new(true).mode(0o600))
        .open(path)
        .map_err(Error::io(path))?;
    let database = guard(path, || {
        let create = || -> Result<Database, redb::Error> {
            let database = Builder::new().set_cache_size(CACHE).create(path)?;
            let transaction = database.begin_write()?;
            {
                let (format, reader) = (FORMAT.to_string(), READER.to_string());
                let mut meta = transaction.open_table(META)?;
                for (name, value) in [
                    ("format", format.as_str()),
                    ("reader", reader.as_str()),
                    ("software", env!("CARGO_PKG_VERSION")),
                    ("run_id", run),
                    ("key_id", key.id()),
                    ("written", now_millis().to_string().as_str()),
                    ("commits", FIRST_COMMIT.to_string().as_str()),
                ] {
                    meta.insert(name, value)?;
                }
                transaction.open_table(STATE)?;
            }
            transaction.commit()?;
            Ok(database)
        };
        create().map_err(|error| storage(path, error))
    })?;
    // The names of the files are durable, too.
    if let Some(parent) = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        let directory = fs::File::open(parent).and_then(|directory| directory.sync_all());
        directory.map_err(Error::io(parent))?;
    }
    Ok((key, database))
}

/// Opens a database, and checks all its pages.
///
/// # Errors
/// It is damaged, or another process has it.
pub(super) fn open_database(path: &Path, run: &str) -> Result<Database, Error> {
    guard(path, || {
        Builder::new()
            .set_cache_size(CACHE)
            .set_check_integrity_on_open(true)
            .open(path)
            .map_err(|error| match error {
                DatabaseError::DatabaseAlreadyOpen => Error::Locked {
                    run: run.to_owned(),
                    pid: None,
                },
                error => storage(path, error.into()),
            })
    })
}

/// Reads all entries and the number of commits, if the journal is that of this run and this key, and this release may read it.
pub(super) fn read_all(
    database: &Database,
    files: &Files,
    run: &str,
    key: &Key,
) -> Result<(Entries, u64), Error> {
    let path = &files.database;
    let transaction = (database.begin_read()).map_err(|error| storage(path, error.into()))?;
    let meta = (transaction.open_table(META)).map_err(|error| storage(path, error.into()))?;
    let text = |name: &str| -> Result<Option<String>, Error> {
        let value = meta
            .get(name)
            .map_err(|error| storage(path, error.into()))?;
        Ok(value.map(|value| value.value().to_owned()))
    };
    let damaged = |why: &str| damaged(path, why);
    check_reader(path, text("reader")?.as_deref(), text("software")?)?;
    let found = text("run_id")?.ok_or_else(|| damaged("it has no run"))?;
    if found != run {
        return Err(Error::OtherRun {
            path: path.clone(),
            run: run.to_owned(),
            found,
        });
    }
    if text("key_id")?.as_deref() != Some(key.id()) {
        return Err(Error::WrongKey {
            path: path.clone(),
            key: files.key.clone(),
        });
    }
    let commits = text("commits")?.and_then(|commits| commits.parse().ok());
    let commits = commits.ok_or_else(|| damaged("it has no number of commits"))?;
    let state = (transaction.open_table(STATE)).map_err(|error| storage(path, error.into()))?;
    let mut entries = Entries::new();
    for entry in state.iter().map_err(|error| storage(path, error.into()))? {
        let (entry, value) = entry.map_err(|error| storage(path, error.into()))?;
        let (entry, value) = (entry.value(), value.value());
        let value = (key.unseal(run, entry, value))
            .ok_or_else(|| damaged(&format!("the value of {entry:?} has changed")))?;
        entries.insert(entry.to_owned(), value);
    }
    Ok((entries, commits))
}

/// An error of redb, as one of this module.
pub(super) fn storage(path: &Path, error: redb::Error) -> Error {
    let path = path.to_owned();
    match error {
        redb::Error::Io(source) if source.kind() == io::ErrorKind::UnexpectedEof => {
            Error::Damaged {
                path,
                why: "it is shorter than it says".to_owned(),
            }
        }
        redb::Error::Io(source) if source.kind() != io::ErrorKind::InvalidData => {
            Error::Io { path, source }
        }
        error => Error::Damaged {
            path,
            why: one_line(&error.to_string()),
        },
    }
}

fn one_line(text: &str) -> String {
    elasticrun_plugin_sdk::text::one_line(text).to_string()
}

/// Runs an operation of redb. A panic, which its debug builds use for unexpected bytes, is damage as well.
pub(super) fn guard<T>(
    path: &Path,
    operation: impl FnOnce() -> Result<T, Error>,
) -> Result<T, Error> {
    super::quiet::catch(operation).unwrap_or_else(|| {
        Err(Error::Damaged {
            path: path.to_owned(),
            why: "its pages contradict each other".to_owned(),
        })
    })
}

/// Milliseconds since the Unix epoch.
pub(super) fn now_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}
