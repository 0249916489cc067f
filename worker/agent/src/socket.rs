//! Options of the control connection, the same at both ends.
//!
//! What a network that is gone for a moment has lost is repeated by TCP, by default after 0.2 s, 0.6 s, 1.4 s, 3 s, 6.2 s and so on:
//! a connection that was cut for 5 s may carry nothing for 6 s, and one to a machine that was paused for a minute nothing for
//! another one. Where the kernel can be told (Linux 6.15), it repeats each second.

use std::{io, os::fd::AsFd, time::Duration};

use socket2::{SockRef, TcpKeepalive};

/// `TCP_RTO_MAX_MS` of linux/tcp.h.
const TCP_RTO_MAX_MS: libc::c_int = 44;

/// The longest pause between two repetitions; the kernel takes no shorter one.
const REPEAT: libc::c_int = 1000;

/// Tunes a control connection. One whose peer's machine acknowledges nothing for `gone` ends, also if nothing is sent: so no
/// descriptor of a host that lost its power stays open.
///
/// # Errors
/// What the system refuses, but for what it does not know.
pub fn tune_control(socket: &impl AsFd, gone: Duration) -> io::Result<()> {
    let socket = SockRef::from(socket);
    let pause = Duration::from_secs(5);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(pause).with_interval(pause))?;
    socket.set_tcp_user_timeout(Some(gone))?;
    let fd = std::os::fd::AsRawFd::as_raw_fd(&*socket);
    // SAFETY: the descriptor is open, and the call reads one integer.
    let result = unsafe {
        libc::setsockopt(
            fd,
            libc::IPPROTO_TCP,
            TCP_RTO_MAX_MS,
            std::ptr::from_ref(&REPEAT).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result != 0 {
        let error = io::Error::last_os_error();
        tracing::debug!(%error, "this kernel repeats lost packets ever more slowly");
    }
    Ok(())
}
