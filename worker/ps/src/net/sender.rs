//! The sending thread of a node: it waits for the sockets that took not everything.

use std::{
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
};

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, eventfd, poll},
    fd::OwnedFd,
};

use super::connection::Connection;
use crate::error::Error;

/// The sending thread.
#[derive(Debug)]
pub(crate) struct SendThread {
    wake: OwnedFd,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    added: Vec<Arc<Connection>>,
    stopped: bool,
}

impl SendThread {
    pub(crate) fn start() -> Result<(Arc<Self>, JoinHandle<()>), Error> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let sender = Arc::new(Self {
            wake: wake.map_err(|errno| Error::io("eventfd")(errno.into()))?,
            state: Mutex::default(),
        });
        let thread = Arc::clone(&sender);
        let builder = thread::Builder::new().name("ps-send".to_owned());
        let handle = builder
            .spawn(move || thread.run())
            .map_err(Error::io("clone"))?;
        Ok((sender, handle))
    }

    /// Takes over the writing of a busy connection.
    pub(super) fn add(&self, connection: Arc<Connection>) {
        self.lock().added.push(connection);
        self.notify();
    }

    pub(crate) fn stop(&self) {
        self.lock().stopped = true;
        self.notify();
    }

    fn notify(&self) {
        // It fails only if the counter is full, and then the thread wakes anyway.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut connections: Vec<Arc<Connection>> = Vec::new();
        loop {
            {
                let mut state = self.lock();
                connections.append(&mut state.added);
                if state.stopped {
                    return;
                }
            }
            let mut fds = vec![PollFd::new(&self.wake, PollFlags::IN)];
            let streams = connections.iter().map(|connection| connection.stream());
            fds.extend(streams.map(|stream| PollFd::new(stream, PollFlags::OUT)));
            match poll(&mut fds, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    tracing::error!(%error, "poll failed: nothing can be sent any more");
                    return;
                }
            }
            if !fds[0].revents().is_empty() {
                let _ = rustix::io::read(&self.wake, &mut [0; 8]);
            }
            let ready: Vec<bool> = fds[1..].iter().map(|fd| !fd.revents().is_empty()).collect();
            drop(fds);
            let mut ready = ready.into_iter();
            connections.retain(|connection| {
                let ready = ready.next().unwrap_or(false);
                !(ready && connection.resume())
            });
        }
    }
}
