//! The key by which workers fetch a function from the program that started this driver (`elasticrun.run` in Python).
//!
//! The driver inherits the writing end of a pipe from that program (`--call-fd`) and writes one line: the key in
//! hexadecimal digits. Agents derive the same key from the job's secret ([`Secret::call_key`]) and pass it to workers over
//! their Unix socket. So the key is in no variable, no argument and no message between hosts.

use std::{
    fs::File,
    io::{self, Write},
    os::fd::{FromRawFd, OwnedFd, RawFd},
};

use elasticrun_protocol::auth::Secret;

/// Writes the key and closes the descriptor.
///
/// # Errors
/// The descriptor is not open for writing, or its reader is closed.
pub(crate) fn write_key(fd: RawFd, secret: &Secret, run_id: &str) -> io::Result<()> {
    // SAFETY: an integer; a descriptor that is not open gives an error.
    if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, and was given to this process for this alone.
    let mut pipe = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    writeln!(pipe, "{}", secret.call_key(run_id).to_hex())
}
