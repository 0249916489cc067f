//! Threads that decode row groups ahead of the reader.
//!
//! A group is wanted, then running, then done, and is taken once. Wanted groups are decoded in the order in
//! which they were asked for; a group that is not wanted any more is forgotten wherever it is.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
};

use crate::{decode::DecodedGroup, error::Result};

/// See the module. Dropping it waits for the groups that are being decoded.
#[derive(Debug)]
pub(super) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Something is wanted, or the end.
    wanted: Condvar,
    /// Something is done.
    done: Condvar,
}

#[derive(Debug, Default)]
struct State {
    wanted: VecDeque<u32>,
    running: HashSet<u32>,
    done: HashMap<u32, Result<DecodedGroup>>,
    end: bool,
}

impl Pool {
    pub(super) fn new(
        threads: usize,
        decode: impl Fn(u32) -> Result<DecodedGroup> + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let mut pool = Self {
            shared: Arc::default(),
            threads: Vec::new(),
        };
        let decode = Arc::new(decode);
        for number in 0..threads.max(1) {
            let (shared, decode) = (pool.shared.clone(), decode.clone());
            let thread = thread::Builder::new()
                .name(format!("decode-{number}"))
                .spawn(move || shared.work(&*decode))?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    /// Asks for a group, unless that was done before.
    pub(super) fn want(&self, group: u32) {
        let mut state = self.shared.lock();
        if !state.knows(group) {
            state.wanted.push_back(group);
            self.shared.wanted.notify_one();
        }
    }

    /// A group, once it is decoded. Asks for it ahead of all others if it was not asked for.
    pub(super) fn take(&self, group: u32) -> Result<DecodedGroup> {
        let mut state = self.shared.lock();
        if !state.knows(group) {
            state.wanted.push_front(group);
            self.shared.wanted.notify_one();
        }
        loop {
            if let Some(result) = state.done.remove(&group) {
                return result;
            }
            state = self
                .shared
                .done
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Forgets all groups but those to keep.
    pub(super) fn retain(&self, keep: impl Fn(u32) -> bool) {
        let mut state = self.shared.lock();
        state.wanted.retain(|group| keep(*group));
        state.running.retain(|group| keep(*group));
        state.done.retain(|group, _| keep(*group));
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.end = true;
        state.wanted.clear();
        drop(state);
        self.shared.wanted.notify_all();
        for thread in self.threads.drain(..) {
            // What it panicked with was printed; there is nobody to tell here.
            let _ = thread.join();
        }
    }
}

impl State {
    fn knows(&self, group: u32) -> bool {
        self.running.contains(&group)
            || self.done.contains_key(&group)
            || self.wanted.contains(&group)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No one panics under the lock; were it so, the state would still be whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, decode: &dyn Fn(u32) -> Result<DecodedGroup>) {
        let mut state = self.lock();
        while !state.end {
            let Some(group) = state.wanted.pop_front() else {
                state = self
                    .wanted
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            state.running.insert(group);
            drop(state);
            let result = decode(group);
            state = self.lock();
            // Else it was forgotten meanwhile.
            if state.running.remove(&group) {
                state.done.insert(group, result);
                self.done.notify_all();
            }
        }
    }
}
