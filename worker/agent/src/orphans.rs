//! Finds and kills orphaned processes.
//!
//! There are two ways, with different gaps:
//! - [`kill_descendants`] finds every descendant of this process, whatever session or environment it has, since this
//!   process is its subreaper. It works only while this process lives.
//! - [`MarkedProcesses`] finds every process whose environment names our socket, also those of a dead agent. It misses
//!   processes that have overwritten their environment.
//!
//! [`MarkedProcesses`] makes system calls only and does not allocate after its creation. So it works in a child that
//! was forked from a process with threads.

use std::{
    ffi::CStr,
    fs, io,
    path::Path,
    time::{Duration, Instant},
};

use crate::process::AGENT_SOCKET;

/// Makes this process the subreaper: orphaned descendants become its children, so that it can kill and reap them.
pub(crate) fn become_subreaper() -> io::Result<()> {
    // SAFETY: integers only.
    match unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The children of this process, as the kernel lists them. Empty on kernels without `PROC_CHILDREN`.
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

/// Reaps adopted children that have ended. `keep` selects children that are reaped elsewhere.
pub(crate) fn reap_orphans(keep: impl Fn(u32) -> bool) {
    for child in children().into_iter().filter(|child| !keep(*child)) {
        reap(child);
    }
}

/// Reaps a child if it has ended. Returns whether it had.
fn reap(child: u32) -> bool {
    // SAFETY: integers, and a null pointer that the call allows.
    unsafe { libc::waitpid(child as libc::pid_t, std::ptr::null_mut(), libc::WNOHANG) > 0 }
}

/// Kills and reaps all descendants of this process but `keep`, for at most `timeout`.
///
/// Returns how many children are left: those that the kernel has not ended in time.
pub(crate) fn kill_descendants(keep: Option<u32>, timeout: Duration) -> usize {
    let deadline = Instant::now() + timeout;
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
            // The children of a reaped process are our children in the next turn.
            if !reap(child) {
                pause();
            }
        }
    }
}

fn kill(pid: libc::pid_t) {
    // SAFETY: integers only.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}

/// Sleeps for 1 ms, since the kernel needs some time to end a process.
fn pause() {
    let duration = libc::timespec {
        tv_sec: 0,
        tv_nsec: 1_000_000,
    };
    // SAFETY: a live timespec, and a null pointer that the call allows.
    unsafe { libc::nanosleep(&raw const duration, std::ptr::null_mut()) };
}

/// Finds and kills the processes whose environment names a socket.
#[derive(Debug)]
pub(crate) struct MarkedProcesses {
    /// The variable between two zero bytes: the end of the variable before, and its own.
    mark: Vec<u8>,
    entries: Box<Entries>,
    environ: Vec<u8>,
}

#[derive(Debug)]
#[repr(C, align(8))]
struct Entries([u8; 8192]);

const CHUNK: usize = 64 * 1024;

impl MarkedProcesses {
    /// Selects the processes that an agent with this socket has started.
    pub(crate) fn new(socket: &Path) -> Self {
        let mark = format!("\0{AGENT_SOCKET}={}\0", socket.display());
        let mark = mark.into_bytes();
        Self {
            environ: vec![0; mark.len() + CHUNK],
            mark,
            entries: Box::new(Entries([0; 8192])),
        }
    }

    /// Kills processes until none is found, for a few seconds at most. Returns how many kills it sent.
    pub(crate) fn kill_all(&mut self) -> usize {
        let mut killed = 0;
        for _ in 0..2000 {
            let found = self.kill_found();
            if found == 0 {
                break;
            }
            killed += found;
            pause();
        }
        killed
    }

    fn kill_found(&mut self) -> usize {
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
            let mut pos = 0;
            while let Some(entry) = self.entries.0[..count].get(pos..) {
                // The fields of an entry: inode (8 bytes), offset (8), length (2), type (1), name.
                let (Some(len), Some(name)) = (entry.get(16..18), entry.get(19..)) else {
                    break;
                };
                pos += usize::from(u16::from_ne_bytes([len[0], len[1]])).max(1);
                let Ok(name) = CStr::from_bytes_until_nul(name) else {
                    break;
                };
                if let Some(pid) = parse_pid(name.to_bytes())
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
    // A zero byte before the first variable.
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
        // The last bytes may be the beginning of the mark, so keep them.
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
    // SAFETY: the caller opened the descriptor and does not use it again.
    unsafe { libc::close(fd) };
}

fn parse_pid(name: &[u8]) -> Option<libc::pid_t> {
    let mut number: libc::pid_t = 0;
    for byte in name {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        number = number.checked_mul(10)?.checked_add(digit.into())?;
    }
    (number > 0).then_some(number)
}

/// Formats `/proc/PID/environ` without an allocation.
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
    let mut pos = 0;
    for part in parts {
        path.get_mut(pos..pos + part.len())?.copy_from_slice(part);
        pos += part.len();
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
        assert_eq!(parse_pid(b"4711"), Some(4711));
        for name in [&b""[..], b"self", b"12a", b"99999999999", b"0"] {
            assert_eq!(parse_pid(name), None);
        }
        let mut path = [0; 32];
        let path = environ_path(4_194_304, &mut path).unwrap();
        assert_eq!(path, c"/proc/4194304/environ");
        assert_eq!(environ_path(7, &mut [0; 32]).unwrap(), c"/proc/7/environ");
    }

    #[test]
    fn only_marked_processes_are_killed() {
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
        assert!(MarkedProcesses::new(socket).kill_all() > 0);
        assert_eq!(marked.wait().unwrap().signal(), Some(libc::SIGKILL));
        for child in [&mut longer, &mut other] {
            assert_eq!(child.try_wait().unwrap(), None);
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
