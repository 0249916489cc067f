//! The queue of the collectives of a round, and the thread that runs them in the order of their submission.

use std::{
    collections::VecDeque,
    fmt, mem,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use elasticrun_worker::{Group, GroupError, Observer, worker::ErrorClassifier};
use pyo3::prelude::*;

use crate::work::{Outcome, Shared, Work};

/// An operation on the group, which the thread of the queue runs.
pub(crate) type Task =
    Box<dyn FnOnce(&mut Group, &mut Scratch) -> Result<Outcome, GroupError> + Send>;

/// Memory for data that needs another layout than the caller's. It is reused, because fresh pages are slow.
pub(crate) type Scratch = Vec<u64>;

/// The collectives of a round, which run one after the other on a separate thread.
#[pyclass(frozen, module = "elasticrun._native")]
#[derive(Debug)]
pub(crate) struct CollectiveQueue {
    queue: Arc<Inner>,
    thread: Mutex<Option<JoinHandle<()>>>,
    judge: ErrorClassifier,
    observer: Observer,
    #[pyo3(get)]
    pub(crate) rank: u32,
    #[pyo3(get)]
    pub(crate) size: u32,
}

/// The result of one attempt to take the group.
#[expect(
    clippy::large_enum_variant,
    reason = "the only caller destructures it at once"
)]
enum TryTake {
    Group(Group),
    Busy,
    Closed,
}

/// Interval at which a wait for the group checks for signals.
const SIGNAL_POLL: Duration = Duration::from_millis(100);

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    tasks: VecDeque<(Task, Arc<Shared>)>,
    /// `None` while an operation runs or a caller has borrowed it.
    group: Option<Group>,
    failure: Option<GroupError>,
    closed: bool,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("tasks", &self.tasks.len())
            .field("group", &self.group)
            .field("failure", &self.failure)
            .field("closed", &self.closed)
            .finish()
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let waited = self.changed.wait(state);
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    /// The loop of the queue's thread.
    fn run(&self, judge: &ErrorClassifier) {
        let mut scratch = Scratch::new();
        let mut state = self.lock();
        loop {
            let ready = state.group.is_some() && !state.tasks.is_empty();
            if !ready {
                if state.closed && state.tasks.is_empty() {
                    return;
                }
                state = self.wait(state);
                continue;
            }
            let (Some(mut group), Some((task, work))) =
                (state.group.take(), state.tasks.pop_front())
            else {
                return;
            };
            drop(state);
            let outcome = task(&mut group, &mut scratch);
            state = self.lock();
            if let Err(error) = &outcome
                && !matches!(error, GroupError::Argument(_))
            {
                // A caller that reads the result without a wait gets no error, so no commit may contain it.
                judge.refuse_commits();
                state.failure.get_or_insert_with(|| error.clone());
            }
            state.group = Some(group);
            drop(state);
            self.changed.notify_all();
            work.complete(outcome);
            state = self.lock();
        }
    }
}

impl CollectiveQueue {
    /// Starts the thread.
    pub(crate) fn start(group: Group, judge: ErrorClassifier) -> PyResult<Self> {
        let topology = *group.topology();
        let observer = group.observer();
        let queue = Arc::new(Inner {
            state: Mutex::new(State {
                tasks: VecDeque::new(),
                group: Some(group),
                failure: None,
                closed: false,
            }),
            changed: Condvar::new(),
        });
        let thread = thread::Builder::new()
            .name("elasticrun-coll".into())
            .spawn({
                let (queue, judge) = (Arc::clone(&queue), judge.clone());
                move || queue.run(&judge)
            })?;
        Ok(Self {
            queue,
            thread: Mutex::new(Some(thread)),
            judge,
            observer,
            rank: topology.rank,
            size: topology.size,
        })
    }

    /// Queues `task` behind those that were submitted before.
    pub(crate) fn submit(&self, task: Task, keep: Option<Py<PyAny>>, name: Option<String>) -> Work {
        let work = Shared::new(name, self.judge.clone(), self.observer.clone(), keep);
        let mut state = self.queue.lock();
        if state.closed {
            let failure = state.failure.clone();
            drop(state);
            work.complete(Err(failure.unwrap_or_else(|| {
                GroupError::Config("the round of this queue is over".to_owned())
            })));
        } else {
            state.tasks.push_back((task, Arc::clone(&work)));
            drop(state);
            self.queue.changed.notify_all();
        }
        Work(work)
    }

    /// Runs `body` with the group on this thread, after all submitted tasks. The wait and `body` run without the GIL. The main
    /// thread checks for signals while it waits. `None` if the queue is closed.
    pub(crate) fn borrow<R: Send>(
        &self,
        py: Python<'_>,
        body: impl FnOnce(&mut Group) -> R + Send,
    ) -> PyResult<Option<R>> {
        let mut group = loop {
            match py.detach(|| self.take()) {
                TryTake::Group(group) => break group,
                TryTake::Closed => return Ok(None),
                TryTake::Busy => py.check_signals()?,
            }
        };
        Ok(Some(py.detach(|| {
            let result = body(&mut group);
            self.queue.lock().group = Some(group);
            self.queue.changed.notify_all();
            result
        })))
    }

    /// Takes the group once all submitted tasks are done. Waits at most [`SIGNAL_POLL`].
    fn take(&self) -> TryTake {
        let state = self.queue.lock();
        let busy =
            |state: &mut State| !state.closed && (!state.tasks.is_empty() || state.group.is_none());
        let waited = self
            .queue
            .changed
            .wait_timeout_while(state, SIGNAL_POLL, busy);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        if state.closed {
            return TryTake::Closed;
        }
        match state.tasks.is_empty() {
            true => state.group.take().map_or(TryTake::Busy, TryTake::Group),
            false => TryTake::Busy,
        }
    }

    /// Refuses further commits of the round.
    pub(crate) fn refuse_commits(&self) {
        self.judge.refuse_commits();
    }

    /// The error of the first operation that failed.
    pub(crate) fn failure(&self) -> Option<GroupError> {
        self.queue.lock().failure.clone()
    }

    /// Closes the queue: fails the queued tasks, waits for the running one and drops the group. The caller has released the
    /// GIL. An operation that other ranks will not join ends when they leave.
    pub(crate) fn close(&self) {
        let mut state = self.queue.lock();
        state.closed = true;
        let tasks = mem::take(&mut state.tasks);
        let failure = state.failure.clone();
        drop(state);
        self.queue.changed.notify_all();
        for (_, work) in tasks {
            let gone = || GroupError::Config("the round of this queue is over".to_owned());
            work.complete(Err(failure.clone().unwrap_or_else(gone)));
        }
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread {
            // A panic of the thread was printed there.
            let _ = thread.join();
        }
        drop(self.queue.lock().group.take());
    }
}
