//! Notifies when a file may have changed.
//!
//! It watches the directory, since the file is often replaced: by a rename, or by a new symbolic link. It compares metadata
//! of the file to ignore other events in the directory.

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

use elasticrun_plugin_sdk::ChangeNotifier;
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

/// How long the event of a detected change may take, in milliseconds.
const EVENT_TIMEOUT: u8 = 5;

/// Metadata that changes with the content: device, inode, length and modification time.
type Fingerprint = Option<(u64, u64, u64, i64, i64)>;

fn fingerprint(path: &Path) -> Fingerprint {
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
    pub(crate) fn start(path: &Path, changed: ChangeNotifier) -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        let directory = path.parent().unwrap_or(Path::new("/"));
        // Not at each write, but when the writer closes the file.
        let events = AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_MOVED_FROM
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_DELETE;
        inotify.add_watch(directory, events)?;
        let stop = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC)?);
        // Taken before the first read of the file, so that each later change is noticed.
        let last = fingerprint(path);
        let (path, stopped) = (path.to_owned(), stop.clone());
        let written = Arc::<AtomicBool>::default();
        let written_flag = written.clone();
        let thread = thread::Builder::new()
            .name("watch file".to_owned())
            .spawn(move || watch(&path, last, &inotify, &stopped, &written_flag, &changed))?;
        Ok(Self {
            stop,
            written,
            thread: Some(thread),
        })
    }

    /// Whether a writer has closed or replaced the file since the last call. Its content is then complete.
    pub(crate) fn take_written(&self) -> bool {
        self.written.swap(false, Ordering::Relaxed)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let stopped = self.stop.write(1).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| stopped) {
            // Only its end matters, not its result.
            let _ = thread.join();
        }
    }
}

fn watch(
    path: &Path,
    mut last: Fingerprint,
    inotify: &Inotify,
    stop: &EventFd,
    written: &AtomicBool,
    changed: &ChangeNotifier,
) {
    let mut timeout = PollTimeout::NONE;
    let complete = AddWatchFlags::IN_CLOSE_WRITE | AddWatchFlags::IN_MOVED_TO;
    loop {
        let mut fds = [
            PollFd::new(inotify.as_fd(), PollFlags::POLLIN),
            PollFd::new(stop.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut fds, timeout) {
            Err(Errno::EINTR) => continue,
            Err(_) => return,
            Ok(_) if fds[1].any().unwrap_or(true) => return,
            Ok(_) => {}
        }
        // Before the events are read, so that they include the event of a change seen here.
        let now = fingerprint(path);
        // Events of the file itself count in any case, since modification times are no finer than the kernel's clock.
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
        // If it changed while events were read, its event is still to come. Or the event had the name of a link to the file.
        timeout = if fingerprint(path) == last {
            PollTimeout::NONE
        } else {
            EVENT_TIMEOUT.into()
        };
    }
}
