//! The leader of a program's process group: a process between the job and the program that waits for either's end.
//!
//! ```text
//!   job --fork--> keeper (leads the group) --fork, exec--> program --> what it starts
//! ```
//! The kernel can kill a child when its parent dies, but not the child's children. So the kernel only tells
//! the keeper, and the keeper kills the group. It ends as the program does, so who waits for the one has
//! waited for the other. It is never executed: it makes system calls only, on the memory of the fork.

use std::io;

/// In the forked child: stays behind as the keeper and returns in a child of its own, which is to become the program.
///
/// `parent` is the process that forked; its *thread* must live as long as the program may.
pub(crate) fn enter(parent: u32) -> io::Result<()> {
    // SAFETY: system calls with integers and pointers to live locals; all may be made after a fork.
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
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM))?;
        // The parent may have died before the call, and then no signal comes.
        if libc::getppid() as u32 != parent {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        match check(libc::fork())? {
            0 => {
                check(libc::sigprocmask(
                    libc::SIG_SETMASK,
                    &raw const before,
                    std::ptr::null_mut(),
                ))?;
                Ok(())
            }
            program => keep(program, &waited),
        }
    }
}

/// Waits for the end of the program, or of the parent, and ends likewise.
///
/// # Safety
/// Only in a process that was forked and has one thread.
unsafe fn keep(program: libc::pid_t, waited: &libc::sigset_t) -> ! {
    // SAFETY: as in `enter`. No descriptor is used any more; who reads the program's output must see its end.
    unsafe {
        libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0);
        // It may end by the program's signal, and the core would be the job's.
        libc::prctl(libc::PR_SET_DUMPABLE, 0);
        loop {
            if libc::sigwaitinfo(waited, std::ptr::null_mut()) == libc::SIGTERM {
                // The group is led by this process, which goes with it.
                libc::kill(0, libc::SIGKILL);
            }
            let mut status = 0;
            if libc::waitpid(program, &raw mut status, libc::WNOHANG) != program {
                continue;
            }
            if libc::WIFSIGNALED(status) {
                let signal = libc::WTERMSIG(status);
                libc::signal(signal, libc::SIG_DFL);
                let mut own: libc::sigset_t = std::mem::zeroed();
                libc::sigemptyset(&raw mut own);
                libc::sigprocmask(libc::SIG_SETMASK, &raw const own, std::ptr::null_mut());
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
