//! The thread that runs the collectives of a round, in the order of their submission.

use std::{
    collections::VecDeque,
    fmt, mem,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use elasticrun_worker::{Group, GroupError, Observer, worker::Judge};
use pyo3::prelude::*;

use crate::work::{Outcome, Shared, Work};

/// What the lane's thread does with the group.
pub(crate) type Task =
    Box<dyn FnOnce(&mut Group, &mut Scratch) -> Result<Outcome, GroupError> + Send>;

/// Memory for what does not fit the caller's layout, kept from call to call since fresh pages are slow.
pub(crate) type Scratch = Vec<u64>;

/// The collectives of a round.
#[pyclass(frozen, module = "elasticrun._native")]
#[derive(Debug)]
pub(crate) struct Lane {
    queue: Arc<Queue>,
    thread: Mutex<Option<JoinHandle<()>>>,
    judge: Judge,
    observer: Observer,
    #[pyo3(get)]
    pub(crate) rank: u32,
    #[pyo3(get)]
    pub(crate) size: u32,
}

/// What came of asking for the group.
#[expect(
    clippy::large_enum_variant,
    reason = "it is taken apart where it is made"
)]
enum Taken {
    Group(Group),
    Later,
    Closed,
}

/// How long a wait for the group lasts before it looks for signals.
const LOOK: Duration = Duration::from_millis(100);

#[derive(Debug)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    tasks: VecDeque<(Task, Arc<Shared>)>,
    /// `None` while an operation runs, or somebody has borrowed it.
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

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let waited = self.changed.wait(state);
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    /// The lane's thread.
    fn run(&self, judge: &Judge) {
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
                // Who looks at the result without a wait does not hear of it.
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

impl Lane {
    /// Starts the thread.
    pub(crate) fn start(group: Group, judge: Judge) -> PyResult<Self> {
        let topology = *group.topology();
        let observer = group.observer();
        let queue = Arc::new(Queue {
            state: Mutex::new(State {
                tasks: VecDeque::new(),
                group: Some(group),
                failure: None,
                closed: false,
            }),
            changed: Condvar::new(),
        });
        let thread = thread::Builder::new()
            .name("elasticrun-lane".into())
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

    /// Has the thread run `task` after all that were submitted before.
    pub(crate) fn submit(&self, task: Task, keep: Option<Py<PyAny>>, name: Option<String>) -> Work {
        let work = Shared::new(name, self.judge.clone(), self.observer.clone(), keep);
        let mut state = self.queue.lock();
        if state.closed {
            let failure = state.failure.clone();
            drop(state);
            work.complete(Err(failure.unwrap_or_else(|| {
                GroupError::Config("the round of this lane is over".to_owned())
            })));
        } else {
            state.tasks.push_back((task, Arc::clone(&work)));
            drop(state);
            self.queue.changed.notify_all();
        }
        Work(work)
    }

    /// Runs `body` with the group on this thread, after all that was submitted. Both without the GIL; while it waits, the
    /// main thread looks for signals. `None` if the lane is closed.
    pub(crate) fn borrow<R: Send>(
        &self,
        py: Python<'_>,
        body: impl FnOnce(&mut Group) -> R + Send,
    ) -> PyResult<Option<R>> {
        let mut group = loop {
            match py.detach(|| self.take()) {
                Taken::Group(group) => break group,
                Taken::Closed => return Ok(None),
                Taken::Later => py.check_signals()?,
            }
        };
        Ok(Some(py.detach(|| {
            let result = body(&mut group);
            self.queue.lock().group = Some(group);
            self.queue.changed.notify_all();
            result
        })))
    }

    /// The group, once all that was submitted is done; waits for a moment.
    fn take(&self) -> Taken {
        let state = self.queue.lock();
        let busy =
            |state: &mut State| !state.closed && (!state.tasks.is_empty() || state.group.is_none());
        let waited = self.queue.changed.wait_timeout_while(state, LOOK, busy);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        if state.closed {
            return Taken::Closed;
        }
        match state.tasks.is_empty() {
            true => state.group.take().map_or(Taken::Later, Taken::Group),
            false => Taken::Later,
        }
    }

    /// From now on commits of the round are refused.
    pub(crate) fn refuse_commits(&self) {
        self.judge.refuse_commits();
    }

    /// Why the first operation that failed did so.
    pub(crate) fn failure(&self) -> Option<GroupError> {
        self.queue.lock().failure.clone()
    }

    /// Ends the lane: what is queued fails, what runs is waited for, and the group is dropped. Without the
    /// GIL. An operation that others will not take part in ends when they leave.
    pub(crate) fn close(&self) {
        let mut state = self.queue.lock();
        state.closed = true;
        let tasks = mem::take(&mut state.tasks);
        let session = state.failure.clone();
        drop(state);
        self.queue.changed.notify_all();
        for (_, work) in tasks {
            let gone = || GroupError::Config("the round of this lane is over".to_owned());
            work.complete(Err(session.clone().unwrap_or_else(gone)));
        }
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread {
            // It panicked on its own thread if it did, and said so there.
            let _ = thread.join();
        }
        drop(self.queue.lock().group.take());
    }
}
