//! A server follows the map: it takes part in new chains, splits ranges, and forgets what it has left.

use std::{collections::VecDeque, sync::Arc};

use super::{
    Command, Engine, Filter, Held, Load, Mutant, Op, Pending, Range, State, copy::restricted,
    planted,
};
use crate::core::elastic::{
    balance::RangeLoad,
    map::{ChainMap, ChainRange},
};

impl Engine {
    /// The map of the server.
    pub(crate) fn current_map(&self) -> Option<&ChainMap> {
        self.map.as_ref()
    }

    /// A newer map has come.
    pub(crate) fn map(&mut self, map: &ChainMap, out: &mut Vec<Command>) {
        if self.fenced || map.version <= self.version() || !map.is_complete() {
            return;
        }
        let me = self.me;
        let fresh = self.map.is_none() && map.version == 1;
        self.map = Some(map.clone());
        let left: Vec<u64> = self
            .ranges
            .iter()
            .filter(|(first, range)| !self.keeps(**first, range, map))
            .map(|(&first, _)| first)
            .collect();
        for first in left {
            self.forget(first);
        }
        for wanted in map.ranges.iter().filter(|it| it.chain.contains(&me)) {
            self.take_part(wanted, fresh, out);
        }
        let held = std::mem::take(&mut self.held);
        for held in held {
            match held {
                Held::Request { version, op } => {
                    self.request(version, op.origin, op.body(), out);
                }
                Held::Message { from, message } => self.message(from, message, out),
            }
        }
    }

    /// Whether a range of this server has a future in the map.
    fn keeps(&self, first: u64, range: &Range, map: &ChainMap) -> bool {
        let now = map.range_of(first);
        match range.state {
            State::Member => now.chain.contains(&self.me),
            State::Learning { source, .. } => {
                now.chain.contains(&self.me) || now.tail() == Some(source)
            }
        }
    }

    /// This server is in the chain of a range.
    fn take_part(&mut self, wanted: &ChainRange, fresh: bool, out: &mut Vec<Command>) {
        let first = wanted.first;
        let containing = self.ranges.range(..=first).next_back();
        let containing = containing
            .filter(|(_, range)| range.last >= wanted.last)
            .map(|(&first, _)| first);
        match containing {
            Some(own) => {
                if own < first {
                    self.split(own, first);
                }
                // The upper part of a range that begins here is split off by the next range of the map.
                if self.ranges[&first].last > wanted.last {
                    self.split(first, wanted.last + 1);
                }
            }
            // Only the first map gives ranges that nobody has had before.
            None if fresh => {
                let range = Range {
                    last: wanted.last,
                    chain: Vec::new(),
                    changed: 0,
                    index: 0,
                    filter: Filter::default(),
                    pending: VecDeque::new(),
                    learner: None,
                    state: State::Member,
                    stopped: false,
                    load: Load::default(),
                };
                self.ranges.insert(first, range);
            }
            None => {
                let text = format!("the map gives range {first}, of which there is no copy");
                return out.push(Command::Diverged(text));
            }
        }
        let me = self.me;
        let range = self.ranges.get_mut(&first).expect("it is there now");
        if range.changed == wanted.changed {
            return;
        }
        if let State::Learning { complete, .. } = range.state {
            if !complete {
                let text = format!("the copy of range {first} is not complete");
                return out.push(Command::Diverged(text));
            }
            range.state = State::Member;
        }
        range.chain.clone_from(&wanted.chain);
        range.changed = wanted.changed;
        if range.is_tail(me) {
            if range.learner.is_none() {
                self.answer_pending(first, out);
            }
        } else {
            range.learner = None;
            self.resend(first, out);
        }
    }

    /// Cuts a range in two.
    fn split(&mut self, first: u64, middle: u64) {
        let Some(range) = self.ranges.get_mut(&first) else {
            return;
        };
        let mut upper = Range {
            last: range.last,
            chain: range.chain.clone(),
            changed: range.changed,
            index: range.index,
            filter: match planted(Mutant::SplitDropsFilter) {
                true => Filter::default(),
                false => range.filter.clone(),
            },
            pending: VecDeque::new(),
            learner: None,
            state: State::Member,
            stopped: range.stopped,
            load: Load::default(),
        };
        range.last = middle - 1;
        range.load = Load::default();
        // Numbers go on in both halves, so a push of the other half is kept as one without keys.
        let pending = std::mem::take(&mut range.pending);
        for entry in pending {
            let size = (self.stores.get(&entry.op.origin.app)).map_or(1, |store| store.size());
            let body = entry.op.body();
            let cut = body.keys.partition_point(|&key| key < middle);
            let half = |from, to| Pending {
                op: Arc::new(Op::new(entry.op.origin, restricted(body, from, to, size))),
                index: entry.index,
                kind: entry.kind.half(),
                // The worker sends it again, cut anew. An answer for one half would be one for both.
                answer: false,
            };
            upper.pending.push_back(half(cut, body.keys.len()));
            range.pending.push_back(half(0, cut));
        }
        self.ranges.insert(middle, upper);
    }

    /// The use of all ranges since the last report.
    pub(crate) fn loads(&mut self) -> Vec<RangeLoad> {
        let used = self
            .ranges
            .iter_mut()
            .filter(|(_, range)| range.load.keys > 0);
        used.map(|(&first, range)| {
            let load = std::mem::take(&mut range.load);
            RangeLoad {
                first,
                keys: load.keys,
                middle: load.middle(first),
            }
        })
        .collect()
    }

    /// All keys of a range with their values and what belongs to these, for tests.
    #[cfg(test)]
    pub(crate) fn contents(&self, keys: super::KeyRange) -> Vec<bytes::Bytes> {
        let stores = self.stores.values();
        let chunks = stores.map(|store| store.export(keys, usize::MAX).chunk);
        chunks.collect()
    }
}
