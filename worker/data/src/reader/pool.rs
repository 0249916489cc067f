//! Threads that decode ahead of a reader.
//!
//! A job is wanted, then running, then done, and its result is taken once. Wanted jobs are done in the order in
//! which they were asked for; a job that is not wanted any more is forgotten wherever it is.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    hash::Hash,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
};

use crate::error::Result;

/// See the module: jobs `J` with results `R`. Dropping it waits for the jobs that are being done.
#[derive(Debug)]
pub(crate) struct Pool<J, R> {
    shared: Arc<Shared<J, R>>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared<J, R> {
    state: Mutex<State<J, R>>,
    /// Something is wanted, or the end.
    wanted: Condvar,
    /// Something is done.
    done: Condvar,
}

#[derive(Debug)]
struct State<J, R> {
    /// All that are wanted, running or done.
    known: HashSet<J>,
    wanted: VecDeque<J>,
    running: HashSet<J>,
    done: HashMap<J, Result<R>>,
    /// Threads that wait for a job, and those that wait for a result: to wake nobody costs as much as to wake somebody.
    idle: usize,
    takers: usize,
    end: bool,
}

impl<J: Clone + Eq + Hash + Send + 'static, R: Send + 'static> Pool<J, R> {
    pub(crate) fn new(
        threads: usize,
        decode: impl Fn(&J) -> Result<R> + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let state = State {
            known: HashSet::new(),
            wanted: VecDeque::new(),
            running: HashSet::new(),
            done: HashMap::new(),
            idle: 0,
            takers: 0,
            end: false,
        };
        let shared = Shared {
            state: Mutex::new(state),
            wanted: Condvar::new(),
            done: Condvar::new(),
        };
        let mut pool = Self {
            shared: Arc::new(shared),
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

    /// Asks for a job, unless that was done before.
    pub(crate) fn want(&self, job: J) {
        let mut state = self.shared.lock();
        if state.known.insert(job.clone()) {
            state.wanted.push_back(job);
            self.shared.wake(state);
        }
    }

    /// The result of a job, once it is done. Asks for it ahead of all others if it was not asked for.
    pub(crate) fn take(&self, job: &J) -> Result<R> {
        let mut state = self.shared.lock();
        if state.known.insert(job.clone()) {
            state.wanted.push_front(job.clone());
            self.shared.wake(state);
            state = self.shared.lock();
        }
        loop {
            if let Some(result) = state.done.remove(job) {
                state.known.remove(job);
                return result;
            }
            state.takers += 1;
            state = self
                .shared
                .done
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            state.takers -= 1;
        }
    }

    /// Forgets all jobs but those to keep.
    pub(crate) fn retain(&self, keep: impl Fn(&J) -> bool) {
        let mut state = self.shared.lock();
        state.known.retain(&keep);
        state.wanted.retain(&keep);
        state.running.retain(&keep);
        state.done.retain(|job, _| keep(job));
    }
}

impl<J, R> Drop for Pool<J, R> {
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

impl<J, R> Shared<J, R> {
    fn lock(&self) -> MutexGuard<'_, State<J, R>> {
        // No one panics under the lock; were it so, the state would still be whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more is wanted. Whoever is woken wants the lock, which is free then.
    fn wake(&self, state: MutexGuard<'_, State<J, R>>) {
        let is_idle = state.idle > 0;
        drop(state);
        if is_idle {
            self.wanted.notify_one();
        }
    }
}

impl<J: Clone + Eq + Hash, R> Shared<J, R> {
    fn work(&self, decode: &dyn Fn(&J) -> Result<R>) {
        let mut state = self.lock();
        while !state.end {
            let Some(job) = state.wanted.pop_front() else {
                state.idle += 1;
                state = self
                    .wanted
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
                continue;
            };
            state.running.insert(job.clone());
            drop(state);
            let result = decode(&job);
            state = self.lock();
            // Else it was forgotten meanwhile.
            if state.running.remove(&job) {
                state.done.insert(job, result);
                if state.takers > 0 {
                    drop(state);
                    self.done.notify_all();
                    state = self.lock();
                }
            }
        }
    }
}
