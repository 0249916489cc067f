//! Parts of files kept on a disk of this host, for storages that are far away.
//!
//! A part is a file in the cache's directory, named by a hash of all that says what it is: file, size, version,
//! range. So it is never out of date, and what is not asked for any more is evicted by and by. Processes may
//! share a directory: a part appears whole, by a rename. Nothing is synced to disk; a part that does not have
//! the checksum it was written with counts as missing. A cache that fails is left out with a warning, and never
//! fails a read.

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

/// Where to keep what was read, and how much of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskCache {
    /// Made if it is not there. Used for nothing else.
    pub directory: PathBuf,
    /// Bytes that it may hold. It is a little over while a part is written.
    pub bytes: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Cached {
    inner: Arc<dyn Storage>,
    cache: DiskCache,
    /// Bytes in the directory, as far as this process knows.
    used: AtomicU64,
    /// Names of parts that are being written.
    next: AtomicU64,
    warned: AtomicBool,
}

/// A checksum follows the bytes of a part.
const CHECKSUM: usize = 8;

impl Cached {
    /// # Errors
    /// The directory cannot be made or listed.
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

    /// Keeps a part; makes room if there is none.
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
        let begun = path.with_extension(format!("{}-{number}.begun", std::process::id()));
        let written = File::create(&begun)
            .and_then(|mut file| {
                file.write_all(bytes)?;
                file.write_all(&xxh3_64(bytes).to_le_bytes())
            })
            .and_then(|()| fs::rename(&begun, path));
        if written.is_err() {
            // It may never have been there.
            let _ = fs::remove_file(&begun);
        }
        written
    }
}

impl Storage for Cached {
    fn list(&self) -> Result<Vec<FileInfo>> {
        self.inner.list()
    }

    fn below<'a>(&self, file: &'a FileInfo) -> &'a str {
        self.inner.below(file)
    }

    fn beside(&self, name: &str) -> Result<Option<FileInfo>> {
        self.inner.beside(name)
    }

    fn gap(&self) -> u64 {
        self.inner.gap()
    }

    /// What is read past the cache is not in it.
    fn open(&self, _: &FileInfo) -> Result<Option<File>> {
        Ok(None)
    }

    fn read(&self, file: &FileInfo, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let paths: Vec<PathBuf> = ranges.iter().map(|range| self.path(file, range)).collect();
        let mut found: Vec<Option<Bytes>> = paths.iter().map(|path| read_part(path)).collect();
        let missing: Vec<usize> = (0..ranges.len())
            .filter(|place| found[*place].is_none())
            .collect();
        if !missing.is_empty() {
            let wanted: Vec<Range<u64>> =
                missing.iter().map(|place| ranges[*place].clone()).collect();
            for (place, bytes) in missing.into_iter().zip(self.inner.read(file, &wanted)?) {
                if let Err(error) = self.keep(&paths[place], &bytes)
                    && !self.warned.swap(true, Ordering::Relaxed)
                {
                    tracing::warn!(%error, directory = %self.cache.directory.display(), "cannot cache");
                }
                found[place] = Some(bytes);
            }
        }
        Ok(found.into_iter().flatten().collect())
    }
}

/// A part, if it is there and whole. Marks it as used.
fn read_part(path: &Path) -> Option<Bytes> {
    let mut bytes = fs::read(path).ok()?;
    let (content, checksum) = bytes.split_last_chunk::<CHECKSUM>()?;
    if xxh3_64(content) != u64::from_le_bytes(*checksum) {
        return None;
    }
    bytes.truncate(bytes.len() - CHECKSUM);
    // Only the order of eviction depends on it.
    let _ = File::open(path).and_then(|file| file.set_modified(SystemTime::now()));
    Some(bytes.into())
}

#[derive(Debug)]
struct Part {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
}

/// The parts in a directory. Others may add and evict meanwhile.
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

/// Removes the parts that were not used for longest, until nine tenths of `limit` are left: so this is done
/// now and then, and not for each part. Gives the bytes that are left.
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
        // Another process may have been quicker.
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

        fn below<'a>(&self, file: &'a FileInfo) -> &'a str {
            &file.name
        }

        fn gap(&self) -> u64 {
            0
        }

        fn open(&self, _: &FileInfo) -> Result<Option<File>> {
            Ok(None)
        }

        fn beside(&self, _: &str) -> Result<Option<FileInfo>> {
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

    fn cached(directory: &Path, bytes: u64) -> (Arc<Counted>, Cached) {
        let inner = Arc::new(Counted::default());
        let cache = DiskCache {
            directory: directory.to_owned(),
            bytes,
        };
        (inner.clone(), Cached::new(inner, cache).unwrap())
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
        // A later process finds what is there.
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
            // File systems tell times apart by milliseconds at best.
            let path = cached.path(&file("1"), &(part * 100..part * 100 + 92));
            let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(part);
            File::open(path).unwrap().set_modified(time).unwrap();
        }
        inner.take();
        // Now the first was used last.
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
        assert!(Cached::new(inner, cache).is_err());
    }
}
