//! Finding and ending processes that nobody looks after any more.
//!
//! Two nets with different holes. [`end_descendants`] sees every process that comes from this one, whatever
//! it did to its session or its environment, since this one is their reaper; but only while this one lives.
//! [`Marked`] sees every process whose environment names our socket, also those of an agent that is dead; but
//! not one that has overwritten its environment.
//!
//! [`Marked`] makes system calls only and allocates nothing after its creation, so that it works in a child
//! that was forked from a process with threads.

use std::{
    ffi::CStr,
    fs, io,
    path::Path,
    time::{Duration, Instant},
};

use crate::process::AGENT_SOCKET;

/// Orphans of the workers become our children from now on, so that we can end and reap them.
pub(crate) fn adopt() -> io::Result<()> {
    // SAFETY: integers only.
    match unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The children of this process, as the kernel lists them; none where it does not (without `PROC_CHILDREN`).
fn children() -> Vec<u32> {
    let Ok(threads) = fs::read_dir("/proc/self/task") else {
        return Vec::new();
    };
    threads
        .filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("children")).ok())
        .flat_map(|list| {
            let pids = list.split_whitespace().map(str::to_owned);
            pids.collect::<Vec<_>>()
        })
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

/// Reaps those adopted children that have ended. `keep` names those that somebody else reaps.
pub(crate) fn reap_adopted(keep: impl Fn(u32) -> bool) {
    for child in children().into_iter().filter(|child| !keep(*child)) {
        reap(child);
    }
}

/// Whether it had ended.
fn reap(child: u32) -> bool {
    // SAFETY: integers, and a null pointer that the call allows.
    unsafe { libc::waitpid(child as libc::pid_t, std::ptr::null_mut(), libc::WNOHANG) > 0 }
}

/// Kills all that comes from this process but `keep`, and reaps it, for at most `patience`.
///
/// Gives how many are left: only such as the kernel does not let go.
pub(crate) fn end_descendants(keep: Option<u32>, patience: Duration) -> usize {
    let deadline = Instant::now() + patience;
    loop {
        let left: Vec<_> = children()
            .into_iter()
            .filter(|child| Some(*child) != keep)
            .collect();
        if left.is_empty() || Instant::now() >= deadline {
            return left.len();
        }
        for child in left {
            kill(child as libc::pid_t);
            // The children of who is reaped are ours in the next turn.
            if !reap(child) {
                wait_a_moment();
            }
        }
    }
}

fn kill(pid: libc::pid_t) {
    // SAFETY: integers only.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}

/// The kernel takes a moment to end a process.
fn wait_a_moment() {
    let moment = libc::timespec {
        tv_sec: 0,
        tv_nsec: 1_000_000,
    };
    // SAFETY: a live timespec, and a null pointer that the call allows.
    unsafe { libc::nanosleep(&raw const moment, std::ptr::null_mut()) };
}

/// The search for processes whose environment names a socket.
#[derive(Debug)]
pub(crate) struct Marked {
    /// The variable, between the zeroes that end it and the one before it.
    mark: Vec<u8>,
    entries: Box<Entries>,
    environ: Vec<u8>,
}

#[derive(Debug)]
#[repr(C, align(8))]
struct Entries([u8; 8192]);

const CHUNK: usize = 64 * 1024;

impl Marked {
    /// For the processes that an agent with this socket has started.
    pub(crate) fn new(socket: &Path) -> Self {
        let mark = format!("\0{AGENT_SOCKET}={}\0", socket.display());
        let mark = mark.into_bytes();
        Self {
            environ: vec![0; mark.len() + CHUNK],
            mark,
            entries: Box::new(Entries([0; 8192])),
        }
    }

    /// Kills all, until none is found or after a few seconds. Gives how many it killed.
    pub(crate) fn end_all(&mut self) -> usize {
        let mut killed = 0;
        for _ in 0..2000 {
            let found = self.kill_each();
            if found == 0 {
                break;
            }
            killed += found;
            wait_a_moment();
        }
        killed
    }

    fn kill_each(&mut self) -> usize {
        let mut found = 0;
        let proc = open(c"/proc");
        if proc < 0 {
            return 0;
        }
        loop {
            let (buffer, len) = (self.entries.0.as_mut_ptr(), self.entries.0.len());
            // SAFETY: an open descriptor, and a live buffer of this length.
            let count = unsafe { libc::syscall(libc::SYS_getdents64, proc, buffer, len) };
            let Some(count) = usize::try_from(count).ok().filter(|count| *count > 0) else {
                break;
            };
            let mut at = 0;
            while let Some(entry) = self.entries.0[..count].get(at..) {
                // Number (8), offset (8), length (2), type (1), name.
                let (Some(len), Some(name)) = (entry.get(16..18), entry.get(19..)) else {
                    break;
                };
                at += usize::from(u16::from_ne_bytes([len[0], len[1]])).max(1);
                let Ok(name) = CStr::from_bytes_until_nul(name) else {
                    break;
                };
                if let Some(pid) = number(name.to_bytes())
                    && is_marked(pid, &self.mark, &mut self.environ)
                {
                    found += 1;
                    kill(pid);
                }
            }
        }
        close(proc);
        found
    }
}

fn is_marked(pid: libc::pid_t, mark: &[u8], buffer: &mut [u8]) -> bool {
    // SAFETY: no arguments; cannot fail.
    if pid == unsafe { libc::getpid() } {
        return false;
    }
    let mut path = [0; 32];
    let Some(path) = environ_path(pid, &mut path) else {
        return false;
    };
    let file = open(path);
    if file < 0 {
        return false;
    }
    // The zero before the first variable.
    buffer[0] = 0;
    let mut filled = 1;
    let found = loop {
        let rest = &mut buffer[filled..];
        // SAFETY: an open descriptor, and a live buffer of this length.
        let count = unsafe { libc::read(file, rest.as_mut_ptr().cast(), rest.len()) };
        let Some(count) = usize::try_from(count).ok().filter(|count| *count > 0) else {
            break false;
        };
        filled += count;
        let bytes = &buffer[..filled];
        if bytes.windows(mark.len()).any(|part| part == mark) {
            break true;
        }
        // What may be the beginning of the mark stays.
        let keep = filled.min(mark.len() - 1);
        buffer.copy_within(filled - keep..filled, 0);
        filled = keep;
    };
    close(file);
    found
}

fn open(path: &CStr) -> libc::c_int {
    // SAFETY: a live C string.
    unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) }
}

fn close(fd: libc::c_int) {
    // SAFETY: the caller opened it and uses it no more.
    unsafe { libc::close(fd) };
}

fn number(name: &[u8]) -> Option<libc::pid_t> {
    let mut number: libc::pid_t = 0;
    for byte in name {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        number = number.checked_mul(10)?.checked_add(digit.into())?;
    }
    (number > 0).then_some(number)
}

/// `/proc/PID/environ`, written without allocating.
fn environ_path(pid: libc::pid_t, path: &mut [u8; 32]) -> Option<&CStr> {
    let mut digits = [0; 10];
    let (mut rest, mut count) = (pid, 0);
    while rest > 0 && count < digits.len() {
        digits[count] = b'0' + (rest % 10) as u8;
        rest /= 10;
        count += 1;
    }
    digits[..count].reverse();
    let parts: [&[u8]; 4] = [b"/proc/", &digits[..count], b"/environ", b"\0"];
    let mut at = 0;
    for part in parts {
        path.get_mut(at..at + part.len())?.copy_from_slice(part);
        at += part.len();
    }
    CStr::from_bytes_until_nul(path).ok()
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::process::ExitStatusExt,
        process::{Command, Stdio},
    };

    use super::*;

    #[test]
    fn names_of_processes_are_numbers() {
        assert_eq!(number(b"4711"), Some(4711));
        for name in [&b""[..], b"self", b"12a", b"99999999999", b"0"] {
            assert_eq!(number(name), None);
        }
        let mut path = [0; 32];
        let path = environ_path(4_194_304, &mut path).unwrap();
        assert_eq!(path, c"/proc/4194304/environ");
        assert_eq!(environ_path(7, &mut [0; 32]).unwrap(), c"/proc/7/environ");
    }

    #[test]
    fn who_is_marked_is_killed_and_nobody_else() {
        let socket = Path::new("/nowhere/of-this-test/agent");
        let start = |value: &str| {
            Command::new("cat")
                .env("A_LONG_ONE", "x".repeat(3 * CHUNK / 2))
                .env(AGENT_SOCKET, value)
                .stdin(Stdio::piped())
                .spawn()
                .unwrap()
        };
        let mut marked = start("/nowhere/of-this-test/agent");
        let mut longer = start("/nowhere/of-this-test/agent2");
        let mut other = start("/nowhere/of-another-test/agent");
        assert!(Marked::new(socket).end_all() > 0);
        assert_eq!(marked.wait().unwrap().signal(), Some(libc::SIGKILL));
        for child in [&mut longer, &mut other] {
            assert_eq!(child.try_wait().unwrap(), None);
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
