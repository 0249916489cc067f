//! A copy of memory in a thread of its own.

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use crate::copy_bytes;

/// A part of a copy.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// The first byte to read.
    pub from: *const u8,
    /// The first byte to write.
    pub to: *mut u8,
    /// The number of bytes.
    pub len: usize,
}

// SAFETY: the caller of `Copying::start` vouches for the memory.
unsafe impl Send for Part {}

/// A copy that runs in a thread of its own. It does not end with this value: [`wait`](Self::wait) for it.
#[derive(Debug)]
pub struct Copying {
    thread: Mutex<Option<JoinHandle<()>>>,
    /// The process that has the thread. A child that was forked has none.
    pid: u32,
    done: Arc<AtomicBool>,
}

impl Copying {
    /// Begins to copy the parts, in their order.
    ///
    /// # Errors
    /// No thread can be started; nothing is copied.
    ///
    /// # Safety
    /// Until [`wait`](Self::wait) has returned, all parts are valid memory that does not overlap, nobody writes to what is
    /// read, and nobody reads or writes what is written.
    pub unsafe fn start(parts: Vec<Part>) -> io::Result<Arc<Self>> {
        let done = Arc::<AtomicBool>::default();
        let set = Arc::clone(&done);
        let copy = move || {
            for part in parts {
                let Part { from, to, len } = part;
                // SAFETY: the caller vouches for it.
                unsafe { copy_bytes(from, to, len) };
            }
            set.store(true, Ordering::Release);
        };
        let thread = thread::Builder::new().name("elasticrun-copy".to_owned());
        let thread = Mutex::new(Some(thread.spawn(copy)?));
        Ok(Arc::new(Self {
            thread,
            pid: std::process::id(),
            done,
        }))
    }

    /// Whether all is copied.
    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// Waits until all is copied.
    pub fn wait(&self) {
        if std::process::id() != self.pid {
            return;
        }
        // Whoever waits second waits for the lock.
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take() {
            // It does not panic.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_done_after_the_wait() {
        let from: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
        let mut to = vec![0; from.len()];
        let (head, tail) = to.split_at_mut(1000);
        let part = |from: &[u8], to: &mut [u8]| Part {
            from: from.as_ptr(),
            to: to.as_mut_ptr(),
            len: to.len(),
        };
        let parts = vec![part(&from[1000..], tail), part(&from, head)];
        // SAFETY: both vectors are left alone until the wait has returned.
        let copying = unsafe { Copying::start(parts) }.unwrap();
        copying.wait();
        copying.wait();
        assert!(copying.is_done());
        assert_eq!(from, to);
    }
}
