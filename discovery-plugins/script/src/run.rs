//! One run of a program: its output, within a time and a size, and nothing of it left behind.

use std::{
    io::{self, Read},
    os::{
        fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd},
        unix::process::CommandExt,
    },
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, OFlag, fcntl},
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

use crate::keeper;

/// The most output that is read.
pub(crate) const MAX_OUTPUT: usize = 4 << 20;
/// The most of standard error that is kept.
const MAX_ERRORS: usize = 4 << 10;

/// A run that came to its end.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) output: Vec<u8>,
    pub(crate) errors: Vec<u8>,
}

/// A run that did not.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot be run: {0}")]
    Start(#[source] io::Error),
    #[error("did not end within {0:?} and was killed")]
    Deadline(Duration),
    #[error("printed more than {} MiB and was killed; it should print one host a line", MAX_OUTPUT >> 20)]
    TooMuch,
    #[error("cannot be watched: {0}")]
    Watch(#[from] io::Error),
}

/// Runs a program without arguments and without standard input.
pub(crate) fn run(program: &Path, deadline: Duration) -> Result<Finished, Error> {
    let started = Instant::now();
    let mut group = Group::start(program).map_err(Error::Start)?;
    let ended = pidfd(&group.program)?;
    let mut output = Pipe::new(group.program.stdout.take(), MAX_OUTPUT)?;
    let mut errors = Pipe::new(group.program.stderr.take(), MAX_ERRORS)?;
    loop {
        let left = deadline
            .checked_sub(started.elapsed())
            .ok_or(Error::Deadline(deadline))?;
        let over = wait(&ended, [&output, &errors], left)?;
        output.read()?;
        errors.read()?;
        if output.overflown {
            return Err(Error::TooMuch);
        }
        if over {
            break;
        }
    }
    let status = group.end()?;
    Ok(Finished {
        status,
        output: output.bytes,
        errors: errors.bytes,
    })
}

/// Waits until the process has ended or a pipe has something; says whether the process has ended.
fn wait(ended: &OwnedFd, pipes: [&Pipe; 2], left: Duration) -> io::Result<bool> {
    let mut fds = vec![PollFd::new(ended.as_fd(), PollFlags::POLLIN)];
    let pipes = pipes.into_iter().filter_map(Pipe::fd);
    fds.extend(pipes.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
    // Rounded up to a millisecond, so that the last one is not spent spinning.
    let left = left.min(Duration::from_secs(60)) + Duration::from_millis(1);
    let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
    match poll(&mut fds, timeout) {
        Ok(_) | Err(Errno::EINTR) => Ok(fds[0].any().unwrap_or(false)),
        Err(error) => Err(error.into()),
    }
}

fn pidfd(child: &Child) -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the process is our child and not reaped, so the number is its own.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id() as libc::pid_t, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given it to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// A program in a process group of its own, which ends when this is dropped, or with this process.
struct Group {
    /// The [`keeper`] of the group, which ends as the program does.
    program: Child,
    reaped: bool,
}

impl Group {
    fn start(program: &Path) -> io::Result<Self> {
        let parent = std::process::id();
        let spawn = |command: &mut Command| {
            // SAFETY: `keeper::enter` makes system calls only, as is needed between fork and exec.
            unsafe { command.pre_exec(move || keeper::enter(parent)) };
            command
                .process_group(0)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
        };
        match spawn(&mut Command::new(program)) {
            // A script without a `#!` line: a shell reads it, as a shell would.
            Err(error) if error.raw_os_error() == Some(libc::ENOEXEC) => {
                spawn(Command::new("/bin/sh").arg(program))
            }
            result => result,
        }
        .map(|program| Self {
            program,
            reaped: false,
        })
    }

    /// Kills what is left of the group and reaps the program. The group's number is the program's, which stays
    /// taken until it is reaped; so nobody else can be hit.
    fn end(&mut self) -> io::Result<ExitStatus> {
        if !self.reaped {
            // It fails only if nobody is left.
            let _ = killpg(Pid::from_raw(self.program.id() as i32), Signal::SIGKILL);
        }
        let status = self.program.wait()?;
        self.reaped = true;
        Ok(status)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// One end of a pipe that is read without waiting.
struct Pipe {
    source: Option<Box<dyn Source>>,
    bytes: Vec<u8>,
    most: usize,
    overflown: bool,
}

trait Source: Read + AsFd {}
impl<T: Read + AsFd> Source for T {}

impl Pipe {
    fn new<T: Source + 'static>(source: Option<T>, most: usize) -> io::Result<Self> {
        let source = source.map(|source| Box::new(source) as Box<dyn Source>);
        if let Some(source) = &source {
            let flags = OFlag::from_bits_retain(fcntl(source.as_fd(), FcntlArg::F_GETFL)?);
            fcntl(source.as_fd(), FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        }
        Ok(Self {
            source,
            bytes: Vec::new(),
            most,
            overflown: false,
        })
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.source.as_ref().map(|source| source.as_fd())
    }

    /// Reads what is there; keeps as much as is allowed and throws the rest away. It reads no more than the
    /// 1 MiB that a pipe can hold, so that who writes without end does not keep us here.
    fn read(&mut self) -> io::Result<()> {
        let Some(source) = &mut self.source else {
            return Ok(());
        };
        let mut chunk = [0; 16 << 10];
        for _ in 0..64 {
            match source.read(&mut chunk) {
                Ok(0) => {
                    self.source = None;
                    return Ok(());
                }
                Ok(length) => {
                    let kept = length.min(self.most - self.bytes.len());
                    self.bytes.extend_from_slice(&chunk[..kept]);
                    self.overflown |= kept < length;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
