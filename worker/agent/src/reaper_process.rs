//! A small process that outlives its agent briefly, to kill the processes that a killed agent leaves.
//!
//! A parent-death signal ends the workers of a killed agent, but not the processes that they have started. The reaper
//! process sleeps on a socket whose other end only the agent holds open. If the socket closes without a farewell, the agent is
//! dead, and the reaper process kills all processes marked by the agent's socket. Then it sends the agent's last will
//! ([`crate::last_will`]), if it has one.
//!
//! It is forked and executes no program. It makes system calls only. Its name in the process list is `agent-guard`.

use std::{
    io::{self, IoSlice},
    os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd},
    path::Path,
    sync::Arc,
};

use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, sendmsg, socketpair,
};

use crate::orphans::MarkedProcesses;

/// The message of an agent that ends in order. All others are last wills.
const FAREWELL: &[u8] = &[0];

/// The size limit of a last will, in bytes.
const MAX_WILL: usize = 1024;

/// The agent's handle of its reaper process. If it is dropped without [`ReaperProcess::dismiss`], the reaper process
/// acts as if the agent were dead.
#[derive(Debug)]
pub(crate) struct ReaperProcess {
    socket: Arc<OwnedFd>,
    pid: libc::pid_t,
}

/// Gives last wills to the reaper process.
#[derive(Debug)]
pub(crate) struct WillHolder(Arc<OwnedFd>);

impl ReaperProcess {
    /// Forks the reaper process of an agent with this socket.
    pub(crate) fn start(socket: &Path) -> io::Result<Self> {
        let mut marked = MarkedProcesses::new(socket);
        let (here, there) = socketpair(
            AddressFamily::Unix,
            SockType::SeqPacket,
            None,
            SockFlag::SOCK_CLOEXEC,
        )?;
        // SAFETY: the child makes system calls only and never returns.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => watch(there.into_raw_fd(), &mut marked),
            pid => Ok(Self {
                socket: Arc::new(here),
                pid,
            }),
        }
    }

    /// The process id of the reaper process.
    pub(crate) fn pid(&self) -> u32 {
        self.pid as u32
    }

    /// Gives last wills to the reaper process.
    pub(crate) fn will_holder(&self) -> WillHolder {
        WillHolder(self.socket.clone())
    }

    /// Ends the reaper process without any kill, and waits for its end.
    pub(crate) fn dismiss(self) {
        // It fails if the reaper process is gone.
        let _ = send(&self.socket, FAREWELL, &[]);
        // SAFETY: integers, and a null pointer that the call allows.
        unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) };
    }
}

impl WillHolder {
    /// Replaces the last will: these bytes are written to this stream when the agent is dead and its processes are killed.
    ///
    /// # Errors
    /// The will is too long, or the reaper process is gone.
    pub(crate) fn hold(&self, stream: &impl AsFd, will: &[u8]) -> io::Result<()> {
        if will.len() > MAX_WILL || will.len() <= FAREWELL.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let fds = [stream.as_fd().as_raw_fd()];
        send(&self.0, will, &[ControlMessage::ScmRights(&fds)])
    }
}

fn send(socket: &OwnedFd, bytes: &[u8], with: &[ControlMessage<'_>]) -> io::Result<()> {
    let bytes = [IoSlice::new(bytes)];
    sendmsg::<()>(
        socket.as_raw_fd(),
        &bytes,
        with,
        MsgFlags::MSG_NOSIGNAL,
        None,
    )?;
    Ok(())
}

/// The last will, as the reaper process holds it.
struct Will {
    stream: libc::c_int,
    bytes: [u8; MAX_WILL],
    len: usize,
}

/// What came from the agent.
enum Received {
    Will,
    Farewell,
    /// The agent is dead.
    End,
}

/// Runs in the child: waits for the end of the agent.
fn watch(socket: libc::c_int, marked: &mut MarkedProcesses) -> ! {
    // SAFETY: system calls with integers; all may be made after a fork. The closed descriptors are copies, which nothing
    // uses in this process.
    unsafe {
        libc::setsid();
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT] {
            libc::signal(signal, libc::SIG_IGN);
        }
        libc::prctl(libc::PR_SET_NAME, c"agent-guard".as_ptr());
        // Close stdout and stderr, so that a reader of the agent's output sees its end.
        libc::dup2(socket, 0);
        libc::syscall(libc::SYS_close_range, 1_u32, u32::MAX, 0_u32);
    }
    let mut will = Will {
        stream: -1,
        bytes: [0; MAX_WILL],
        len: 0,
    };
    loop {
        match receive(&mut will) {
            Received::Will => {}
            Received::End => break,
            // SAFETY: ends this process without the exit handlers of the agent.
            Received::Farewell => unsafe { libc::_exit(0) },
        }
    }
    marked.kill_all();
    // SAFETY: an open descriptor and live bytes, or -1, which the call refuses. The kernel takes that few bytes at once, or
    // the connection is of no use. Then this process ends without the exit handlers of the agent.
    unsafe {
        libc::write(will.stream, will.bytes.as_ptr().cast(), will.len);
        libc::_exit(0)
    }
}

/// Receives a message at descriptor 0. A last will replaces the one before.
fn receive(will: &mut Will) -> Received {
    #[repr(C, align(8))]
    struct Rights([u8; 64]);
    let mut bytes = [0_u8; MAX_WILL];
    let mut rights = Rights([0; 64]);
    let mut part = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: all zeros are a valid header without parts.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = rights.0.as_mut_ptr().cast();
    header.msg_controllen = rights.0.len() as _;
    // SAFETY: the header names live buffers with their lengths.
    let count = unsafe { libc::recvmsg(0, &raw mut header, 0) };
    let Ok(count) = usize::try_from(count) else {
        // SAFETY: the address of this thread's error number.
        return match unsafe { *libc::__errno_location() } {
            // As if nothing had come.
            libc::EINTR => Received::Will,
            _ => Received::End,
        };
    };
    if count == 0 {
        return Received::End;
    }
    // SAFETY: the kernel has filled the header. A first control message lies within the buffer, and rights of one descriptor
    // hold one.
    let stream = unsafe {
        let first = libc::CMSG_FIRSTHDR(&raw const header);
        if first.is_null() || (*first).cmsg_type != libc::SCM_RIGHTS {
            return Received::Farewell;
        }
        libc::CMSG_DATA(first)
            .cast::<libc::c_int>()
            .read_unaligned()
    };
    if will.stream >= 0 {
        // SAFETY: it was received, and nothing else uses it.
        unsafe { libc::close(will.stream) };
    }
    *will = Will {
        stream,
        bytes,
        len: count,
    };
    Received::Will
}
