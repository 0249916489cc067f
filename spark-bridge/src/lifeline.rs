//! The lifeline: a task service ends with what it was started under, whichever way that ends.
//!
//! Spark kills the Python worker of a cancelled task, but no child of it; a killed executor leaves its Python daemon to
//! notice by itself, which takes half a second. So three things are watched:
//! - the parent, by a death signal. The kernel sends it when the *thread* ends that made this process, so the parent
//!   starts the service in a thread that lives as long as the task;
//! - the processes above, up to the executor, by their pidfds: these are readable at once;
//! - stdin, a pipe that the parent keeps open. It works even where a process cannot be seen from here.

use std::{
    fs::File,
    io::{self, Read},
    os::fd::{AsFd, AsRawFd},
    thread,
};

use elasticrun_shm::pidfd::Pidfd;
use tokio_util::sync::CancellationToken;

/// What is read from the pipe at once; nobody looks at it.
const SOME: usize = 512;

/// See the module.
#[derive(Debug)]
pub struct Lifeline {
    above: Vec<Pidfd>,
    stdin: File,
}

impl Lifeline {
    /// Ties this process to its parent and opens the processes `above` it. One that cannot be opened has ended, or is
    /// out of sight here (another process namespace): that is left to the other two.
    ///
    /// # Errors
    /// The parent has ended already; or the system refuses a death signal or a copy of stdin.
    pub fn tie(above: &[u32]) -> io::Result<Self> {
        // SAFETY: getppid has no arguments and cannot fail.
        let parent = unsafe { libc::getppid() };
        // SAFETY: integers only.
        if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: as above. It may have ended before the signal was asked for.
        if unsafe { libc::getppid() } != parent {
            return Err(io::Error::other("the process that started it has ended"));
        }
        let open = |pid: &u32| match Pidfd::open(*pid) {
            Ok(process) => Some(process),
            Err(error) => {
                tracing::debug!(pid, %error, "a process above cannot be watched");
                None
            }
        };
        Ok(Self {
            above: above.iter().filter_map(open).collect(),
            stdin: File::from(io::stdin().as_fd().try_clone_to_owned()?),
        })
    }

    /// Watches in a thread of its own; `abandoned` is cancelled at the first end.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn watch(mut self, abandoned: CancellationToken) -> io::Result<()> {
        thread::Builder::new()
            .name("lifeline".into())
            .spawn(move || {
                while self.holds() {}
                abandoned.cancel();
            })
            .map(drop)
    }

    /// Waits until something happens; gives whether all is still there.
    fn holds(&mut self) -> bool {
        let fds = self.above.iter().map(|process| process.as_fd().as_raw_fd());
        let mut fds: Vec<_> = fds
            .chain([self.stdin.as_raw_fd()])
            .map(|fd| libc::pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            })
            .collect();
        // SAFETY: a live array of that length.
        let ready = unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, -1) };
        if ready < 0 {
            return io::Error::last_os_error().kind() == io::ErrorKind::Interrupted;
        }
        let above = self.above.len();
        if fds[..above].iter().any(|fd| fd.revents != 0) {
            return false;
        }
        match self.stdin.read(&mut [0; SOME]) {
            Ok(count) => count > 0,
            Err(error) => error.kind() == io::ErrorKind::Interrupted,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        os::fd::OwnedFd,
        process::{Command, Stdio},
        sync::mpsc,
        time::Duration,
    };

    use super::*;

    /// Whether the watch ends when `end` is done, and not before.
    fn ends_with(above: Vec<Pidfd>, stdin: io::PipeReader, end: impl FnOnce()) {
        let lifeline = Lifeline {
            above,
            stdin: File::from(OwnedFd::from(stdin)),
        };
        let abandoned = CancellationToken::new();
        lifeline.watch(abandoned.clone()).unwrap();
        let (said, ended) = mpsc::channel();
        let waits = abandoned.clone();
        thread::spawn(move || {
            while !waits.is_cancelled() {
                thread::yield_now();
            }
            let _ = said.send(());
        });
        assert!(!abandoned.is_cancelled());
        end();
        ended.recv_timeout(Duration::from_secs(20)).unwrap();
    }

    #[test]
    fn the_end_of_the_pipe_ends_it_and_words_do_not() {
        let (stdin, mut pipe) = io::pipe().unwrap();
        io::Write::write_all(&mut pipe, b"more").unwrap();
        ends_with(Vec::new(), stdin, || drop(pipe));
    }

    #[test]
    fn the_end_of_a_process_above_ends_it() {
        let mut above = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let watched = vec![Pidfd::open(above.id()).unwrap()];
        let (stdin, _pipe) = io::pipe().unwrap();
        ends_with(watched, stdin, || above.kill().unwrap());
        above.wait().unwrap();
    }
}
