//! Files of this host: of directories, or named one by one.

use std::{
    fs::{self, File, Metadata},
    ops::Range,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
};

use bytes::Bytes;

use super::{FileInfo, Storage, is_data};
use crate::{
    buffers::Buffers,
    error::{Error, Problem, Result},
};

/// See the module.
#[derive(Debug)]
pub(crate) struct Local {
    places: Vec<PathBuf>,
    buffers: Buffers,
}

impl Local {
    /// Of each place that is a directory, all data files in it and below; else the file itself.
    pub(crate) fn new(places: Vec<PathBuf>) -> Self {
        Self {
            places,
            buffers: Buffers::default(),
        }
    }
}

impl Storage for Local {
    fn list(&self) -> Result<Vec<FileInfo>> {
        let mut files = Vec::new();
        for place in &self.places {
            let metadata = fs::metadata(place).map_err(|error| failed(error, place))?;
            if metadata.is_dir() {
                walk(place, &mut files)?;
            } else {
                files.push(info(place, &metadata));
            }
        }
        files.sort_by(|a, b| a.name.cmp(&b.name));
        files.dedup();
        Ok(files)
    }

    fn below<'a>(&self, file: &'a FileInfo) -> &'a str {
        let path = Path::new(&file.name);
        let mut below = (self.places.iter()).filter_map(|place| path.strip_prefix(place).ok());
        below.next().and_then(Path::to_str).unwrap_or_default()
    }

    fn beside(&self, name: &str) -> Result<Option<FileInfo>> {
        let Some(place) = self.places.first().filter(|place| place.is_dir()) else {
            return Ok(None);
        };
        let path = place.join(name);
        match fs::metadata(&path) {
            Ok(metadata) => Ok(Some(info(&path, &metadata))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(error, &path)),
        }
    }

    /// A call of the system and the copy of so many bytes cost about the same.
    fn gap(&self) -> u64 {
        16 << 10
    }

    fn open(&self, file: &FileInfo) -> Result<Option<File>> {
        let path = Path::new(&file.name);
        let open = File::open(path).map_err(|error| failed(error, path))?;
        let metadata = open.metadata().map_err(|error| failed(error, path))?;
        let is = info(path, &metadata);
        if is != *file {
            let (was, is) = (file.describe(), is.describe());
            return Err(Error::from(Problem::Changed { was, is }).in_file(&file.name));
        }
        Ok(Some(open))
    }

    fn read(&self, file: &FileInfo, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let path = Path::new(&file.name);
        let Some(open) = self.open(file)? else {
            return Err(Problem::Vanished.into());
        };
        ranges
            .iter()
            .map(|range| {
                let length = (range.end - range.start) as usize;
                let mut bytes = self
                    .buffers
                    .take(length)
                    .map_err(|error| failed(error, path))?;
                open.read_exact_at(&mut bytes, range.start)
                    .map_err(|error| failed(error, path))?;
                Ok(self.buffers.share(bytes))
            })
            .collect()
    }
}

/// Adds the data files of a directory and of those below it.
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

fn failed(error: std::io::Error, path: &Path) -> Error {
    Error::from(Problem::from(error)).in_file(&path.to_string_lossy())
}
