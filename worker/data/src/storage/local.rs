//! Files of this host, from directories or by name.

use std::{
    fs::{self, File, Metadata},
    ops::Range,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
};

use bytes::Bytes;

use super::{FileInfo, Storage, is_data};
use crate::{
    buffers::BufferPool,
    error::{Error, Problem, Result},
};

/// Files of this host.
#[derive(Debug)]
pub(crate) struct LocalStorage {
    roots: Vec<PathBuf>,
    buffers: BufferPool,
}

impl LocalStorage {
    /// A root is a file, or a directory that is searched recursively.
    pub(crate) fn new(roots: Vec<PathBuf>) -> Self {
        Self {
            roots,
            buffers: BufferPool::default(),
        }
    }
}

impl Storage for LocalStorage {
    fn list(&self) -> Result<Vec<FileInfo>> {
        let mut files = Vec::new();
        for root in &self.roots {
            let metadata = fs::metadata(root).map_err(|error| failed_at_root(error, root))?;
            if metadata.is_dir() {
                walk(root, &mut files)?;
            } else {
                files.push(info(root, &metadata));
            }
        }
        files.sort_by(|a, b| a.name.cmp(&b.name));
        files.dedup();
        Ok(files)
    }

    fn relative_name<'a>(&self, file: &'a FileInfo) -> &'a str {
        let path = Path::new(&file.name);
        let mut below = (self.roots.iter()).filter_map(|root| path.strip_prefix(root).ok());
        below.next().and_then(Path::to_str).unwrap_or_default()
    }

    fn find_at_root(&self, name: &str) -> Result<Option<FileInfo>> {
        let Some(root) = self.roots.first().filter(|root| root.is_dir()) else {
            return Ok(None);
        };
        let path = root.join(name);
        match fs::metadata(&path) {
            Ok(metadata) => Ok(Some(info(&path, &metadata))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(error, &path)),
        }
    }

    /// A system call costs about as much as copying this many bytes.
    fn coalesce_gap(&self) -> u64 {
        16 << 10
    }

    fn open(&self, file: &FileInfo) -> Result<Option<File>> {
        let path = Path::new(&file.name);
        let open = File::open(path).map_err(|error| failed(error, path))?;
        let metadata = open.metadata().map_err(|error| failed(error, path))?;
        let current = info(path, &metadata);
        if current != *file {
            let (was, is) = (file.describe(), current.describe());
            return Err(Error::from(Problem::Changed { was, is }).in_file(&file.name));
        }
        Ok(Some(open))
    }

    fn read(&self, file: &FileInfo, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let path = Path::new(&file.name);
        let Some(open) = self.open(file)? else {
            return Err(Problem::NotFound.into());
        };
        ranges
            .iter()
            .map(|range| {
                let length = (range.end - range.start) as usize;
                let mut bytes = self
                    .buffers
                    .take(length)
                    .map_err(|problem| Error::from(problem).in_file(&path.to_string_lossy()))?;
                open.read_exact_at(&mut bytes, range.start)
                    .map_err(|error| failed(error, path))?;
                Ok(self.buffers.share(bytes))
            })
            .collect()
    }
}

/// Adds the data files of a directory, recursively.
fn walk(directory: &Path, files: &mut Vec<FileInfo>) -> Result<()> {
    for entry in fs::read_dir(directory).map_err(|error| failed(error, directory))? {
        let entry = entry.map_err(|error| failed(error, directory))?;
        if !is_data(&entry.file_name().to_string_lossy()) {
            continue;
        }
        let path = entry.path();
        let metadata = fs::metadata(&path).map_err(|error| failed(error, &path))?;
        if metadata.is_dir() {
            walk(&path, files)?;
        } else {
            files.push(info(&path, &metadata));
        }
    }
    Ok(())
}

fn info(path: &Path, metadata: &Metadata) -> FileInfo {
    FileInfo {
        name: path.to_string_lossy().into_owned(),
        size: metadata.len(),
        version: format!("{}.{:09}", metadata.mtime(), metadata.mtime_nsec()),
    }
}

fn failed_at_root(error: std::io::Error, root: &Path) -> Error {
    let name = root.to_string_lossy();
    match error.kind() {
        std::io::ErrorKind::NotFound => Error::from(Problem::no_such_path(&name)).in_file(&name),
        _ => failed(error, root),
    }
}

fn failed(error: std::io::Error, path: &Path) -> Error {
    Error::from(Problem::from(error)).in_file(&path.to_string_lossy())
}
