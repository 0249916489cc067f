//! One run of a program, with limits on time and output. It leaves no process of the group behind.

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

use elasticrun_group_leader::fork_program;

/// The size limit of the output, in bytes.
pub(crate) const MAX_OUTPUT: usize = 4 << 20;
/// Bytes of standard error that are kept.
const MAX_ERRORS: usize = 4 << 10;

/// A finished run.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) output: Vec<u8>,
    pub(crate) errors: Vec<u8>,
}

/// Why a run did not finish.
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

/// Waits until the process has ended or a pipe is readable. Returns whether the process has ended.
fn wait(ended: &OwnedFd, pipes: [&Pipe; 2], left: Duration) -> io::Result<bool> {
    let mut fds = vec![PollFd::new(ended.as_fd(), PollFlags::POLLIN)];
    let pipes = pipes.into_iter().filter_map(Pipe::fd);
    fds.extend(pipes.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
    // Rounded up to a millisecond, so that the last millisecond does not spin.
    let left = left.min(Duration::from_secs(60)) + Duration::from_millis(1);
    let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
    match poll(&mut fds, timeout) {
        Ok(_) | Err(Errno::EINTR) => Ok(fds[0].any().unwrap_or(false)),
        Err(error) => Err(error.into()),
    }
}

fn pidfd(child: &Child) -> io::Result<OwnedFd> {
    // SAFETY: no pointers. The process is an unreaped child, so the id is its own.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id() as libc::pid_t, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just created it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// A program in its own process group, which ends when this is dropped, or with this process.
struct Group {
    /// The leader of the group ([`elasticrun_group_leader`]), which ends with the status of the program.
    program: Child,
    reaped: bool,
}

impl Group {
    fn start(program: &Path) -> io::Result<Self> {
        let parent = std::process::id();
        let spawn = |command: &mut Command| {
            // SAFETY: `fork_program` makes system calls only, as required between fork and exec.
            unsafe { command.pre_exec(move || fork_program(parent)) };
            command
                .process_group(0)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
        };
        match spawn(&mut Command::new(program)) {
            // A script without a `#!` line is run by the shell, as a shell would do.
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

    /// Kills the group and reaps the program. The id of the group is that of the program, which the kernel does not reuse
    /// before it is reaped. So no other process can be hit.
    fn end(&mut self) -> io::Result<ExitStatus> {
        if !self.reaped {
            // Fails only if the group is empty.
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

/// The reading end of a pipe, in non-blocking mode.
struct Pipe {
    source: Option<Box<dyn Source>>,
    bytes: Vec<u8>,
    max: usize,
    overflown: bool,
}

trait Source: Read + AsFd {}
impl<T: Read + AsFd> Source for T {}

impl Pipe {
    fn new<T: Source + 'static>(source: Option<T>, max: usize) -> io::Result<Self> {
        let source = source.map(|source| Box::new(source) as Box<dyn Source>);
        if let Some(source) = &source {
            let flags = OFlag::from_bits_retain(fcntl(source.as_fd(), FcntlArg::F_GETFL)?);
            fcntl(source.as_fd(), FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        }
        Ok(Self {
            source,
            bytes: Vec::new(),
            max,
            overflown: false,
        })
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.source.as_ref().map(|source| source.as_fd())
    }

    /// Reads the available bytes. Keeps them up to the limit and drops the rest. It reads at most the 1 MiB that a pipe can
    /// hold, so that endless output does not block the caller.
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
                    let kept = length.min(self.max - self.bytes.len());
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
