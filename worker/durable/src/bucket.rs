//! A prefix of a bucket as a durable store: S3 and compatible services, and Google Cloud Storage.
//!
//! - An object appears whole, by one request or by the end of a multipart upload. An upload that fails is aborted.
//! - There are no directories: the names below a prefix are its directory.
//! - A shard has its checksum in its name, so its bytes are read once for the name and once for the upload.
//! - Requests are repeated for a while by the client library. Each has a time limit.
//!
//! Not promised: that the parts of an upload are freed if this agent is killed. Objects have no owner that could be checked:
//! whoever can write to the prefix is trusted.

mod connect;

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    sync::Arc,
};

use bytes::Bytes;
use connect::connect;
use futures_util::TryStreamExt;
use object_store::{
    MultipartUpload, ObjectStore, ObjectStoreExt, PutPayload, WriteMultipart, path::Path,
};
use tokio::runtime::{Builder, Runtime};

use crate::{
    Access, Error,
    store::{Fill, Store, StoredFile, is_plain_name},
};

/// The size of a part of an upload and of a range that is read. A larger shard has larger parts.
const PART: u64 = 16 << 20;

/// The number of parts that a service allows.
const MAX_PARTS: u64 = 10_000;

/// The number of parts that are under way at the same time.
const CONCURRENCY: usize = 3;

/// A prefix of a bucket.
#[allow(missing_debug_implementations, reason = "a client may hold secrets")]
pub struct Bucket {
    store: Arc<dyn ObjectStore>,
    runtime: Arc<Runtime>,
    /// As configured, for messages.
    place: String,
    prefix: Path,
}

impl Bucket {
    /// Opens the store. No request is sent.
    pub(crate) fn open(place: &str, access: &Access) -> Result<Self, Error> {
        let refused = |why: String| Error::Place {
            place: place.to_owned(),
            why,
        };
        let (store, prefix) = connect(place, access).map_err(refused)?;
        Self::over(store, prefix, place)
    }

    /// A prefix of a store that is open already. `place` is its name in messages.
    ///
    /// # Errors
    /// The system gives no event loop.
    pub fn over(store: Arc<dyn ObjectStore>, prefix: Path, place: &str) -> Result<Self, Error> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(Error::store("use", place))?;
        Ok(Self {
            store,
            runtime: Arc::new(runtime),
            place: place.trim_end_matches('/').to_owned(),
            prefix,
        })
    }

    /// The key of a name below the prefix.
    fn key(&self, name: &str) -> Path {
        name.split('/')
            .fold(self.prefix.clone(), |path, part| path.join(part))
    }

    fn shown(&self, name: &str) -> String {
        format!("{}/{name}", self.place)
    }

    fn wait<T>(&self, request: impl Future<Output = object_store::Result<T>>) -> io::Result<T> {
        self.runtime.block_on(request).map_err(one_line)
    }

    /// Removes an object, if it exists.
    fn delete(&self, key: &Path) -> io::Result<()> {
        match self.runtime.block_on(self.store.delete(key)) {
            Err(object_store::Error::NotFound { .. }) => Ok(()),
            deleted => deleted.map_err(one_line),
        }
    }

    fn put(&self, key: &Path, bytes: &[u8]) -> io::Result<()> {
        let payload = PutPayload::from(bytes.to_vec());
        self.wait(self.store.put(key, payload)).map(drop)
    }

    /// Writes an object of this length, in parts if it is large.
    fn upload(&self, key: &Path, len: u64, fill: &mut Fill<'_>) -> io::Result<()> {
        let mut upload = match len {
            0..=PART => Upload::whole(self),
            _ => {
                let begun = self.wait(self.store.put_multipart(key))?;
                Upload::in_parts(self, begun, len.div_ceil(MAX_PARTS).max(PART))
            }
        };
        match fill(&mut upload) {
            Ok(Some(name)) if key.filename() == Some(name.as_str()) => upload.finish(key),
            filled => {
                upload.abort();
                match filled? {
                    None => Ok(()),
                    Some(_) => Err(io::Error::other("its bytes have changed meanwhile")),
                }
            }
        }
    }
}

impl Store for Bucket {
    fn check(&self) -> Result<(), Error> {
        let mut listed = self.store.list(Some(&self.prefix));
        let first = self.wait(async { listed.try_next().await });
        first.map(drop).map_err(|error| Error::Place {
            place: self.place.clone(),
            why: error.to_string(),
        })
    }

    fn check_writable(&self) -> Result<(), Error> {
        self.check()?;
        let random = getrandom::u64().map_err(|error| io::Error::other(error.to_string()));
        let checked = random.and_then(|random| {
            let key = self.prefix.clone().join(format!("{random:016x}.tmp"));
            self.put(&key, b"")?;
            self.delete(&key)
        });
        checked.map_err(Error::store("write", &self.place))
    }

    fn runs(&self) -> Result<Vec<String>, Error> {
        let objects = self.wait(self.store.list(Some(&self.prefix)).try_collect::<Vec<_>>());
        let objects = objects.map_err(Error::store("list", &self.place))?;
        let depth = self.prefix.parts().count();
        let mut runs = BTreeMap::new();
        for object in objects {
            let mut parts = object.location.parts().skip(depth);
            let run = parts.next().filter(|_| parts.next().is_some());
            let run = run.map(|part| part.as_ref().to_owned());
            if let Some(run) = run.filter(|run| is_plain_name(run)) {
                let changed = runs.entry(run).or_insert(object.last_modified);
                *changed = object.last_modified.max(*changed);
            }
        }
        let mut runs: Vec<_> = runs
            .into_iter()
            .map(|(run, changed)| (changed, run))
            .collect();
        runs.sort_unstable_by(|a, b| b.cmp(a));
        Ok(runs.into_iter().map(|(_, run)| run).collect())
    }

    fn list(&self, directory: &str) -> Result<Vec<String>, Error> {
        let key = self.key(directory);
        let found = self.wait(self.store.list_with_delimiter(Some(&key)));
        let found = found.map_err(Error::store("list", &self.shown(directory)))?;
        let objects = found.objects.iter().map(|object| &object.location);
        let below = found.common_prefixes.iter().chain(objects);
        let mut names: Vec<_> = below
            .filter_map(|path| path.filename().map(str::to_owned))
            .collect();
        names.sort();
        Ok(names)
    }

    fn open(&self, name: &str) -> Result<Option<StoredFile>, Error> {
        let key = self.key(name);
        let len = match self.runtime.block_on(self.store.head(&key)) {
            Ok(meta) => meta.size,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(Error::store("read", &self.shown(name))(one_line(error))),
        };
        let bytes = Object {
            store: self.store.clone(),
            runtime: self.runtime.clone(),
            key,
            rest: 0..len,
            part: Bytes::new(),
        };
        Ok(Some(StoredFile {
            bytes: Box::new(bytes),
            len,
        }))
    }

    fn write(&self, directory: &str, fill: &mut Fill<'_>) -> Result<(), Error> {
        let mut counted = Counted(0);
        let written = fill(&mut counted).and_then(|name| match name {
            None => Ok(()),
            Some(name) => {
                let key = self.key(directory).join(name);
                self.upload(&key, counted.0, fill)
            }
        });
        written.map_err(Error::store("write", &self.shown(directory)))
    }

    fn publish(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let directory = name.rsplit_once('/').map_or("", |(directory, _)| directory);
        if self.list(directory)?.is_empty() {
            let gone = io::ErrorKind::NotFound.into();
            return Err(Error::store("write", &self.shown(name))(gone));
        }
        let published = self.put(&self.key(name), bytes);
        published.map_err(Error::store("write", &self.shown(name)))
    }

    fn remove(&self, name: &str) -> Result<(), Error> {
        let removed = self.delete(&self.key(name));
        removed.map_err(Error::store("remove", &self.shown(name)))
    }

    fn remove_directory(&self, name: &str) -> Result<(), Error> {
        let key = self.key(name);
        let removed = || -> io::Result<()> {
            let objects = self.wait(self.store.list(Some(&key)).try_collect::<Vec<_>>())?;
            objects
                .iter()
                .try_for_each(|object| self.delete(&object.location))
        };
        removed().map_err(Error::store("remove", &self.shown(name)))
    }
}

/// Counts bytes.
struct Counted(u64);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An object that is being written.
struct Upload<'a> {
    bucket: &'a Bucket,
    bytes: Vec<u8>,
    /// None for an object that one request writes.
    parts: Option<WriteMultipart>,
}

impl<'a> Upload<'a> {
    fn whole(bucket: &'a Bucket) -> Self {
        Self {
            bucket,
            bytes: Vec::new(),
            parts: None,
        }
    }

    fn in_parts(bucket: &'a Bucket, upload: Box<dyn MultipartUpload>, part: u64) -> Self {
        let part = usize::try_from(part).unwrap_or(usize::MAX);
        Self {
            bucket,
            bytes: Vec::new(),
            parts: Some(WriteMultipart::new_with_chunk_size(upload, part)),
        }
    }

    fn finish(self, key: &Path) -> io::Result<()> {
        match self.parts {
            // The library aborts an upload that cannot be finished.
            Some(parts) => self.bucket.wait(parts.finish()).map(drop),
            None => self.bucket.put(key, &self.bytes),
        }
    }

    fn abort(self) {
        if let Some(parts) = self.parts
            && let Err(error) = self.bucket.wait(parts.abort())
        {
            tracing::warn!(%error, "parts of an upload stay in the bucket");
        }
    }
}

impl Write for Upload<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.parts {
            None => self.bytes.extend_from_slice(bytes),
            Some(parts) => {
                let _entered = self.bucket.runtime.enter();
                parts.write(bytes);
            }
        }
        if let Some(parts) = &mut self.parts {
            let has_room = parts.wait_for_capacity(CONCURRENCY);
            self.bucket.runtime.block_on(has_room).map_err(one_line)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An object that is read range by range, so that each request is short and is repeated by itself.
struct Object {
    store: Arc<dyn ObjectStore>,
    runtime: Arc<Runtime>,
    key: Path,
    rest: std::ops::Range<u64>,
    /// Bytes that are here already.
    part: Bytes,
}

impl Read for Object {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.part.is_empty() && !self.rest.is_empty() {
            let end = self.rest.end.min(self.rest.start + PART);
            let range = self.rest.start..end;
            let request = self.store.get_range(&self.key, range);
            self.part = self.runtime.block_on(request).map_err(one_line)?;
            self.rest.start = end;
        }
        let len = out.len().min(self.part.len());
        out[..len].copy_from_slice(&self.part.split_to(len));
        Ok(len)
    }
}

/// The first line of an error, without the markup that some services append.
fn one_line(error: object_store::Error) -> io::Error {
    let text = error.to_string();
    io::Error::other(text.lines().next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests;
