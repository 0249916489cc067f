//! The threads that call Python callbacks when a collective is done.
//!
//! A callback may wait for collectives that it starts itself, as hooks of DistributedDataParallel do. It therefore never runs
//! on the thread that runs collectives. Callbacks run one after the other in the order in which their operations end. That
//! order is the same on all ranks, and so is the order of the operations that callbacks start. Callbacks of operations that a
//! callback has started run on a thread of the next level, because the first callback may wait for them.
//!
//! # Not promised
//! No order between operations that callbacks start and operations that other threads start at the same time. The program must
//! order them, as with any two threads. A callback that is added to a finished operation runs at once, in the calling thread.

use std::{
    cell::Cell,
    sync::{Mutex, PoisonError, mpsc},
    thread,
};

/// The channel to the thread of each level. A thread starts at its first use.
static LEVELS: Mutex<Vec<mpsc::Sender<Call>>> = Mutex::new(Vec::new());

thread_local! {
    static LEVEL: Cell<usize> = const { Cell::new(0) };
}

/// Runs the callbacks of one finished operation.
type Call = Box<dyn FnOnce() + Send>;

/// Nesting depth of callbacks in the calling thread, which is the level of operations that it starts.
pub(crate) fn level() -> usize {
    LEVEL.get()
}

/// Has the thread of `level` run the callbacks of an operation.
pub(crate) fn dispatch(level: usize, call: Call) {
    let mut levels = LEVELS.lock().unwrap_or_else(PoisonError::into_inner);
    while levels.len() <= level {
        let (sender, calls) = mpsc::channel();
        let next_level = levels.len() + 1;
        let started = thread::Builder::new()
            .name(format!("elasticrun-call{}", levels.len()))
            .spawn(move || run(next_level, calls));
        if started.is_err() {
            // No thread could be started, so the callbacks run in this one.
            drop(levels);
            return call();
        }
        levels.push(sender);
    }
    if let Err(mpsc::SendError(call)) = levels[level].send(call) {
        drop(levels);
        call();
    }
}

fn run(level: usize, calls: mpsc::Receiver<Call>) {
    LEVEL.set(level);
    for call in calls {
        call();
    }
}
