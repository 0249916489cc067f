//! Caches parts of remote files on a disk of this host.
//!
//! A part is a file in the directory of the cache. Its name is a hash of file, size, version and range, so a part is
//! never stale. Unused parts are evicted over time. Processes may share a directory: a part appears as a whole, by a
//! rename. Writes are not synced. A part with a wrong checksum counts as missing. A cache that fails causes one
//! warning, and never fails a read.

use std::{
    fs::{self, File},
    io::{self, Write},
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::SystemTime,
};

use bytes::Bytes;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use super::{FileInfo, Storage};
use crate::error::{Error, Problem, Result};

/// Location and size of a disk cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskCache {
    /// Created if it does not exist. Must not be used for anything else.
    pub directory: PathBuf,
    /// Maximum bytes. Exceeded slightly while a part is written.
    pub bytes: u64,
}

/// A storage with a disk cache.
#[derive(Debug)]
pub(crate) struct CachedStorage {
    inner: Arc<dyn Storage>,
    cache: DiskCache,
    /// Bytes in the directory, as far as this process knows.
    used: AtomicU64,
    /// The number of the next temporary file.
    next: AtomicU64,
    warned: AtomicBool,
}

/// Bytes of the checksum after the content of a part.
const CHECKSUM: usize = 8;

impl CachedStorage {
    /// # Errors
    /// If the directory cannot be created or listed.
    pub(crate) fn new(inner: Arc<dyn Storage>, cache: DiskCache) -> Result<Self> {
        let failed = |error: io::Error| {
            Error::from(Problem::from(error)).in_file(&cache.directory.to_string_lossy())
        };
        fs::create_dir_all(&cache.directory).map_err(failed)?;
        let used = parts(&cache.directory)
            .map_err(failed)?
            .iter()
            .map(|part| part.bytes)
            .sum();
        Ok(Self {
            inner,
            cache,
            used: AtomicU64::new(used),
            next: AtomicU64::new(0),
            warned: AtomicBool::new(false),
        })
    }

    fn path(&self, file: &FileInfo, range: &Range<u64>) -> PathBuf {
        let FileInfo {
            name,
            size,
            version,
        } = file;
        let key = format!("{name}\n{size}\n{version}\n{}-{}", range.start, range.end);
        self.cache
            .directory
            .join(format!("{:032x}.part", xxh3_128(key.as_bytes())))
    }

    /// Stores a part, and evicts others if necessary.
    fn keep(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let length = (bytes.len() + CHECKSUM) as u64;
        if length > self.cache.bytes {
            return Ok(());
        }
        if self.used.fetch_add(length, Ordering::Relaxed) + length > self.cache.bytes {
            let used = evict(&self.cache.directory, self.cache.bytes - length)?;
            self.used.store(used + length, Ordering::Relaxed);
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let temporary = path.with_extension(format!("{}-{number}.temporary", std::process::id()));
        let written = File::create(&temporary)
            .and_then(|mut file| {
                file.write_all(bytes)?;
                file.write_all(&xxh3_64(bytes).to_le_bytes())
            })
            .and_then(|()| fs::rename(&temporary, path));
        if written.is_err() {
            // The file may not exist.
            let _ = fs::remove_file(&temporary);
        }
        written
    }
}

impl Storage for CachedStorage {
    fn list(&self) -> Result<Vec<FileInfo>> {
        self.inner.list()
    }

    fn relative_name<'a>(&self, file: &'a FileInfo) -> &'a str {
        self.inner.relative_name(file)
    }

    fn find_at_root(&self, name: &str) -> Result<Option<FileInfo>> {
        self.inner.find_at_root(name)
    }

    fn coalesce_gap(&self) -> u64 {
        self.inner.coalesce_gap()
    }

    /// Reads of an open file would bypass the cache.
    fn open(&self, _: &FileInfo) -> Result<Option<File>> {
        Ok(None)
    }

    fn read(&self, file: &FileInfo, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let paths: Vec<PathBuf> = ranges.iter().map(|range| self.path(file, range)).collect();
        let mut found: Vec<Option<Bytes>> = paths.iter().map(|path| read_part(path)).collect();
        let missing: Vec<usize> = (0..ranges.len())
            .filter(|index| found[*index].is_none())
            .collect();
        if !missing.is_empty() {
            let wanted: Vec<Range<u64>> =
                missing.iter().map(|index| ranges[*index].clone()).collect();
            for (index, bytes) in missing.into_iter().zip(self.inner.read(file, &wanted)?) {
                if let Err(error) = self.keep(&paths[index], &bytes)
                    && !self.warned.swap(true, Ordering::Relaxed)
                {
                    tracing::warn!(%error, directory = %self.cache.directory.display(), "cannot cache");
                }
                found[index] = Some(bytes);
            }
        }
        Ok(found.into_iter().flatten().collect())
    }
}

/// Reads a part if it exists and is intact, and marks it as used.
fn read_part(path: &Path) -> Option<Bytes> {
    let mut bytes = fs::read(path).ok()?;
    let (content, checksum) = bytes.split_last_chunk::<CHECKSUM>()?;
    if xxh3_64(content) != u64::from_le_bytes(*checksum) {
        return None;
    }
    bytes.truncate(bytes.len() - CHECKSUM);
    // A failure only affects the order of eviction.
    let _ = File::open(path).and_then(|file| file.set_modified(SystemTime::now()));
    Some(bytes.into())
}

#[derive(Debug)]
struct Part {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
}

/// The parts in a directory. Other processes may add and evict parts at the same time.
fn parts(directory: &Path) -> io::Result<Vec<Part>> {
    let mut parts = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "part") {
            continue;
        }
        if let Ok(metadata) = fs::metadata(&path) {
            parts.push(Part {
                bytes: metadata.len(),
                used: metadata.modified()?,
                path,
            });
        }
    }
    Ok(parts)
}

/// Evicts the least recently used parts until nine tenths of `limit` are left, so that it need not run for each part.
/// Returns the remaining bytes.
fn evict(directory: &Path, limit: u64) -> io::Result<u64> {
    let mut parts = parts(directory)?;
    parts.sort_by_key(|part| part.used);
    let mut left: u64 = parts.iter().map(|part| part.bytes).sum();
    if left <= limit {
        return Ok(left);
    }
    for part in parts {
        if left <= limit / 10 * 9 {
            break;
        }
        // Another process may have removed it.
        let _ = fs::remove_file(&part.path);
        left -= part.bytes;
    }
    Ok(left)
}

#[cfg(test)]
#[expect(
    clippy::single_range_in_vec_init,
    reason = "a list of one range is meant"
)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// A storage that counts the bytes read from it.
    #[derive(Debug, Default)]
    struct Counted(Mutex<u64>);

    impl Counted {
        fn take(&self) -> u64 {
            std::mem::take(&mut self.0.lock().unwrap())
        }
    }

    impl Storage for Counted {
        fn list(&self) -> Result<Vec<FileInfo>> {
            Ok(vec![file("1")])
        }

        fn relative_name<'a>(&self, file: &'a FileInfo) -> &'a str {
            &file.name
        }

        fn coalesce_gap(&self) -> u64 {
            0
        }

        fn open(&self, _: &FileInfo) -> Result<Option<File>> {
            Ok(None)
        }

        fn find_at_root(&self, _: &str) -> Result<Option<FileInfo>> {
            Ok(None)
        }

        fn read(&self, _: &FileInfo, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
            let bytes = ranges
                .iter()
                .map(|range| range.clone().map(|at| at as u8).collect::<Vec<u8>>().into());
            *self.0.lock().unwrap() += ranges
                .iter()
                .map(|range| range.end - range.start)
                .sum::<u64>();
            Ok(bytes.collect())
        }
    }

    fn file(version: &str) -> FileInfo {
        FileInfo {
            name: "s3://bucket/x".to_owned(),
            size: 1000,
            version: version.to_owned(),
        }
    }

    fn cached(directory: &Path, bytes: u64) -> (Arc<Counted>, CachedStorage) {
        let inner = Arc::new(Counted::default());
        let cache = DiskCache {
            directory: directory.to_owned(),
            bytes,
        };
        (inner.clone(), CachedStorage::new(inner, cache).unwrap())
    }

    #[test]
    fn a_range_is_read_once() {
        let directory = tempfile::tempdir().unwrap();
        let (inner, cached) = cached(directory.path(), 10_000);
        assert_eq!(
            cached.read(&file("1"), &[0..3, 5..7]).unwrap(),
            [&[0, 1, 2][..], &[5, 6]]
        );
        assert_eq!(inner.take(), 5);
        assert_eq!(
            cached.read(&file("1"), &[5..7, 8..9, 0..3]).unwrap(),
            [&[5, 6][..], &[8], &[0, 1, 2]]
        );
        assert_eq!(inner.take(), 1);
        // Another version is another file.
        cached.read(&file("2"), &[0..3]).unwrap();
        assert_eq!(inner.take(), 3);
        // A later process finds the cached parts.
        let (inner, cached) = self::cached(directory.path(), 10_000);
        cached.read(&file("1"), &[0..3]).unwrap();
        assert_eq!(inner.take(), 0);
    }

    #[test]
    fn a_damaged_part_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let (inner, cached) = cached(directory.path(), 10_000);
        cached.read(&file("1"), &[0..100]).unwrap();
        inner.take();
        let part = parts(directory.path()).unwrap().remove(0).path;
        for damage in [vec![0; 108], vec![], vec![1; 3]] {
            fs::write(&part, damage).unwrap();
            assert_eq!(cached.read(&file("1"), &[0..100]).unwrap()[0][99], 99);
            assert_eq!(inner.take(), 100);
        }
    }

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let directory = tempfile::tempdir().unwrap();
        let (inner, cached) = cached(directory.path(), 1000);
        let read = |start: u64| cached.read(&file("1"), &[start..start + 92]).unwrap();
        for part in 0..10 {
            read(part * 100);
            // File systems distinguish times by milliseconds at best.
            let path = cached.path(&file("1"), &(part * 100..part * 100 + 92));
            let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(part);
            File::open(path).unwrap().set_modified(time).unwrap();
        }
        inner.take();
        // The first part is now the most recently used one.
        read(0);
        assert_eq!(inner.take(), 0);
        read(1000);
        let used: u64 = parts(directory.path())
            .unwrap()
            .iter()
            .map(|part| part.bytes)
            .sum();
        assert!(used <= 1000, "{used}");
        inner.take();
        read(0);
        read(900);
        assert_eq!(inner.take(), 0);
        read(100);
        assert_eq!(inner.take(), 92);
    }

    #[test]
    fn a_cache_that_fails_fails_no_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cache");
        let (inner, cached) = cached(&path, 10_000);
        fs::remove_dir(&path).unwrap();
        cached.read(&file("1"), &[0..10]).unwrap();
        cached.read(&file("1"), &[0..10]).unwrap();
        assert_eq!(inner.take(), 20);
        fs::write(&path, "").unwrap();
        let cache = DiskCache {
            directory: path,
            bytes: 1,
        };
        assert!(CachedStorage::new(inner, cache).is_err());
    }
}
