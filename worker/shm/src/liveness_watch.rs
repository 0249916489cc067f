//! The agent's watch over the liveness of one worker ([`crate::liveness`]). It takes 0.1 ms from kill to callback,
//! whatever amount of memory the worker has.
//!
//! # How to handle an end
//! - D1 `Died` without `exiting`: abort the round now. Then send SIGKILL through the pidfd, which is harmless for a dead
//!   process and necessary if only its SDK thread has ended (A1). Reap the process when the pidfd is readable.
//! - D2 `Died` with `exiting`: the exit status gives the cause, and the phase tells whether a round lost the worker.
//! - D3 A worker may die before it holds the futex, or in good order by `_exit`. The pidfd reports every end.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use crate::{
    futex,
    liveness::{OWNER_DIED, OWNER_MASK, RELEASED, WAITERS},
    page::{AgentPage, Phase},
};

/// How the liveness of a worker ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LivenessEnd {
    /// The thread that held the futex has ended.
    Died {
        /// The phase in which an orderly `exit()` began; `None` for a sudden death.
        exiting: Option<Phase>,
    },
    /// The worker released the futex. The pidfd reports its exit.
    Released,
}

/// A thread that sleeps until the liveness of a worker ends. A page may have one watch at a time.
///
/// The watch may start before the worker has attached. Dropping it cancels the watch and joins the thread.
#[derive(Debug)]
pub struct LivenessWatch {
    page: AgentPage,
    cancelled: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

const STACK: usize = 128 * 1024;

impl LivenessWatch {
    /// Starts the watch. It calls `on_end` once on its thread, or never if the watch is cancelled first. `on_end` must be
    /// short, such as a send on a channel, and has a stack of 128 KiB.
    pub fn start(
        page: &AgentPage,
        on_end: impl FnOnce(LivenessEnd) + Send + 'static,
    ) -> io::Result<Self> {
        let cancelled = Arc::new(AtomicBool::new(false));
        let thread = thread::Builder::new()
            .name("liveness-watch".into())
            .stack_size(STACK)
            .spawn({
                let page = page.clone();
                let cancelled = Arc::clone(&cancelled);
                move || {
                    if let Some(ended) = watch(&page, &cancelled) {
                        on_end(ended);
                    }
                }
            })?;
        Ok(Self {
            page: page.clone(),
            cancelled,
            thread: Some(thread),
        })
    }

    /// Ends the watch. When this returns, the callback has run or never will.
    pub fn cancel(self) {
        drop(self);
    }
}

impl Drop for LivenessWatch {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        if !thread.is_finished() {
            self.cancelled.store(true, Ordering::SeqCst);
            // A change of the word keeps a watcher from sleeping that has loaded the word before. Only the kernel uses
            // this bit, and the next watch sets it again.
            let word = &self.page.layout().liveness.owner;
            word.fetch_xor(WAITERS, Ordering::SeqCst);
            futex::wake_all(word);
        }
        if thread.thread().id() != thread::current().id() && thread.join().is_err() {
            tracing::error!("the callback of a death watch panicked");
        }
    }
}

fn watch(page: &AgentPage, cancelled: &AtomicBool) -> Option<LivenessEnd> {
    let liveness = &page.layout().liveness;
    loop {
        let word = liveness.owner.load(Ordering::SeqCst);
        if cancelled.load(Ordering::SeqCst) {
            return None;
        }
        if word & OWNER_DIED != 0 {
            return Some(LivenessEnd::Died {
                exiting: page.phase_at_exit(),
            });
        }
        match word & OWNER_MASK {
            RELEASED => return Some(LivenessEnd::Released),
            0 => {}
            _ if word & WAITERS == 0 => {
                // A cancelled watch has cleared the bit. The next turn handles a lost race.
                let _ = liveness.owner.compare_exchange(
                    word,
                    word | WAITERS,
                    Ordering::SeqCst,
                    Ordering::SeqCst,
                );
                continue;
            }
            _ => {}
        }
        futex::wait(&liveness.owner, word, None);
    }
}
