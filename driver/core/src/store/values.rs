//! The bytes of values. A value has one holder or several: a key, a queue, workers that read it in pieces.

use std::collections::BTreeMap;

/// The number of a value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct ValueId(u64);

#[derive(Clone, Debug)]
struct Held {
    bytes: Vec<u8>,
    holders: usize,
}

/// All values that have a holder. Each counts once.
#[derive(Clone, Debug, Default)]
pub(super) struct Values {
    held: BTreeMap<ValueId, Held>,
    /// The number of the last value.
    last: u64,
    bytes: usize,
}

impl Values {
    /// The size of all values.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a value with one holder.
    pub(super) fn insert(&mut self, bytes: Vec<u8>) -> ValueId {
        self.last += 1;
        self.bytes += bytes.len();
        let id = ValueId(self.last);
        self.held.insert(id, Held { bytes, holders: 1 });
        id
    }

    pub(super) fn get(&self, id: ValueId) -> &[u8] {
        self.held.get(&id).map_or(&[], |held| &held.bytes)
    }

    /// Adds a holder.
    pub(super) fn hold(&mut self, id: ValueId) {
        if let Some(held) = self.held.get_mut(&id) {
            held.holders += 1;
        }
    }

    /// Removes a holder. The value goes with the last one.
    pub(super) fn release(&mut self, id: ValueId) {
        if let Some(held) = self.held.get_mut(&id) {
            held.holders -= 1;
            if held.holders == 0 {
                self.bytes -= held.bytes.len();
                self.held.remove(&id);
            }
        }
    }

    /// The bytes that go with one holder.
    pub(super) fn freed_by_release(&self, id: ValueId) -> usize {
        match self.held.get(&id) {
            Some(held) if held.holders == 1 => held.bytes.len(),
            _ => 0,
        }
    }

    /// Appends to the value of one holder. Other holders keep the value as it was.
    pub(super) fn append(&mut self, id: ValueId, more: &[u8]) -> ValueId {
        match self.held.get_mut(&id) {
            Some(held) if held.holders == 1 => {
                held.bytes.extend_from_slice(more);
                self.bytes += more.len();
                id
            }
            _ => {
                let whole = [self.get(id), more].concat();
                self.release(id);
                self.insert(whole)
            }
        }
    }
}
