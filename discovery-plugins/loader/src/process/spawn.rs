//! Starts a plugin's process.
//!
//! # Invariants
//! - It has its own process group: a Ctrl-C at the terminal reaches only the driver, and its children end with it.
//! - The group ends with the thread that started it, and so with the driver, however the driver ends
//!   ([`elasticrun_group_leader`]).
//! - It inherits its connection as descriptor 3, an image of its library as 4, and no other descriptor.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    process::{Child, Command, Stdio},
};

use elasticrun_group_leader::fork_program;
use nix::fcntl::{FcntlArg, fcntl};

use super::{Program, ProgramKind, environment};
use crate::{frames::CONNECTION, serve::IMAGE};

/// Starts the process with the variables that `needed` names. The child is the leader of its group, which ends with the status
/// of the process.
pub(super) fn spawn(program: &Program, needed: &[String]) -> io::Result<(Child, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    let connection = duplicate_high(&theirs)?;
    let (mut command, image) = match &program.kind {
        ProgramKind::Library { image, host } => {
            let mut command = Command::new(&host.program);
            command.args(&host.arguments).arg(&program.path);
            (command, Some(duplicate_high(image)?))
        }
        ProgramKind::Executable => (Command::new(&program.path), None),
    };
    let parent = std::process::id();
    let targets = [
        (connection.as_raw_fd(), CONNECTION),
        (image.as_ref().map_or(-1, AsRawFd::as_raw_fd), IMAGE),
    ];
    command
        .env_clear()
        .envs(environment::select(std::env::vars_os(), needed))
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // SAFETY: `prepare_child` makes system calls only, as required between fork and exec.
    unsafe { command.pre_exec(move || prepare_child(parent, targets)) };
    // The child has an internal descriptor of `Command`, which must not have the number of a target.
    let _reserved = reserve_targets()?;
    Ok((command.spawn()?, ours))
}

/// Duplicates a descriptor to a number above the targets.
fn duplicate_high(fd: &impl AsRawFd) -> io::Result<OwnedFd> {
    // SAFETY: it is open as long as its owner.
    let fd = unsafe { BorrowedFd::borrow_raw(fd.as_raw_fd()) };
    let copy = fcntl(fd, FcntlArg::F_DUPFD_CLOEXEC(16))?;
    // SAFETY: the kernel has just created it.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Opens files until no number of a target is free in this process.
fn reserve_targets() -> io::Result<Vec<File>> {
    let mut reserved = Vec::new();
    loop {
        let file = File::open("/dev/null")?;
        let beyond = file.as_raw_fd() > IMAGE;
        reserved.push(file);
        if beyond {
            return Ok(reserved);
        }
    }
}

/// Runs in the forked child and returns in the process that executes the program. Makes system calls only.
fn prepare_child(parent: u32, targets: [(i32, i32); 2]) -> io::Result<()> {
    let check = |result: libc::c_int| match result {
        ..0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    };
    fork_program(parent)?;
    // SAFETY: system calls with integers and a pointer to a live local.
    unsafe {
        // A crash is logged. It must not dump core into the job's directory.
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
