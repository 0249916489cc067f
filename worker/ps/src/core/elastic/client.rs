//! The requests of a worker that are not answered: in which parts they were sent, and what is sent again.
//!
//! A request is cut into a part for each range. A part is sent again when the chain of its range changes or the connection broke,
//! and is cut anew if its range was split. Servers apply it once. An answer names its part, so it does not matter which server
//! sends it.
//!
//! # Invariants
//! - PC1 A part is answered once: [`Requests::claim`] gives it to one receiver.
//! - PC2 Each part of a request is sent, or waits for a map that is to come, or is being received.

use std::{collections::BTreeMap, ops::Range};

use super::map::ChainMap;
use crate::core::{node::NodeId, ranges::KeyRange};

/// A part that is to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) timestamp: u64,
    pub(crate) part: u16,
    pub(crate) to: NodeId,
    /// Positions in the list of keys.
    pub(crate) keys: Range<usize>,
    /// The version of the map by which it was cut.
    pub(crate) version: u64,
    /// The lowest timestamp that the worker waits for.
    pub(crate) floor: u64,
}

/// Why a request cannot be served any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// All copies of its keys are lost.
    Lost(KeyRange),
    /// It was cut too often.
    TooManyParts,
}

/// Where a part is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// Sent by this version of the map, in which its chain was changed last in another one.
    Sent { version: u64, changed: u64 },
    /// It waits for this version of the map or a later one.
    Waiting { version: u64 },
    /// Its answer is being received.
    Receiving,
}

#[derive(Clone, Debug)]
struct Open {
    keys: Range<usize>,
    state: State,
}

#[derive(Debug)]
struct Request<K> {
    keys: K,
    push: bool,
    next: u16,
    parts: BTreeMap<u16, Open>,
}

/// The requests of one customer that are not answered. `K` are the keys of a request, shared with the caller.
#[derive(Debug)]
pub(crate) struct Requests<K> {
    map: Option<ChainMap>,
    requests: BTreeMap<u64, Request<K>>,
    next: u64,
}

impl<K> Default for Requests<K> {
    fn default() -> Self {
        Self {
            map: None,
            requests: BTreeMap::new(),
            next: 0,
        }
    }
}

impl<K: AsRef<[u64]>> Requests<K> {
    /// Begins a request. Timestamps ascend.
    pub(crate) fn begin(
        &mut self,
        timestamp: u64,
        keys: K,
        push: bool,
    ) -> Result<Vec<Part>, Failure> {
        self.next = timestamp + 1;
        let whole = Open {
            keys: 0..keys.as_ref().len(),
            state: State::Waiting { version: 0 },
        };
        let request = Request {
            keys,
            push,
            next: 1,
            parts: BTreeMap::from([(0, whole)]),
        };
        self.requests.insert(timestamp, request);
        let mut parts = Vec::new();
        match self.send(timestamp, |_| true, &mut parts) {
            Ok(()) => Ok(parts),
            Err(failure) => {
                self.requests.remove(&timestamp);
                Err(failure)
            }
        }
    }

    /// Whether a map has come.
    pub(crate) fn has_map(&self) -> bool {
        self.map.is_some()
    }

    /// The lowest timestamp that is waited for.
    fn floor(&self) -> u64 {
        let first = self.requests.first_key_value();
        first.map_or(self.next, |(&timestamp, _)| timestamp)
    }

    /// Sends these parts of a request by the current map, as far as they are not being received.
    fn send(
        &mut self,
        timestamp: u64,
        which: impl Fn(&Open) -> bool,
        out: &mut Vec<Part>,
    ) -> Result<(), Failure> {
        let floor = self.floor();
        let Some(map) = &self.map else { return Ok(()) };
        let Some(request) = self.requests.get_mut(&timestamp) else {
            return Ok(());
        };
        let all = request.keys.as_ref();
        let wanted = request.parts.iter();
        let wanted: Vec<u16> = wanted
            .filter(|(_, open)| open.state != State::Receiving && which(open))
            .map(|(&part, _)| part)
            .collect();
        for mut part in wanted {
            let Some(Open { keys, .. }) = request.parts.remove(&part) else {
                continue;
            };
            let mut first = keys.start;
            // The first piece keeps the number only if it is the whole part: an answer for it may still come.
            let whole = all[keys.end - 1] <= map.range_of(all[first]).last;
            while first < keys.end {
                let range = map.range_of(all[first]);
                let rest = &all[first..keys.end];
                let end = first + rest.partition_point(|&key| key <= range.last);
                let to = if request.push {
                    range.head()
                } else {
                    range.tail()
                };
                let to = to.ok_or(Failure::Lost(range.keys()))?;
                if !whole {
                    part = request.next;
                    request.next = part.checked_add(1).ok_or(Failure::TooManyParts)?;
                }
                let state = State::Sent {
                    version: map.version,
                    changed: range.changed,
                };
                let keys = first..end;
                request.parts.insert(
                    part,
                    Open {
                        keys: keys.clone(),
                        state,
                    },
                );
                out.push(Part {
                    timestamp,
                    part,
                    to,
                    keys,
                    version: map.version,
                    floor,
                });
                first = end;
            }
        }
        Ok(())
    }

    /// Sends parts of all requests, and ends the requests that cannot be served.
    fn send_all(
        &mut self,
        which: impl Fn(&K, &Open, bool, &ChainMap) -> bool,
    ) -> (Vec<Part>, Vec<(u64, Failure)>) {
        let (mut parts, mut failures) = (Vec::new(), Vec::new());
        let Some(map) = self.map.clone() else {
            return (parts, failures);
        };
        let timestamps: Vec<u64> = self.requests.keys().copied().collect();
        for timestamp in timestamps {
            let request = &self.requests[&timestamp];
            let chosen: Vec<Range<usize>> = (request.parts.values())
                .filter(|open| which(&request.keys, open, request.push, &map))
                .map(|open| open.keys.clone())
                .collect();
            if chosen.is_empty() {
                continue;
            }
            let sent = self.send(timestamp, |open| chosen.contains(&open.keys), &mut parts);
            if let Err(failure) = sent {
                self.requests.remove(&timestamp);
                failures.push((timestamp, failure));
            }
        }
        (parts, failures)
    }

    /// A newer map has come. Returns what is sent again, and what has failed.
    pub(crate) fn map(&mut self, map: &ChainMap) -> (Vec<Part>, Vec<(u64, Failure)>) {
        let newer = self
            .map
            .as_ref()
            .is_none_or(|own| map.version > own.version);
        if !newer || !map.is_complete() {
            return (Vec::new(), Vec::new());
        }
        self.map = Some(map.clone());
        self.send_all(|keys, open, _, map| {
            let keys = &keys.as_ref()[open.keys.clone()];
            let range = map.range_of(keys[0]);
            match open.state {
                State::Sent { changed, .. } => changed != range.changed,
                State::Waiting { version } => version <= map.version,
                State::Receiving => false,
            }
        })
    }

    /// The connection to a server is a new one: requests and answers may be lost.
    pub(crate) fn link_reset(&mut self, node: NodeId) -> (Vec<Part>, Vec<(u64, Failure)>) {
        self.send_all(|keys, open, _, map| {
            let range = map.range_of(keys.as_ref()[open.keys.start]);
            matches!(open.state, State::Sent { .. }) && range.chain.contains(&node)
        })
    }

    /// A server does not serve the range of a part that was sent by version `asked` of the map. `version` is that of the map which says
    /// who does. Nothing follows from it if the part was sent by a later version since.
    pub(crate) fn moved(
        &mut self,
        (timestamp, part): (u64, u16),
        asked: u64,
        version: u64,
    ) -> Vec<Part> {
        let own = self.map.as_ref().map_or(0, |map| map.version);
        let open =
            (self.requests.get_mut(&timestamp)).and_then(|request| request.parts.get_mut(&part));
        let mut parts = Vec::new();
        if let Some(open) = open
            && let State::Sent { version: sent, .. } = open.state
            && sent == asked
        {
            // The map by which it was sent was wrong in any case.
            let version = version.max(asked + 1);
            open.state = State::Waiting { version };
            if version <= own {
                let keys = open.keys.clone();
                // It cannot fail: a later map would have failed it already.
                let _ = self.send(timestamp, |open| open.keys == keys, &mut parts);
            }
        }
        parts
    }

    /// Whether a request still waits for the answer of a part. If so, the caller receives it, and nobody else.
    pub(crate) fn claim(&mut self, timestamp: u64, part: u16) -> Option<Range<usize>> {
        let open = self
            .requests
            .get_mut(&timestamp)?
            .parts
            .get_mut(&part)
            .filter(|open| open.state != State::Receiving)?;
        open.state = State::Receiving;
        Some(open.keys.clone())
    }

    /// The answer was not received as a whole. Returns what is sent again.
    pub(crate) fn unclaim(&mut self, timestamp: u64, part: u16) -> Vec<Part> {
        let mut parts = Vec::new();
        let open =
            (self.requests.get_mut(&timestamp)).and_then(|request| request.parts.get_mut(&part));
        if let Some(open) = open {
            open.state = State::Waiting { version: 0 };
            let keys = open.keys.clone();
            let _ = self.send(timestamp, |open| open.keys == keys, &mut parts);
        }
        parts
    }

    /// A claimed answer was received. Returns whether the request is complete.
    pub(crate) fn answered(&mut self, timestamp: u64, part: u16) -> bool {
        let Some(request) = self.requests.get_mut(&timestamp) else {
            return false;
        };
        request.parts.remove(&part);
        let complete = request.parts.is_empty();
        if complete {
            self.requests.remove(&timestamp);
        }
        complete
    }

    /// Nobody waits for the request any more.
    pub(crate) fn forget(&mut self, timestamp: u64) {
        self.requests.remove(&timestamp);
    }

    /// The requests that are not complete.
    pub(crate) fn open(&self) -> Vec<u64> {
        self.requests.keys().copied().collect()
    }
}
