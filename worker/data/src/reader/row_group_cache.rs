//! Row groups that are in memory: those being read from, those that were read and may be wanted again after
//! a rollback, and those asked for ahead.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use super::pool::Pool;
use crate::{decode::DecodedGroup, error::Result};

/// See the module.
#[derive(Debug)]
pub(super) struct Shelf {
    pool: Pool<u32, DecodedGroup>,
    held: HashMap<u32, Held>,
    /// Held groups without a reader; the one that was left first comes first.
    idle: VecDeque<u32>,
    /// Groups asked for and not taken yet, with the bytes that they will need.
    ahead: HashMap<u32, u64>,
}

#[derive(Debug)]
struct Held {
    group: Arc<DecodedGroup>,
    /// Open pieces that read from it.
    readers: u32,
}

impl Shelf {
    pub(super) fn new(pool: Pool<u32, DecodedGroup>) -> Self {
        Self {
            pool,
            held: HashMap::new(),
            idle: VecDeque::new(),
            ahead: HashMap::new(),
        }
    }

    /// Bytes in memory, those being read ahead with what they will need.
    pub(super) fn bytes(&self) -> u64 {
        let held: u64 = self.held.values().map(|held| held.group.bytes as u64).sum();
        held + self.bytes_ahead()
    }

    /// Bytes that groups asked for ahead will need.
    pub(super) fn bytes_ahead(&self) -> u64 {
        self.ahead.values().sum()
    }

    /// Whether a group is in memory or on its way there.
    pub(super) fn has(&self, group: u32) -> bool {
        self.held.contains_key(&group) || self.ahead.contains_key(&group)
    }

    /// Asks for a group that will need so many bytes.
    pub(super) fn want(&mut self, group: u32, bytes: u64) {
        self.pool.want(group);
        self.ahead.insert(group, bytes);
    }

    /// A group for one more reader; waits until it is decoded.
    ///
    /// # Errors
    /// What decoding it met. Asking again decodes again.
    pub(super) fn open(&mut self, group: u32) -> Result<Arc<DecodedGroup>> {
        if let Some(held) = self.held.get_mut(&group) {
            if held.readers == 0 {
                self.idle.retain(|idle| *idle != group);
            }
            held.readers += 1;
            return Ok(held.group.clone());
        }
        self.ahead.remove(&group);
        let decoded = Arc::new(self.pool.take(&group)?);
        let held = Held {
            group: decoded.clone(),
            readers: 1,
        };
        self.held.insert(group, held);
        Ok(decoded)
    }

    /// One reader less. The group stays, as a rollback may ask for it, until room is needed.
    pub(super) fn close(&mut self, group: u32) {
        if let Some(held) = self.held.get_mut(&group) {
            held.readers -= 1;
            if held.readers == 0 {
                self.idle.push_back(group);
            }
        }
    }

    /// One reader less, which has a copy of what it still needs; without another the group goes. Gives the
    /// bytes that this frees.
    pub(super) fn leave(&mut self, group: u32) -> u64 {
        let Some(held) = self.held.get_mut(&group) else {
            return 0;
        };
        held.readers -= 1;
        if held.readers > 0 {
            return 0;
        }
        self.held
            .remove(&group)
            .map_or(0, |held| held.group.bytes as u64)
    }

    /// Gives up groups without a reader, the longest unread first, until at most `limit` bytes are held.
    pub(super) fn shrink(&mut self, limit: u64) {
        let mut bytes = self.bytes();
        while bytes > limit {
            let Some(group) = self.idle.pop_front() else {
                return;
            };
            if let Some(held) = self.held.remove(&group) {
                bytes -= held.group.bytes as u64;
            }
        }
    }

    /// Gives up all groups but those to keep. Called while no group has a reader.
    pub(super) fn retain(&mut self, keep: impl Fn(u32) -> bool) {
        self.pool.retain(|group| keep(*group));
        self.held.retain(|group, _| keep(*group));
        self.idle.retain(|group| keep(*group));
        self.ahead.retain(|group, _| keep(*group));
    }
}
