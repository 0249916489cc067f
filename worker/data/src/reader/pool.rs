//! A pool of threads that decode ahead of a reader.
//!
//! A job is queued, then running, then done. Its result is returned once. Jobs run in the order of the queue. Jobs
//! that are no longer wanted are removed in any state.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    hash::Hash,
    mem, process,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
};

use crate::error::Result;

/// Runs jobs `J` with results `R`. Dropping it waits for running jobs.
#[derive(Debug)]
pub(crate) struct Pool<J, R> {
    shared: Arc<Shared<J, R>>,
    threads: Vec<JoinHandle<()>>,
    /// The process that has the threads.
    owner: u32,
}

#[derive(Debug)]
struct Shared<J, R> {
    state: Mutex<State<J, R>>,
    /// Signals a queued job, or the end.
    queued: Condvar,
    /// Signals a finished job.
    done: Condvar,
}

#[derive(Debug)]
struct State<J, R> {
    /// All jobs that are queued, running or done.
    known: HashSet<J>,
    queue: VecDeque<J>,
    running: HashSet<J>,
    done: HashMap<J, Result<R>>,
    /// Threads that wait for a job and callers that wait for a result. A notification without a waiter costs as much
    /// as one with a waiter, so it is avoided.
    idle: usize,
    waiters: usize,
    is_closed: bool,
}

impl<J: Clone + Eq + Hash + Send + 'static, R: Send + 'static> Pool<J, R> {
    pub(crate) fn new(
        threads: usize,
        decode: impl Fn(&J) -> Result<R> + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let state = State {
            known: HashSet::new(),
            queue: VecDeque::new(),
            running: HashSet::new(),
            done: HashMap::new(),
            idle: 0,
            waiters: 0,
            is_closed: false,
        };
        let shared = Shared {
            state: Mutex::new(state),
            queued: Condvar::new(),
            done: Condvar::new(),
        };
        let mut pool = Self {
            shared: Arc::new(shared),
            threads: Vec::new(),
            owner: process::id(),
        };
        let decode = Arc::new(decode);
        for number in 0..threads.max(1) {
            let (shared, decode) = (pool.shared.clone(), decode.clone());
            let thread = thread::Builder::new()
                .name(format!("decode-{number}"))
                .spawn(move || shared.run_jobs(&*decode))?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    /// Queues a job unless it is known.
    pub(crate) fn prefetch(&self, job: J) {
        let mut state = self.shared.lock();
        if state.known.insert(job.clone()) {
            state.queue.push_back(job);
            self.shared.wake(state);
        }
    }

    /// Waits for the result of a job. An unknown job is queued before all others.
    pub(crate) fn wait(&self, job: &J) -> Result<R> {
        let mut state = self.shared.lock();
        if state.known.insert(job.clone()) {
            state.queue.push_front(job.clone());
            self.shared.wake(state);
            state = self.shared.lock();
        }
        loop {
            if let Some(result) = state.done.remove(job) {
                state.known.remove(job);
                return result;
            }
            state.waiters += 1;
            state = self
                .shared
                .done
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            state.waiters -= 1;
        }
    }

    /// Removes all jobs except those to keep.
    pub(crate) fn retain(&self, keep: impl Fn(&J) -> bool) {
        let mut state = self.shared.lock();
        state.known.retain(&keep);
        state.queue.retain(&keep);
        state.running.retain(&keep);
        state.done.retain(|job, _| keep(job));
    }
}

impl<J, R> Drop for Pool<J, R> {
    fn drop(&mut self) {
        if process::id() != self.owner {
            // A process that was forked from the owner has no such threads, and one of them may have held the lock.
            mem::forget(mem::take(&mut self.threads));
            return;
        }
        let mut state = self.shared.lock();
        state.is_closed = true;
        state.queue.clear();
        drop(state);
        self.shared.queued.notify_all();
        for thread in self.threads.drain(..) {
            // The panic was printed already, and no caller is left to report it to.
            let _ = thread.join();
        }
    }
}

impl<J, R> Shared<J, R> {
    fn lock(&self) -> MutexGuard<'_, State<J, R>> {
        // No code panics under the lock, and the state would be consistent in any case.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes a thread for a queued job. The lock is released first, since the thread needs it.
    fn wake(&self, state: MutexGuard<'_, State<J, R>>) {
        let is_idle = state.idle > 0;
        drop(state);
        if is_idle {
            self.queued.notify_one();
        }
    }
}

impl<J: Clone + Eq + Hash, R> Shared<J, R> {
    fn run_jobs(&self, decode: &dyn Fn(&J) -> Result<R>) {
        let mut state = self.lock();
        while !state.is_closed {
            let Some(job) = state.queue.pop_front() else {
                state.idle += 1;
                state = self
                    .queued
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
                continue;
            };
            state.running.insert(job.clone());
            drop(state);
            let result = decode(&job);
            state = self.lock();
            // Otherwise the job was removed in the meantime.
            if state.running.remove(&job) {
                state.done.insert(job, result);
                if state.waiters > 0 {
                    drop(state);
                    self.done.notify_all();
                    state = self.lock();
                }
            }
        }
    }
}
