//! Starts a plugin's process.
//!
//! # Invariants
//! - It dies with the thread that started it, and so with the driver, however that ends (PR_SET_PDEATHSIG).
//! - It leads a process group of its own: a Ctrl-C at the terminal is the driver's, and what it starts ends with it.
//! - It inherits its connection as descriptor 3, an image of its library as 4, and no other.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    process::{Child, Command, Stdio},
};

use nix::fcntl::{FcntlArg, fcntl};

use super::{Program, What, environment};
use crate::{frames::CONNECTION, serve::IMAGE};

/// Starts it with what of this process's environment `needed` names.
pub(super) fn spawn(program: &Program, needed: &[String]) -> io::Result<(Child, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    let connection = away(&theirs)?;
    let (mut command, image) = match &program.what {
        What::Library { image, host } => {
            let mut command = Command::new(&host.program);
            command.args(&host.arguments).arg(&program.path);
            (command, Some(away(image)?))
        }
        What::Executable => (Command::new(&program.path), None),
    };
    let parent = std::process::id() as libc::pid_t;
    let targets = [
        (connection.as_raw_fd(), CONNECTION),
        (image.as_ref().map_or(-1, AsRawFd::as_raw_fd), IMAGE),
    ];
    command
        .env_clear()
        .envs(environment::of(std::env::vars_os(), needed))
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // SAFETY: `enter` makes system calls only, as is needed between fork and exec.
    unsafe { command.pre_exec(move || enter(parent, targets)) };
    // The library behind `Command` has a descriptor of its own in the child; it must be none of the targets.
    let _taken = taken()?;
    Ok((command.spawn()?, ours))
}

/// A copy of a descriptor that is none of the targets.
fn away(fd: &impl AsRawFd) -> io::Result<OwnedFd> {
    // SAFETY: it is open as long as what it was taken from.
    let fd = unsafe { BorrowedFd::borrow_raw(fd.as_raw_fd()) };
    let copy = fcntl(fd, FcntlArg::F_DUPFD_CLOEXEC(16))?;
    // SAFETY: the kernel has just given it to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Files that keep the numbers of the targets taken in this process.
fn taken() -> io::Result<Vec<File>> {
    let mut taken = Vec::new();
    loop {
        let file = File::open("/dev/null")?;
        let beyond = file.as_raw_fd() > IMAGE;
        taken.push(file);
        if beyond {
            return Ok(taken);
        }
    }
}

/// In the forked child. System calls only.
fn enter(parent: libc::pid_t, targets: [(i32, i32); 2]) -> io::Result<()> {
    let check = |result: libc::c_int| match result {
        ..0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    };
    // SAFETY: system calls with integers and a pointer to a live local.
    unsafe {
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
        // The parent may have died before the call, and then no signal comes.
        if libc::getppid() != parent {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        // A crash of a plugin is told, not dumped into the job's directory.
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        check(libc::setrlimit(libc::RLIMIT_CORE, &raw const none))?;
        for (from, to) in targets {
            if from >= 0 {
                check(libc::dup2(from, to))?;
            }
        }
    }
    Ok(())
}
