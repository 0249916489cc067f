//! Passes descriptors over a Unix stream socket.
//!
//! Descriptors travel with the first byte of a write. A read never spans two writes that both carried descriptors, so
//! they arrive in the order in which they were sent. All reads of such a socket must go through [`recv`]: a plain read
//! discards descriptors.
//!
//! Errors are `io::Error`, so that the calls fit an event loop: on a non-blocking socket they fail with
//! `WouldBlock` and have done nothing.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    cmsg_space,
    io::retry_on_intr,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
    },
};

/// The largest number of descriptors that one call sends or receives.
pub const MAX_FDS: usize = 16;

/// Bytes of the largest control message.
const CONTROL_LEN: usize = cmsg_space!(ScmRights(MAX_FDS));

/// A peer sent more than [`MAX_FDS`] descriptors with one message, or the process is out of descriptors. The received
/// ones were closed.
#[derive(Debug, thiserror::Error)]
#[error(
    "more than {MAX_FDS} descriptors came with one message, or none could be opened; check the open-files limit, else close the connection"
)]
pub struct Truncated;

/// Sends bytes, and descriptors with the first byte. Returns how many bytes were sent, as `write` does. The descriptors
/// were sent if any byte was, so send the remaining bytes without them.
///
/// Fails with `InvalidInput` for descriptors without a byte, or more than [`MAX_FDS`].
pub fn send(socket: &impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    if fds.len() > MAX_FDS || (bytes.is_empty() && !fds.is_empty()) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut space = [MaybeUninit::uninit(); CONTROL_LEN];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let parts = [IoSlice::new(bytes)];
    let sent = retry_on_intr(|| sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL))?;
    Ok(sent)
}

/// Sends all bytes, and descriptors with the first byte. For blocking sockets.
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

/// Reads bytes, and appends the descriptors that came with them (close-on-exec). Returns how many bytes were read, 0 at
/// the end of the stream, as `read` does.
///
/// Fails with `InvalidData` around [`Truncated`] if descriptors were lost. The stream is unusable then.
pub fn recv(socket: &impl AsFd, buffer: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); CONTROL_LEN];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(buffer)];
    let received =
        retry_on_intr(|| recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC))?;
    let before = fds.len();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(more) = message {
            fds.extend(more);
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) || fds.len() - before > MAX_FDS {
        fds.truncate(before);
        return Err(io::Error::new(io::ErrorKind::InvalidData, Truncated));
    }
    Ok(received.bytes)
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
        let mut arrivals = Vec::new();
        loop {
            let had = fds.len();
            let count = recv(&two, &mut buffer, &mut fds).unwrap();
            if count == 0 {
                break;
            }
            if fds.len() > had {
                arrivals.push((bytes.len(), fds.len() - had));
            }
            bytes.extend_from_slice(&buffer[..count]);
        }
        assert_eq!(bytes, b"firstplainthirdall");
        assert_eq!(
            arrivals.iter().map(|(_, count)| *count).collect::<Vec<_>>(),
            [2, 3, 16]
        );
        // One read may return a message together with plain bytes before it, never with a later message.
        let [first, second, third] = arrivals[..] else {
            panic!("{arrivals:?}");
        };
        assert!(
            first.0 == 0 && second.0 <= 10 && third.0 == 15,
            "{arrivals:?}"
        );
        let expected: Vec<u64> = [1, 2, 3, 4, 5].into_iter().chain(1..=16).collect();
        assert_eq!(lens(&fds), expected);
        let flags = rustix::io::fcntl_getfd(&fds[0]).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
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
        // A hostile peer sends more descriptors than we take.
        let files = files(40);
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(40))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let borrowed = borrow(&files);
        assert!(control.push(SendAncillaryMessage::ScmRights(&borrowed)));
        let parts = [IoSlice::new(b"x")];
        let sent = sendmsg(&one, &parts, &mut control, SendFlags::empty()).unwrap();
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
