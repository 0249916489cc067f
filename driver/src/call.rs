//! The program that started this driver to call a function in all workers (`elasticrun.run` in Python), and the key by
//! which workers fetch that function from it.
//!
//! The program inherits the driver the writing end of a pipe (`--call-fd`), and reads one line: the key in hexadecimal
//! digits. Agents make the same key of the job's secret ([`Secret::call_key`]) and give it to workers over their Unix
//! socket. So it is in no variable, no argument and no message between hosts.

use std::{
    fs::File,
    io::{self, Write},
    os::fd::{FromRawFd, OwnedFd, RawFd},
};

use elasticrun_protocol::auth::Secret;

/// Writes the key and closes the descriptor.
///
/// # Errors
/// The descriptor is not open for writing, or its reader is gone.
pub(crate) fn tell_key(fd: RawFd, secret: &Secret, run_id: &str) -> io::Result<()> {
    // SAFETY: an integer; a descriptor that is not open gives an error.
    if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, and was given to this process for this alone.
    let mut pipe = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    writeln!(pipe, "{}", secret.call_key(run_id).to_hex())
}
