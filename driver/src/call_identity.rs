//! The identity of the program whose function the workers call (`elasticrun.run` in Python).
//!
//! The driver inherits the writing end of a pipe from that program (`--call-fd`) and writes one line: the program's
//! [`Identity`], by which the workers recognise it. Workers have the identity of their host from its agent. So no private key
//! is in a variable or an argument.

use std::{
    fs::File,
    io::{self, Write},
    os::fd::{FromRawFd, OwnedFd, RawFd},
};

use elasticrun_tls::Identity;
use zeroize::Zeroizing;

/// Writes the identity and closes the descriptor.
///
/// # Errors
/// The descriptor is not open for writing, or its reader is closed.
pub(crate) fn write(fd: RawFd, identity: &Identity) -> io::Result<()> {
    // SAFETY: an integer; a descriptor that is not open gives an error.
    if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, and was given to this process for this alone.
    let mut pipe = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    let mut line = Zeroizing::new(serde_json::to_vec(identity)?);
    line.push(b'\n');
    pipe.write_all(&line)
}
