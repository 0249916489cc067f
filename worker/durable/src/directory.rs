//! A directory as a durable store. It may be on a network file system that all hosts share.

use std::{
    fs::{self, DirBuilder, File, Metadata},
    io::{self, ErrorKind, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::SystemTime,
};

use nix::{fcntl::OFlag, unistd::geteuid};

use crate::{
    Error,
    store::{Fill, Store, StoredFile, is_plain_name},
};

/// Bytes after which a write waits for the disk. It bounds the dirty pages that a burst would leave to the system.
const SYNC_STEP: usize = 32 << 20;

/// The suffix of a file that is not published yet.
const UNPUBLISHED: &str = ".tmp";

/// A directory.
#[derive(Debug)]
pub struct Directory {
    root: PathBuf,
}

impl Directory {
    /// A directory, which may not exist yet.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Creates a directory below the root, with durable entries in its parents. Nobody else may look into it: a state is as
    /// confidential as the data and the model.
    fn create(&self, directory: &str) -> io::Result<PathBuf> {
        let mut path = self.root.clone();
        for part in directory.split('/') {
            let parent = path.clone();
            path.push(part);
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => sync_directory(&parent)?,
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Ok(path)
    }

    /// Whether a file or directory was written by this user, or by the owner of the store, and no other user can change it.
    /// A state may have pickled objects, which execute code when they are read.
    fn is_trusted(&self, metadata: &Metadata) -> io::Result<bool> {
        let owner = metadata.uid();
        let is_own = owner == geteuid().as_raw() || owner == fs::metadata(&self.root)?.uid();
        Ok(is_own && metadata.mode() & 0o002 == 0)
    }

    fn open_file(&self, path: &Path) -> io::Result<Option<(File, Metadata)>> {
        // A named pipe would block.
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        let file = (File::options().read(true))
            .custom_flags(flags.bits())
            .open(path)?;
        let metadata = file.metadata()?;
        let is_usable = metadata.is_file() && self.is_trusted(&metadata)?;
        Ok(is_usable.then_some((file, metadata)))
    }
}

impl Store for Directory {
    fn check(&self) -> Result<(), Error> {
        let why = match fs::metadata(&self.root) {
            Ok(metadata) if metadata.is_dir() => return Ok(()),
            Ok(_) => "it is not a directory".to_owned(),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                "it does not exist on this host".to_owned()
            }
            Err(error) => error.to_string(),
        };
        let place = self.root.display().to_string();
        Err(Error::Place { place, why })
    }

    fn check_writable(&self) -> Result<(), Error> {
        self.check()?;
        let created = Unpublished::create(&self.root);
        (created.map(drop)).map_err(Error::store("write", &self.root.display().to_string()))
    }

    fn runs(&self) -> Result<Vec<String>, Error> {
        let failed = Error::store("list", &self.root.display().to_string());
        let runs = || -> io::Result<Vec<(SystemTime, String)>> {
            let mut runs = Vec::new();
            for entry in fs::read_dir(&self.root)? {
                let entry = entry?;
                let Some(name) = entry
                    .file_name()
                    .into_string()
                    .ok()
                    .filter(|n| is_plain_name(n))
                else {
                    continue;
                };
                match entry.metadata() {
                    Ok(metadata) if metadata.is_dir() && self.is_trusted(&metadata)? => {
                        runs.push((metadata.modified()?, name));
                    }
                    Ok(_) => {}
                    // It was removed meanwhile.
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(runs)
        };
        let mut runs = runs().map_err(failed)?;
        runs.sort_unstable_by(|a, b| b.cmp(a));
        Ok(runs.into_iter().map(|(_, name)| name).collect())
    }

    fn list(&self, directory: &str) -> Result<Vec<String>, Error> {
        let path = self.path(directory);
        let failed = || Error::store("list", &path.display().to_string());
        let entries = match fs::read_dir(&path) {
            Err(error) if is_absent(&error) => return Ok(Vec::new()),
            entries => entries.map_err(failed())?,
        };
        let mut names = Vec::new();
        for entry in entries {
            // A name that is not UTF-8 is none of this program.
            if let Ok(name) = entry.map_err(failed())?.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    fn open(&self, name: &str) -> Result<Option<StoredFile>, Error> {
        let path = self.path(name);
        let shown = || path.display().to_string();
        match self.open_file(&path) {
            Ok(Some((file, metadata))) => Ok(Some(StoredFile {
                bytes: Box::new(file),
                len: metadata.len(),
            })),
            Ok(None) => Err(Error::Untrusted { path: shown() }),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(Error::store("read", &shown())(error)),
        }
    }

    fn write(&self, directory: &str, fill: &mut Fill<'_>) -> Result<(), Error> {
        self.check()?;
        let path = self.path(directory);
        let written = self.create(directory).and_then(|path| {
            let mut file = Unpublished::create(&path)?;
            match fill(&mut file)? {
                Some(name) => file.publish(&path.join(name)),
                None => Ok(()),
            }
        });
        // A disk that stays full would get one more of them with each commit. Those with files stay.
        let _ = fs::remove_dir(&path);
        written.map_err(Error::store("write", &path.display().to_string()))
    }

    fn publish(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let path = self.path(name);
        let published = Unpublished::create(path.parent().unwrap_or(&self.root))
            .and_then(|mut file| file.write_all(bytes).and_then(|()| file.publish(&path)));
        published.map_err(Error::store("write", &path.display().to_string()))
    }

    fn remove(&self, name: &str) -> Result<(), Error> {
        let path = self.path(name);
        let removed = or_missing(fs::remove_file(&path)).and_then(|()| sync_parent(&path));
        removed.map_err(Error::store("remove", &path.display().to_string()))
    }

    fn remove_directory(&self, name: &str) -> Result<(), Error> {
        let path = self.path(name);
        or_missing(fs::remove_dir_all(&path))
            .map_err(Error::store("remove", &path.display().to_string()))
    }
}

fn or_missing(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if is_absent(&error) => Ok(()),
        removed => removed,
    }
}

/// Whether there is nothing of that name. A file of the user is no directory of this program.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// Makes the entry of a path in its directory durable.
fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if parent.exists() => sync_directory(parent),
        _ => Ok(()),
    }
}

fn sync_directory(path: &Path) -> io::Result<()> {
    match File::open(path)?.sync_all() {
        // Some network file systems have no such call for directories. Their entries are as durable as they can be.
        Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(()),
        synced => synced,
    }
}

/// A file that no reader looks at, under a name of its own. It is removed unless it gets its final name.
struct Unpublished {
    file: File,
    path: PathBuf,
    unsynced: usize,
}

impl Unpublished {
    fn create(directory: &Path) -> io::Result<Self> {
        let random = getrandom::u64().map_err(|error| io::Error::other(error.to_string()))?;
        let path = directory.join(format!("{random:016x}{UNPUBLISHED}"));
        let file = (File::options().write(true).create_new(true))
            .mode(0o600)
            .open(&path)?;
        Ok(Self {
            file,
            path,
            unsynced: 0,
        })
    }

    /// Gives the file its final name. A file of that name is replaced.
    fn publish(self, path: &Path) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.path, path)?;
        sync_parent(path)
    }
}

impl Drop for Unpublished {
    fn drop(&mut self) {
        // Absent once it is published.
        let _ = fs::remove_file(&self.path);
    }
}

/// Bytes are synced in steps.
impl Write for Unpublished {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.unsynced += written;
        if self.unsynced >= SYNC_STEP {
            self.unsynced = 0;
            self.file.sync_data()?;
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests;
