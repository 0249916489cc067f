//! Where the files of a journal are.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use super::Error;

/// The name of the database in the directory of its run.
pub(super) const NAME: &str = "journal.redb";

/// The files of one journal, side by side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Files {
    /// The database.
    pub(crate) database: PathBuf,
    /// The key of its values.
    pub(crate) key: PathBuf,
    /// The lock, with the process id of the driver that holds it.
    pub(crate) lock: PathBuf,
}

impl Files {
    /// The files of the journal with its database at `path`.
    pub(crate) fn beside(path: &Path) -> Self {
        let with = |end: &str| {
            let mut name = path.as_os_str().to_owned();
            name.push(end);
            PathBuf::from(name)
        };
        Self {
            database: path.to_owned(),
            key: with(".key"),
            lock: with(".lock"),
        }
    }
}

impl Files {
    /// Removes the files.
    pub(super) fn remove(&self) {
        for file in [&self.database, &self.key, &self.lock] {
            // It may not have been created.
            let _ = fs::remove_file(file);
        }
    }

    /// Removes the directory if it is empty.
    pub(super) fn remove_directory(&self) {
        let _ = self.database.parent().map(fs::remove_dir);
    }
}

/// The directory of all journals of `--journal auto`: `$XDG_STATE_HOME/elasticrun`, else `~/.local/state/elasticrun`. `None`
/// if the environment names neither directory.
pub(crate) fn state_directory() -> Option<PathBuf> {
    state_home(env::var_os("XDG_STATE_HOME"), env::var_os("HOME"))
        .map(|home| home.join("elasticrun"))
}

fn state_home(state: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    state
        .and_then(absolute)
        .or_else(|| Some(home.and_then(absolute)?.join(".local/state")))
}

/// The journal of a run with `--journal auto`. `None` if the environment names no directory.
#[must_use]
pub fn in_state_directory(run_id: &str) -> Option<PathBuf> {
    Some(state_directory()?.join(run_id).join(NAME))
}

/// The key that seals all journals of this user in etcd, such as that at `journal`.
///
/// # Errors
/// The environment names no directory.
pub(super) fn key_of_etcd(journal: &Path) -> Result<PathBuf, Error> {
    let directory = state_directory().ok_or_else(|| Error::Etcd {
        path: journal.to_owned(),
        why: "neither XDG_STATE_HOME nor HOME is set to an absolute path, where its key is"
            .to_owned(),
    })?;
    Ok(directory.join("journal-etcd.key"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journals_are_under_the_state_directory_of_the_user() {
        let home = |state: &str, home: &str| state_home(Some(state.into()), Some(home.into()));
        assert_eq!(home("/s", "/h"), Some("/s".into()));
        // A relative path is invalid and is ignored.
        assert_eq!(home("s", "/h"), Some("/h/.local/state".into()));
        assert_eq!(home("", ""), None);
        assert_eq!(
            state_home(None, Some("/h".into())),
            Some("/h/.local/state".into())
        );
        assert_eq!(state_home(None, None), None);
    }

    #[test]
    fn the_files_of_a_journal_are_side_by_side() {
        let files = Files::beside(Path::new("/a/b.redb"));
        assert_eq!(files.key, Path::new("/a/b.redb.key"));
        assert_eq!(files.lock, Path::new("/a/b.redb.lock"));
    }
}
