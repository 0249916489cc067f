//! The agent's watch over one worker's sign of life ([`crate::alive`]): 0.1 ms from kill to callback,
//! however much memory the worker has.
//!
//! # What to do with an answer
//! - D1 `Died` with no `exiting`: abort the round now. Then SIGKILL the process through its pidfd, which is
//!   harmless if it is dead and right if only its SDK thread is (A1), and reap it when the pidfd is readable.
//! - D2 `Died` with `exiting`: the exit status says what it was; the phase in it says whether a round lost it.
//! - D3 a worker may die before it ever holds the word, or by `_exit` in good order: the pidfd tells in any case.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use crate::{
    alive::{HOLDER, OWNER_DIED, RELEASED, WAITERS},
    futex,
    page::{AgentPage, Phase},
};

/// How a worker's sign of life ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The thread that held it is gone.
    Died {
        /// The phase in which an orderly `exit()` began; `None` for a sudden death.
        exiting: Option<Phase>,
    },
    /// The worker let go in good order; its exit will come by the pidfd.
    Released,
}

/// A thread of its own that sleeps until a worker's sign of life ends. One at a time for each page.
///
/// It may start before the worker has attached. Dropping it cancels the watch and joins the thread.
#[derive(Debug)]
pub struct DeathWatch {
    page: AgentPage,
    cancelled: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

const STACK: usize = 128 * 1024;

impl DeathWatch {
    /// Starts the watch. `on_end` is called once on its thread, or never if the watch is cancelled first; it
    /// must be short (send on a channel) and has a stack of 128 KiB.
    pub fn start(
        page: &AgentPage,
        on_end: impl FnOnce(Ended) + Send + 'static,
    ) -> io::Result<Self> {
        let cancelled = Arc::new(AtomicBool::new(false));
        let thread = thread::Builder::new()
            .name("death-watch".into())
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

    /// Ends the watch; when this returns, the callback has run or never will.
    pub fn cancel(self) {
        drop(self);
    }
}

impl Drop for DeathWatch {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        if !thread.is_finished() {
            self.cancelled.store(true, Ordering::SeqCst);
            // The word changes, so a watcher between its look and its sleep does not fall asleep. The bit has no
            // meaning but for the kernel, and the next watch sets it again.
            let word = &self.page.layout().life.alive;
            word.fetch_xor(WAITERS, Ordering::SeqCst);
            futex::wake_all(word);
        }
        if thread.thread().id() != thread::current().id() && thread.join().is_err() {
            tracing::error!("the callback of a death watch panicked");
        }
    }
}

fn watch(page: &AgentPage, cancelled: &AtomicBool) -> Option<Ended> {
    let life = &page.layout().life;
    loop {
        let word = life.alive.load(Ordering::SeqCst);
        if cancelled.load(Ordering::SeqCst) {
            return None;
        }
        if word & OWNER_DIED != 0 {
            return Some(Ended::Died {
                exiting: page.phase_at_exit(),
            });
        }
        match word & HOLDER {
            RELEASED => return Some(Ended::Released),
            0 => {}
            _ if word & WAITERS == 0 => {
                // Left so by a watch that was cancelled. Lost races are seen in the next turn.
                let _ = life.alive.compare_exchange(
                    word,
                    word | WAITERS,
                    Ordering::SeqCst,
                    Ordering::SeqCst,
                );
                continue;
            }
            _ => {}
        }
        futex::wait(&life.alive, word, None);
    }
}
