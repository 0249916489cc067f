//! The leader of a program's process group: a process between the job and the program that waits for the end of either.
//!
//! ```text
//!   job --fork--> group leader --fork, exec--> program --> its children
//! ```
//! The kernel can signal a child when its parent dies, but not the child's children. So the kernel signals the leader, and
//! the leader kills the group. The leader ends with the status of the program, so waiting for the leader is waiting for the
//! program. It executes no other program: it makes only system calls, on the memory of the fork.
//!
//! # Invariants
//! - The group ends with the program, before the leader does.
//! - The group ends with the thread that started the leader, and so with the job, however the job ends.
//! - The program ends with the leader, so a signal that kills the leader leaves no program behind.
//! - The leader holds no descriptor.
//!
//! # Not promised
//! A process in its own session (a daemon) is no member of the group, and outlives it. Pages that the job rewrites while the
//! program runs are copied for the leader.

use std::io;

/// Runs in the forked child, which becomes the leader. Returns only in a child of the leader, which executes the program.
///
/// The forked child must lead its process group. `parent` is the forking process. Its calling *thread* must outlive the
/// program.
///
/// # Errors
/// The parent has died, or a system call failed.
pub fn fork_program(parent: u32) -> io::Result<()> {
    // SAFETY: system calls with integers and pointers to live locals. All are allowed after a fork.
    unsafe {
        let mut waited: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut waited);
        libc::sigaddset(&raw mut waited, libc::SIGTERM);
        libc::sigaddset(&raw mut waited, libc::SIGCHLD);
        check(libc::sigprocmask(
            libc::SIG_BLOCK,
            &raw const waited,
            &raw mut before,
        ))?;
        // A job may ignore the signal, and then no end of a child can be waited for.
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM))?;
        // If the parent died before the call, no signal follows.
        if libc::getppid() as u32 != parent {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        let leader = libc::getpid();
        match check(libc::fork())? {
            0 => {
                check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
                if libc::getppid() != leader {
                    return Err(io::Error::from_raw_os_error(libc::ESRCH));
                }
                check(libc::sigprocmask(
                    libc::SIG_SETMASK,
                    &raw const before,
                    std::ptr::null_mut(),
                ))?;
                Ok(())
            }
            program => supervise(program, &waited),
        }
    }
}

/// Waits for the end of the program, and ends with its status. Kills the group at the end of the parent.
///
/// # Safety
/// Only in a forked process with one thread.
unsafe fn supervise(program: libc::pid_t, waited: &libc::sigset_t) -> ! {
    // SAFETY: as in `fork_program`. No descriptor is used from here on. They are closed so that the reader of the program's
    // output sees its end.
    unsafe {
        if libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0) != 0 {
            // An older kernel, or a sandbox that refuses the call.
            let mut limit: libc::rlimit = std::mem::zeroed();
            libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
            for fd in 0..limit.rlim_cur.min(1 << 20) as libc::c_int {
                libc::close(fd);
            }
        }
        // It may end by the program's signal, and must not dump core.
        libc::prctl(libc::PR_SET_DUMPABLE, 0);
        loop {
            if libc::sigwaitinfo(waited, std::ptr::null_mut()) == libc::SIGTERM {
                // This process is a member of the group and dies as well.
                libc::kill(0, libc::SIGKILL);
            }
            let mut status = 0;
            if libc::waitpid(program, &raw mut status, libc::WNOHANG) != program {
                continue;
            }
            // The job may end before it can kill the group. So the leader does it, from another group of its session.
            let group = libc::getpid();
            if libc::setpgid(0, libc::getpgid(libc::getppid())) == 0 {
                libc::kill(-group, libc::SIGKILL);
            }
            if libc::WIFSIGNALED(status) {
                let signal = libc::WTERMSIG(status);
                libc::signal(signal, libc::SIG_DFL);
                let mut empty: libc::sigset_t = std::mem::zeroed();
                libc::sigemptyset(&raw mut empty);
                libc::sigprocmask(libc::SIG_SETMASK, &raw const empty, std::ptr::null_mut());
                libc::raise(signal);
            }
            libc::_exit(libc::WEXITSTATUS(status));
        }
    }
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}
