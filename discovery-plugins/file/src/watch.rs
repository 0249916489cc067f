//! Says when a file may have changed.
//!
//! Its directory is watched, because the file itself is often replaced: by a rename over it, or by that of a symbolic
//! link which leads to it. What else happens there is told apart by looking at the file.

use std::{
    fs, io,
    os::{fd::AsFd, unix::fs::MetadataExt},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use elasticrun_plugin_sdk::Changed;
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        eventfd::{EfdFlags, EventFd},
        inotify::{AddWatchFlags, InitFlags, Inotify},
    },
};

/// A thread that watches a file until this is dropped.
#[derive(Debug)]
pub(crate) struct Watcher {
    stop: Arc<EventFd>,
    /// See [`Watcher::take_written`].
    written: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// How long the event of a change may take, in milliseconds, once the change is seen.
const EVENT_COMES: u8 = 5;

/// What of a file changes when its content does.
type Trace = Option<(u64, u64, u64, i64, i64)>;

fn trace(path: &Path) -> Trace {
    let file = fs::metadata(path).ok()?;
    Some((
        file.dev(),
        file.ino(),
        file.len(),
        file.mtime(),
        file.mtime_nsec(),
    ))
}

impl Watcher {
    pub(crate) fn start(path: &Path, changed: Changed) -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        let directory = path.parent().unwrap_or(Path::new("/"));
        // Not at each write, but when the writer is done.
        let events = AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_MOVED_FROM
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_DELETE;
        inotify.add_watch(directory, events)?;
        let stop = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC)?);
        // Before anybody reads the file: what changes from now on is a change.
        let last = trace(path);
        let (path, stopped) = (path.to_owned(), stop.clone());
        let written = Arc::<AtomicBool>::default();
        let told = written.clone();
        let thread = thread::Builder::new()
            .name("watch file".to_owned())
            .spawn(move || watch(&path, last, &inotify, &stopped, &told, &changed))?;
        Ok(Self {
            stop,
            written,
            thread: Some(thread),
        })
    }

    /// Whether somebody has finished writing the file since this was asked last: closed it, or put another one in its
    /// place. What it holds is not a half of something then.
    pub(crate) fn take_written(&self) -> bool {
        self.written.swap(false, Ordering::Relaxed)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let told = self.stop.write(1).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| told) {
            // It has no reason to panic, and its end is all that is wanted.
            let _ = thread.join();
        }
    }
}

fn watch(
    path: &Path,
    mut last: Trace,
    inotify: &Inotify,
    stop: &EventFd,
    written: &AtomicBool,
    changed: &Changed,
) {
    let mut patience = PollTimeout::NONE;
    let complete = AddWatchFlags::IN_CLOSE_WRITE | AddWatchFlags::IN_MOVED_TO;
    loop {
        let mut fds = [
            PollFd::new(inotify.as_fd(), PollFlags::POLLIN),
            PollFd::new(stop.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut fds, patience) {
            Err(Errno::EINTR) => continue,
            Err(_) => return,
            Ok(_) if fds[1].any().unwrap_or(true) => return,
            Ok(_) => {}
        }
        // Before the events are read: of what is seen here, the event is among them.
        let now = trace(path);
        // Of the file itself, whatever its traces say: they are no finer than the kernel's clock.
        let mut named = false;
        while let Ok(events) = inotify.read_events() {
            for event in &events {
                if event.name.as_deref() == path.file_name() {
                    named = true;
                    if event.mask.intersects(complete) {
                        written.store(true, Ordering::Relaxed);
                    }
                }
            }
        }
        if named || now != last {
            last = now;
            changed.notify();
        }
        // It changed while events were read: its own is still to come, or was among them and had another name, that of a
        // link on the way to the file.
        patience = if trace(path) == last {
            PollTimeout::NONE
        } else {
            EVENT_COMES.into()
        };
    }
}
