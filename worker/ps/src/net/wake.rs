//! What wakes a thread that reads sockets.

use std::{
    cell::OnceCell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, ThreadId},
    time::Instant,
};

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    fd::OwnedFd,
};

use super::stream::Stream;

/// A bell of one thread, which it hears while it waits for sockets.
#[derive(Debug)]
pub(crate) struct Wake {
    bell: OwnedFd,
    rung: AtomicBool,
    thread: ThreadId,
}

std::thread_local! {
    static WAKE: OnceCell<Option<Arc<Wake>>> = const { OnceCell::new() };
}

impl Wake {
    /// The bell of this thread. `None` if the process has too many files open.
    pub(crate) fn of_this_thread() -> Option<Arc<Self>> {
        WAKE.with(|wake| {
            wake.get_or_init(|| {
                let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()?;
                Some(Arc::new(Self {
                    bell,
                    rung: AtomicBool::new(false),
                    thread: thread::current().id(),
                }))
            })
            .clone()
        })
    }

    /// Wakes the thread, unless it is this one.
    pub(crate) fn ring(&self) {
        if self.thread != thread::current().id() && !self.rung.swap(true, Ordering::SeqCst) {
            // It fails only if the counter is full, and then it is heard anyway.
            let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }
    }

    /// Makes it silent again.
    pub(crate) fn still(&self) {
        if self.rung.swap(false, Ordering::SeqCst) {
            let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        }
    }
}

/// Waits until a socket can be read, or the bell rings. Returns which sockets can, or `None` when the time is over.
pub(crate) fn poll_readable<'a>(
    streams: impl Iterator<Item = &'a Stream>,
    wake: &Wake,
    deadline: Instant,
) -> Option<Vec<bool>> {
    let rest = deadline.checked_duration_since(Instant::now())?;
    let mut fds = vec![PollFd::new(&wake.bell, PollFlags::IN)];
    fds.extend(streams.map(|stream| PollFd::new(stream, PollFlags::IN)));
    let limit = Timespec::try_from(rest).ok();
    match poll(&mut fds, limit.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(_) => return None,
    }
    Some(fds[1..].iter().map(|fd| !fd.revents().is_empty()).collect())
}
