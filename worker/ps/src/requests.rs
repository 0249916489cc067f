//! The requests of a worker in an elastic job: what is sent, and sent again.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use elasticrun_collectives::Element;

use crate::{
    array::Array,
    core::{
        elastic::{
            client::{Failure, Part, Requests},
            map::ChainMap,
            wire::back_of,
        },
        frame::{Header, Kind, PUSH},
        keys::Lens,
        node::NodeId,
        slicer::Slice,
    },
    error::Error,
    net::{Outgoing, Pace},
    node::Node,
};

/// A request that may be sent again.
pub(crate) struct Kept<T> {
    pub(crate) keys: Array<u64>,
    pub(crate) lens: Option<Array<u32>>,
    pub(crate) values: Array<T>,
    pub(crate) per_key: u32,
    pub(crate) flags: u8,
    pub(crate) cmd: i32,
    pub(crate) priority: i32,
}

struct Keys(Array<u64>);

impl AsRef<[u64]> for Keys {
    fn as_ref(&self) -> &[u64] {
        &self.0
    }
}

/// The requests of one `KvWorker`.
pub(crate) struct Replayed<T> {
    session: u32,
    inner: Mutex<Inner<T>>,
}

struct Inner<T> {
    requests: Requests<Keys>,
    kept: BTreeMap<u64, Arc<Kept<T>>>,
}

pub(crate) type Sends<T> = Vec<(Part, Arc<Kept<T>>)>;
pub(crate) type Failures = Vec<(u64, Error)>;

impl<T> fmt::Debug for Replayed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replayed").finish_non_exhaustive()
    }
}

fn error(failure: Failure) -> Error {
    match failure {
        Failure::Lost(keys) => Error::KeysLost { keys },
        Failure::TooManyParts => Error::Options("a request was cut too often".to_owned()),
    }
}

impl<T> Inner<T> {
    fn with_kept(&self, parts: Vec<Part>) -> Sends<T> {
        let kept = |part: Part| Some((self.kept.get(&part.timestamp).cloned()?, part));
        let sends = parts.into_iter().filter_map(kept);
        sends.map(|(kept, part)| (part, kept)).collect()
    }

    fn failed(&mut self, failures: Vec<(u64, Failure)>) -> Failures {
        let failed = failures.into_iter().map(|(timestamp, failure)| {
            self.kept.remove(&timestamp);
            (timestamp, error(failure))
        });
        failed.collect()
    }
}

impl<T: Element> Replayed<T> {
    pub(crate) fn new(session: u32) -> Self {
        let inner = Inner {
            requests: Requests::default(),
            kept: BTreeMap::new(),
        };
        Self {
            session,
            inner: Mutex::new(inner),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn session(&self) -> u32 {
        self.session
    }

    /// Begins a request.
    pub(crate) fn begin(
        &self,
        map: &ChainMap,
        timestamp: u64,
        kept: &Arc<Kept<T>>,
    ) -> Result<Sends<T>, Error> {
        let mut inner = self.lock();
        // Later maps are told.
        if !inner.requests.has_map() {
            inner.requests.map(map);
        }
        inner.kept.insert(timestamp, Arc::clone(kept));
        let push = kept.flags & PUSH != 0;
        let begun = inner
            .requests
            .begin(timestamp, Keys(kept.keys.clone()), push);
        match begun {
            Ok(parts) => Ok(inner.with_kept(parts)),
            Err(failure) => {
                inner.kept.remove(&timestamp);
                Err(error(failure))
            }
        }
    }

    pub(crate) fn map(&self, map: &ChainMap) -> (Sends<T>, Failures) {
        let mut inner = self.lock();
        let (parts, failures) = inner.requests.map(map);
        (inner.with_kept(parts), inner.failed(failures))
    }

    pub(crate) fn link_reset(&self, peer: NodeId) -> (Sends<T>, Failures) {
        let mut inner = self.lock();
        let (parts, failures) = inner.requests.link_reset(peer);
        (inner.with_kept(parts), inner.failed(failures))
    }

    pub(crate) fn moved(&self, header: &Header, asked: u64, version: u64) -> Sends<T> {
        let mut inner = self.lock();
        let parts = inner
            .requests
            .moved((header.timestamp, header.part), asked, version);
        inner.with_kept(parts)
    }

    /// The values that an answer is for, if it is waited for.
    pub(crate) fn claim(&self, header: &Header) -> Option<Slice> {
        if header.session != self.session {
            return None;
        }
        let mut inner = self.lock();
        let keys = inner.requests.claim(header.timestamp, header.part)?;
        let kept = inner.kept.get(&header.timestamp)?;
        let lens = match &kept.lens {
            Some(lens) => Lens::Mixed(lens),
            None => Lens::Uniform(kept.per_key as usize),
        };
        let values_first = lens.total(0, keys.start);
        Some(Slice {
            server: header.sender,
            keys_first: keys.start,
            keys_end: keys.end,
            values_first,
            values_end: values_first + lens.total(keys.start, keys.end),
        })
    }

    pub(crate) fn unclaim(&self, header: &Header) -> Sends<T> {
        let mut inner = self.lock();
        let parts = inner.requests.unclaim(header.timestamp, header.part);
        inner.with_kept(parts)
    }

    /// Notes an answer. Returns whether the request is complete.
    pub(crate) fn answered(&self, header: &Header) -> bool {
        let mut inner = self.lock();
        let complete = inner.requests.answered(header.timestamp, header.part);
        if complete {
            inner.kept.remove(&header.timestamp);
        }
        complete
    }

    pub(crate) fn forget(&self, timestamp: u64) {
        let mut inner = self.lock();
        inner.requests.forget(timestamp);
        inner.kept.remove(&timestamp);
    }

    /// Ends all requests.
    pub(crate) fn forget_all(&self) -> Vec<u64> {
        let open = self.lock().requests.open();
        open.iter().for_each(|&timestamp| self.forget(timestamp));
        open
    }

    /// The header of a part, and its arrays.
    pub(crate) fn frame(
        &self,
        node: &Node,
        (app, customer): (u32, u32),
        part: &Part,
        kept: &Kept<T>,
    ) -> Outgoing {
        let keys = kept.keys.slice(part.keys.clone());
        let lens = match &kept.lens {
            Some(lens) => lens.slice(part.keys.clone()).bytes(),
            None => Bytes::new(),
        };
        let values = match kept.flags & PUSH {
            0 => Bytes::new(),
            _ => {
                let lens = match &kept.lens {
                    Some(lens) => Lens::Mixed(lens),
                    None => Lens::Uniform(kept.per_key as usize),
                };
                let first = lens.total(0, part.keys.start);
                let end = first + lens.total(part.keys.start, part.keys.end);
                kept.values.slice(first..end).bytes()
            }
        };
        let header = Header {
            dtype: T::DTYPE as u8,
            app,
            customer,
            cmd: kept.cmd,
            priority: kept.priority,
            timestamp: part.timestamp,
            session: self.session,
            part: part.part,
            back: back_of(part.timestamp, part.floor),
            map_version: part.version,
            keys: keys.len() as u32,
            lens: kept.lens.as_ref().map_or(0, |_| keys.len() as u32),
            per_key: kept.per_key,
            value_bytes: values.len() as u64,
            ..Header::new(Kind::Data, kept.flags, node.id())
        };
        Outgoing::new(&header, [keys.bytes(), lens, values])
    }
}

impl Node {
    /// Sends a part of an elastic request. What is lost is sent again with the next connection or the next map.
    pub(crate) fn send_part(self: &Arc<Self>, to: NodeId, frame: Outgoing) {
        match self.open_connection(to) {
            Some(connection) => _ = connection.send(frame, Pace::Now),
            None => self.dial_later(to),
        }
    }
}
