//! Descriptors over a Unix stream socket.
//!
//! They travel with the first byte of a write. A read never spans two writes that both carried some, so
//! descriptors come out in the order they went in. All reads of such a socket must go through [`recv`]: a
//! plain read throws descriptors away.
//!
//! Errors are `io::Error`, so that the calls fit an event loop: on a non-blocking socket they fail with
//! `WouldBlock` and have done nothing.

use std::{
    io,
    mem::size_of,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
    ptr,
};

/// The most descriptors that one call sends or takes.
pub const MAX_FDS: usize = 16;

/// Room for the largest control message, aligned as the kernel wants it.
type Control = [u64; 16];
const _: () = {
    // SAFETY: arithmetic only.
    let need = unsafe { libc::CMSG_SPACE((MAX_FDS * size_of::<RawFd>()) as u32) };
    assert!(need as usize <= size_of::<Control>());
};

/// A peer sent more descriptors with one message than any of ours carries; those that came were closed.
#[derive(Debug, thiserror::Error)]
#[error(
    "more than {MAX_FDS} descriptors came with one message, or none could be opened; check the open-files limit, else close the connection"
)]
pub struct Truncated;

/// Sends bytes, and descriptors with the first of them. Returns how many bytes went, as `write` does;
/// the descriptors went if any byte did, so send what is left without them.
///
/// Fails with `InvalidInput` for descriptors without a byte, or more than [`MAX_FDS`].
pub fn send(socket: &impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    if fds.len() > MAX_FDS || (bytes.is_empty() && !fds.is_empty()) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let mut control: Control = [0; 16];
    let mut message = message(&mut part, &mut control);
    if fds.is_empty() {
        message.msg_controllen = 0;
    } else {
        let len = size_of_val(fds) as u32;
        // SAFETY: arithmetic only.
        message.msg_controllen = unsafe { libc::CMSG_SPACE(len) } as _;
        // SAFETY: the message has room for one control message with this many descriptors, checked above
        // and at compile time; a BorrowedFd is a RawFd in memory.
        unsafe {
            let head = libc::CMSG_FIRSTHDR(&raw const message);
            (*head).cmsg_level = libc::SOL_SOCKET;
            (*head).cmsg_type = libc::SCM_RIGHTS;
            (*head).cmsg_len = libc::CMSG_LEN(len) as _;
            ptr::copy_nonoverlapping(fds.as_ptr().cast(), libc::CMSG_DATA(head), len as usize);
        }
    }
    retry(|| {
        // SAFETY: an open descriptor and a message whose parts live until the call returns; it only reads them.
        unsafe {
            libc::sendmsg(
                socket.as_fd().as_raw_fd(),
                &raw const message,
                libc::MSG_NOSIGNAL,
            )
        }
    })
}

/// Sends all bytes, and descriptors with the first of them. For blocking sockets.
pub fn send_all(socket: &impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut sent = send(socket, bytes, fds)?;
    while sent < bytes.len() {
        match send(socket, &bytes[sent..], &[])? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            more => sent += more,
        }
    }
    Ok(())
}

/// Reads bytes, and appends the descriptors that came with them (close-on-exec). Returns how many bytes
/// came, 0 at the end of the stream, as `read` does.
///
/// Fails with `InvalidData` around [`Truncated`] if descriptors were lost; the stream is of no use then.
pub fn recv(socket: &impl AsFd, buffer: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let mut control: Control = [0; 16];
    let mut message = message(&mut part, &mut control);
    let count = retry(|| {
        message.msg_controllen = size_of::<Control>() as _;
        // SAFETY: an open descriptor and a message whose parts are exclusively ours until the call returns.
        unsafe {
            libc::recvmsg(
                socket.as_fd().as_raw_fd(),
                &raw mut message,
                libc::MSG_CMSG_CLOEXEC,
            )
        }
    })?;
    let before = fds.len();
    take(&message, fds);
    if message.msg_flags & libc::MSG_CTRUNC != 0 || fds.len() - before > MAX_FDS {
        fds.truncate(before);
        return Err(io::Error::new(io::ErrorKind::InvalidData, Truncated));
    }
    Ok(count)
}

fn message(part: &mut libc::iovec, control: &mut Control) -> libc::msghdr {
    // SAFETY: all zeroes is a valid message of nothing.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message
}

/// Becomes the owner of all descriptors of a message just received.
fn take(message: &libc::msghdr, fds: &mut Vec<OwnedFd>) {
    // SAFETY: the kernel filled the control part, whose messages the macros walk within its length. Each
    // descriptor in it was just opened for us.
    unsafe {
        let mut head = libc::CMSG_FIRSTHDR(message);
        while !head.is_null() {
            if (*head).cmsg_level == libc::SOL_SOCKET && (*head).cmsg_type == libc::SCM_RIGHTS {
                let len = ((*head).cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
                let data = libc::CMSG_DATA(head).cast::<RawFd>();
                for index in 0..len / size_of::<RawFd>() {
                    fds.push(OwnedFd::from_raw_fd(data.add(index).read_unaligned()));
                }
            }
            head = libc::CMSG_NXTHDR(message, head);
        }
    }
}

fn retry(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        if let Ok(count) = usize::try_from(call()) {
            return Ok(count);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write, os::unix::net::UnixStream};

    use super::*;
    use crate::memfd;

    fn files(count: usize) -> Vec<OwnedFd> {
        (1..=count)
            .map(|len| memfd::create("test", len as u64).unwrap())
            .collect()
    }

    fn borrow(files: &[OwnedFd]) -> Vec<BorrowedFd<'_>> {
        files.iter().map(AsFd::as_fd).collect()
    }

    fn lens(fds: &[OwnedFd]) -> Vec<u64> {
        fds.iter().map(|fd| memfd::len(fd).unwrap()).collect()
    }

    #[test]
    fn descriptors_come_in_order_and_with_their_bytes() {
        let (one, two) = UnixStream::pair().unwrap();
        let files = files(MAX_FDS);
        send_all(&one, b"first", &borrow(&files[..2])).unwrap();
        (&one).write_all(b"plain").unwrap();
        send_all(&one, b"third", &borrow(&files[2..5])).unwrap();
        send_all(&one, b"all", &borrow(&files)).unwrap();
        drop(one);

        let (mut bytes, mut fds, mut buffer) = (Vec::new(), Vec::new(), [0; 64]);
        let mut at = Vec::new();
        loop {
            let had = fds.len();
            let count = recv(&two, &mut buffer, &mut fds).unwrap();
            if count == 0 {
                break;
            }
            if fds.len() > had {
                at.push((bytes.len(), fds.len() - had));
            }
            bytes.extend_from_slice(&buffer[..count]);
        }
        assert_eq!(bytes, b"firstplainthirdall");
        assert_eq!(
            at.iter().map(|(_, count)| *count).collect::<Vec<_>>(),
            [2, 3, 16]
        );
        // The kernel may give a message together with plain bytes before it, never with a later one's.
        assert!(at[0].0 == 0 && at[1].0 <= 10 && at[2].0 == 15, "{at:?}");
        let expected: Vec<u64> = [1, 2, 3, 4, 5].into_iter().chain(1..=16).collect();
        assert_eq!(lens(&fds), expected);
        // SAFETY: an open descriptor.
        let flags = unsafe { libc::fcntl(fds[0].as_raw_fd(), libc::F_GETFD) };
        assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
    }

    #[test]
    fn a_large_message_goes_in_parts() {
        let (one, two) = UnixStream::pair().unwrap();
        let files = files(1);
        let sent: Vec<u8> = (0..3_000_000_u32).map(|byte| byte as u8).collect();
        let mut got = Vec::new();
        let mut fds = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                send_all(&one, &sent, &borrow(&files)).unwrap();
                one.shutdown(std::net::Shutdown::Write).unwrap();
            });
            let mut buffer = [0; 65_536];
            loop {
                match recv(&two, &mut buffer, &mut fds).unwrap() {
                    0 => break,
                    count => got.extend_from_slice(&buffer[..count]),
                }
            }
        });
        assert!(got == sent);
        assert_eq!(lens(&fds), [1]);
    }

    #[test]
    fn an_idle_socket_would_block() {
        let (one, _two) = UnixStream::pair().unwrap();
        one.set_nonblocking(true).unwrap();
        let error = recv(&one, &mut [0; 8], &mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        let mut sent = 0;
        let error = loop {
            match send(&one, &[0; 65_536], &[]) {
                Ok(count) => sent += count,
                Err(error) => break error,
            }
        };
        assert!(sent > 0);
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn what_cannot_be_sent_is_refused() {
        let (one, two) = UnixStream::pair().unwrap();
        let files = files(MAX_FDS + 1);
        for (bytes, fds) in [(&b""[..], &files[..1]), (b"x", &files[..])] {
            let error = send(&one, bytes, &borrow(fds)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
        drop(two);
        let error = send(&one, b"x", &[]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn too_many_descriptors_of_a_peer_are_an_error_and_leak_none() {
        let (one, two) = UnixStream::pair().unwrap();
        // As a hostile peer would: more than we take, with a buffer of its own.
        let files = files(40);
        let raw: Vec<RawFd> = files.iter().map(AsRawFd::as_raw_fd).collect();
        let mut control = [0_u64; 64];
        let mut byte = *b"x";
        let mut part = libc::iovec {
            iov_base: byte.as_mut_ptr().cast(),
            iov_len: 1,
        };
        // SAFETY: as in `send`, with room for 40 descriptors.
        let sent = unsafe {
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_iov = &raw mut part;
            message.msg_iovlen = 1;
            message.msg_control = control.as_mut_ptr().cast();
            let len = size_of_val(&raw[..]) as u32;
            message.msg_controllen = libc::CMSG_SPACE(len) as _;
            let head = libc::CMSG_FIRSTHDR(&raw const message);
            (*head).cmsg_level = libc::SOL_SOCKET;
            (*head).cmsg_type = libc::SCM_RIGHTS;
            (*head).cmsg_len = libc::CMSG_LEN(len) as _;
            ptr::copy_nonoverlapping(raw.as_ptr().cast(), libc::CMSG_DATA(head), len as usize);
            libc::sendmsg(one.as_raw_fd(), &raw const message, 0)
        };
        assert_eq!(sent, 1);
        let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let before = open();
        let mut fds = Vec::new();
        let error = recv(&two, &mut [0; 8], &mut fds).unwrap_err();
        assert!(error.get_ref().unwrap().is::<Truncated>());
        assert!(fds.is_empty());
        assert_eq!(open(), before);
    }
}
