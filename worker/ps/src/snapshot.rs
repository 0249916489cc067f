//! Snapshots as they are written.
//!
//! ```text
//! PLACE/parameter-server/NUMBER/range-FIRST-LAST-CHECKSUM    the values of a range
//! PLACE/parameter-server/NUMBER/manifest.json                written last: the snapshot is complete
//! PLACE/parameter-server/owner                               the job that has started last: no other one completes a snapshot
//!
//! range: "EPSR", u32 version 1 | for each piece: u32 app, u32 0, u64 length, a chunk of the app's store
//! ```
//! Little-endian. Keys and checksum (xxh3) in the name of a range are hexadecimal. Fields of the manifest are only added. A writer
//! raises `version` with each addition, and `reader` if a reader of an older version would load wrong values.
//!
//! # Invariants
//! - N1 The two newest complete snapshots are never removed.

mod manifest;
mod range;

use std::{collections::BTreeMap, io::Read as _, time::SystemTime};

use elasticrun_durable::{Access, Store};

use crate::{
    core::{
        elastic::{map::App, snapshot::SavedRange},
        ranges::KeyRange,
    },
    error::Error,
};
pub(crate) use manifest::Manifest;
pub(crate) use range::{RangeFile, pieces};

/// The directory of all snapshots of a place.
const ROOT: &str = "parameter-server";

/// The file that names the job that has started last.
const OWNER: &str = "owner";

/// The longest name of a job that is read.
const MAX_OWNER: u64 = 64;

/// The number of complete snapshots that are kept.
const KEEP: usize = 2;

/// Bytes that are written at a time: a bucket sends a limited number of parts at once.
const CHUNK: usize = 1 << 20;

/// The longest manifest that is read.
const MAX_MANIFEST: u64 = 64 << 20;

/// Snapshots in a directory or bucket.
pub(crate) struct SnapshotStore {
    store: Box<dyn Store>,
    place: String,
}

impl SnapshotStore {
    /// Opens a place. The variables of this process say how to reach a bucket.
    pub(crate) fn open(place: &str) -> Result<Self, Error> {
        let access = Access::new(&BTreeMap::new());
        let store = elasticrun_durable::open(place, &access).map_err(failed)?;
        Ok(Self {
            store,
            place: place.to_owned(),
        })
    }

    /// Where it is, for messages.
    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    /// Checks that the place can be written.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.store.check_writable().map_err(failed)
    }

    /// Takes the place over for the job of this name. Jobs that have started before complete no snapshot any more.
    pub(crate) fn take_over(&self, job: &str) -> Result<(), Error> {
        let written = self.store.write(ROOT, &mut |out| {
            out.write_all(job.as_bytes())?;
            Ok(Some(OWNER.to_owned()))
        });
        written.map_err(failed)
    }

    /// The job that has started last.
    fn owner(&self) -> Result<Option<String>, Error> {
        let path = format!("{ROOT}/{OWNER}");
        let Some(file) = self.store.open(&path).map_err(failed)? else {
            return Ok(None);
        };
        let mut name = String::new();
        let read = file.bytes.take(MAX_OWNER).read_to_string(&mut name);
        read.map_err(|error| self.refused(&path, &error.to_string()))?;
        Ok(Some(name))
    }

    /// The numbers of all snapshots, complete or not, the newest first.
    fn numbers(&self) -> Result<Vec<u64>, Error> {
        let names = self.store.list(ROOT).map_err(failed)?;
        let is_own = |number: &u64, name: &str| *number < u64::MAX && number.to_string() == name;
        let number = |name: &String| name.parse().ok().filter(|number| is_own(number, name));
        let mut numbers: Vec<u64> = names.iter().filter_map(number).collect();
        numbers.sort_unstable_by(|a, b| b.cmp(a));
        Ok(numbers)
    }

    /// The newest complete snapshot, and the number of the next one.
    pub(crate) fn newest(&self) -> Result<(Option<Manifest>, u64), Error> {
        let numbers = self.numbers()?;
        let next = numbers.first().map_or(1, |newest| newest.saturating_add(1));
        for number in numbers {
            if let Some(manifest) = self.manifest(number)? {
                return Ok((Some(manifest), next));
            }
        }
        Ok((None, next))
    }

    /// The manifest of a snapshot; `None` if it is not complete.
    pub(crate) fn manifest(&self, number: u64) -> Result<Option<Manifest>, Error> {
        let path = manifest_path(number);
        let Some(file) = self.store.open(&path).map_err(failed)? else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        let read = file.bytes.take(MAX_MANIFEST).read_to_end(&mut bytes);
        read.map_err(|error| self.refused(&path, &error.to_string()))?;
        let manifest = Manifest::read(&bytes, number);
        (manifest.map(Some)).map_err(|error| self.refused(&path, &error.to_string()))
    }

    /// Writes the values of a range.
    pub(crate) fn write_range(
        &self,
        number: u64,
        keys: KeyRange,
        file: &RangeFile,
    ) -> Result<SavedRange, Error> {
        let saved = |file: String, bytes| SavedRange {
            first: keys.first,
            last: keys.last,
            file,
            bytes,
        };
        if file.is_empty() {
            return Ok(saved(String::new(), 0));
        }
        let name = file.name(keys);
        let written = self.store.write(&directory(number), &mut |out| {
            let mut chunks = file.bytes().chunks(CHUNK);
            chunks.try_for_each(|chunk| out.write_all(chunk))?;
            Ok(Some(name.clone()))
        });
        written.map_err(failed)?;
        Ok(saved(name, file.bytes().len() as u64))
    }

    /// The bytes of a range.
    pub(crate) fn read_range(&self, number: u64, range: &SavedRange) -> Result<Vec<u8>, Error> {
        let path = format!("{}/{}", directory(number), range.file);
        let file = self.store.open(&path).map_err(failed)?;
        let file = file.ok_or_else(|| self.refused(&path, "it is gone"))?;
        let damaged = || self.refused(&path, "its bytes are not those that were written");
        // Before memory is taken for the bytes.
        if file.len != range.bytes {
            return Err(damaged());
        }
        let mut bytes = Vec::new();
        let read = file.bytes.take(range.bytes).read_to_end(&mut bytes);
        read.map_err(|error| self.refused(&path, &error.to_string()))?;
        match range::name(range.keys(), &bytes) == range.file {
            true => Ok(bytes),
            false => Err(damaged()),
        }
    }

    /// Checks that a range that a server has written is there.
    fn check_range(&self, number: u64, range: &SavedRange) -> Result<(), Error> {
        let path = format!("{}/{}", directory(number), range.file);
        let file = self.store.open(&path).map_err(failed)?;
        match file.is_some_and(|file| file.len == range.bytes) {
            true => Ok(()),
            false => {
                let why = "a server has written it, and the scheduler does not see it: is this a place that all hosts share?";
                Err(self.refused(&path, why))
            }
        }
    }

    /// Makes a snapshot complete, and removes those that are not needed any more.
    pub(crate) fn complete(
        &self,
        job: &str,
        number: u64,
        apps: &[App],
        ranges: Vec<SavedRange>,
    ) -> Result<(), Error> {
        for range in ranges.iter().filter(|range| !range.file.is_empty()) {
            self.check_range(number, range)?;
        }
        if self.owner()?.as_deref() != Some(job) {
            let place = &self.place;
            let text =
                format!("another job has started later with {place}, and saves its values there");
            return Err(Error::Snapshot(text));
        }
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let written_at = since.map_or(0, |since| since.as_millis() as u64);
        let manifest = Manifest::new(number, apps.to_vec(), ranges, written_at);
        let (directory, name) = (directory(number), "manifest.json".to_owned());
        // A snapshot without keys has no directory yet.
        let written = self.store.write(&directory, &mut |out| {
            out.write_all(&manifest.to_bytes())?;
            Ok(Some(name.clone()))
        });
        written.map_err(failed)?;
        // The owner of a file may be another one than its writer, on some network file systems.
        if self.manifest(number)?.is_none() {
            return Err(self.refused(&manifest_path(number), "it was written and is not there"));
        }
        self.clean(job, number);
        Ok(())
    }

    /// Removes all but the newest complete snapshots (N1), and what is left of others up to this number: it takes room that the next one
    /// needs. A job that does not own the place removes nothing.
    pub(crate) fn clean(&self, job: &str, number: u64) {
        let clean = || -> Result<(), Error> {
            if self.owner()?.as_deref() != Some(job) {
                return Ok(());
            }
            let mut complete = 0;
            for other in self.numbers()?.into_iter().filter(|other| *other <= number) {
                // One that cannot be read may be of a later release.
                let is_complete = !matches!(self.manifest(other), Ok(None));
                complete += usize::from(is_complete);
                if !is_complete || complete > KEEP {
                    self.store.remove(&manifest_path(other)).map_err(failed)?;
                    let removed = self.store.remove_directory(&directory(other));
                    removed.map_err(failed)?;
                }
            }
            Ok(())
        };
        if let Err(error) = clean() {
            tracing::warn!(%error, "older snapshots stay in the store");
        }
    }

    fn refused(&self, path: &str, why: &str) -> Error {
        Error::Snapshot(format!("{}/{path} cannot be used: {why}", self.place))
    }
}

fn failed(error: elasticrun_durable::Error) -> Error {
    Error::Snapshot(error.to_string())
}

fn directory(number: u64) -> String {
    format!("{ROOT}/{number}")
}

fn manifest_path(number: u64) -> String {
    format!("{}/manifest.json", directory(number))
}

#[cfg(test)]
mod tests;
