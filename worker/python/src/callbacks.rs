//! The threads that tell Python that a collective is done.
//!
//! A callback may wait for collectives that it starts itself, as hooks of DistributedDataParallel do, so it never runs on
//! the thread that runs collectives. Callbacks run one after the other, in the order in which the operations end, which
//! is the same on all ranks: what they start is in one order, too. Those of operations that a callback has started run on a
//! thread of the next level, since the callback may wait for them.
//!
//! # Not promised
//! An order between what callbacks start and what other threads start meanwhile: as with any two threads, that is the
//! program's affair. A callback of an operation that is done already runs at once, in the thread that asks for it.

use std::{
    cell::Cell,
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
};

use crate::work::{Shared, Told};

/// The thread of each level, started when it is first needed.
static LEVELS: Mutex<Vec<mpsc::Sender<Call>>> = Mutex::new(Vec::new());

thread_local! {
    static LEVEL: Cell<usize> = const { Cell::new(0) };
}

/// Callbacks of an operation that is done.
#[derive(Debug)]
struct Call {
    work: Arc<Shared>,
    told: Told,
}

/// How many callbacks the calling thread is within: the level of operations that it starts.
pub(crate) fn level() -> usize {
    LEVEL.get()
}

/// Has the thread of `level` call the callbacks of `work`.
pub(crate) fn tell(level: usize, work: Arc<Shared>, told: Told) {
    let mut levels = LEVELS.lock().unwrap_or_else(PoisonError::into_inner);
    while levels.len() <= level {
        let (sender, calls) = mpsc::channel();
        let own = levels.len() + 1;
        let started = thread::Builder::new()
            .name(format!("elasticrun-call{}", levels.len()))
            .spawn(move || run(own, calls));
        if started.is_err() {
            // The system has no more threads: better here than never.
            drop(levels);
            work.tell(told);
            return;
        }
        levels.push(sender);
    }
    if let Err(mpsc::SendError(Call { work, told })) = levels[level].send(Call { work, told }) {
        drop(levels);
        work.tell(told);
    }
}

fn run(level: usize, calls: mpsc::Receiver<Call>) {
    LEVEL.set(level);
    for Call { work, told } in calls {
        work.tell(told);
    }
}
