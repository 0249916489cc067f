//! Socket options of the control connection, the same at both ends.
//!
//! TCP retransmits lost packets by default after 0.2 s, 0.6 s, 1.4 s, 3 s, 6.2 s and so on. So a connection over a
//! network that fails for 5 s may carry nothing for 6 s. One to a machine that is paused for a minute may carry nothing
//! for another minute. Since Linux 6.15 the longest interval can be set; it is set to one second.

use std::{io, os::fd::AsFd, time::Duration};

use socket2::{SockRef, TcpKeepalive};

/// `TCP_RTO_MAX_MS` of linux/tcp.h.
const TCP_RTO_MAX_MS: libc::c_int = 44;

/// The longest retransmission interval, in milliseconds. The kernel accepts no smaller value.
const MAX_RTO_MS: libc::c_int = 1000;

/// Tunes a control connection. It fails once the peer's machine acknowledges nothing for `peer_timeout`, even if nothing
/// is sent. So the connection to a host that lost its power does not stay open.
///
/// # Errors
/// The system refuses an option. A kernel that does not know the retransmission interval is no error.
pub fn tune_control(socket: &impl AsFd, peer_timeout: Duration) -> io::Result<()> {
    let socket = SockRef::from(socket);
    let interval = Duration::from_secs(5);
    let keepalive = TcpKeepalive::new();
    socket.set_tcp_keepalive(&keepalive.with_time(interval).with_interval(interval))?;
    socket.set_tcp_user_timeout(Some(peer_timeout))?;
    let fd = std::os::fd::AsRawFd::as_raw_fd(&*socket);
    // SAFETY: the descriptor is open, and the call reads one integer.
    let result = unsafe {
        libc::setsockopt(
            fd,
            libc::IPPROTO_TCP,
            TCP_RTO_MAX_MS,
            std::ptr::from_ref(&MAX_RTO_MS).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result != 0 {
        let error = io::Error::last_os_error();
        tracing::debug!(%error, "this kernel repeats lost packets ever more slowly");
    }
    Ok(())
}
