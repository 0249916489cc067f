//! The lifeline: a task service ends with the processes that it was started under.
//!
//! Spark kills the Python worker of a cancelled task, but none of its children. The Python daemon of a killed executor
//! takes half a second to notice. So the lifeline watches three things:
//! - the parent, by a death signal. The kernel sends it when the *thread* that made this process ends. The parent
//!   therefore starts the service in a thread that lives as long as the task;
//! - the processes above, up to the executor, by their pidfds, which are readable once a process has ended;
//! - stdin, a pipe that the parent keeps open. This works also across pid namespaces.

use std::{
    fs::File,
    io::{self, Read},
    os::fd::{AsFd, AsRawFd},
    thread,
};

use elasticrun_shm::pidfd::Pidfd;
use tokio_util::sync::CancellationToken;

/// Bytes read from the pipe at once. They are discarded.
const READ_SIZE: usize = 512;

/// The watch over the processes that this service was started under.
#[derive(Debug)]
pub struct Lifeline {
    above: Vec<Pidfd>,
    stdin: File,
}

impl Lifeline {
    /// Ties this process to its parent and opens the processes `above` it. A process that cannot be opened is skipped: it
    /// has ended, or is of another pid namespace. The other two watches cover it.
    ///
    /// # Errors
    /// The parent has ended already, or the system refuses a death signal or a copy of stdin.
    pub fn tie(above: &[u32]) -> io::Result<Self> {
        // SAFETY: getppid has no arguments and cannot fail.
        let parent = unsafe { libc::getppid() };
        // SAFETY: integers only.
        if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: as above. The parent may have ended before the call to prctl.
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

    /// Watches in a thread of its own. Cancels `abandoned` at the first end.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn watch(mut self, abandoned: CancellationToken) -> io::Result<()> {
        thread::Builder::new()
            .name("lifeline".into())
            .spawn(move || {
                while self.wait() {}
                abandoned.cancel();
            })
            .map(drop)
    }

    /// Waits for an event. Returns whether all processes and the pipe still exist.
    fn wait(&mut self) -> bool {
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
        match self.stdin.read(&mut [0; READ_SIZE]) {
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
        let (sender, ended) = mpsc::channel();
        let waits = abandoned.clone();
        thread::spawn(move || {
            while !waits.is_cancelled() {
                thread::yield_now();
            }
            let _ = sender.send(());
        });
        assert!(!abandoned.is_cancelled());
        end();
        ended.recv_timeout(Duration::from_secs(20)).unwrap();
    }

    #[test]
    fn the_end_of_the_pipe_ends_it_and_bytes_do_not() {
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
