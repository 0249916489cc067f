//! The connection to the agent for requests, and the thread that reads it.
//!
//! Who asks hands the kernel as much as it takes at once; the thread sends the rest. So no call is held up by an
//! agent that does not read, and all of them hear at once when their round is over.

use std::{
    io,
    os::{fd::AsFd, unix::net::UnixStream},
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use elasticrun_protocol::{FromWorker, Process, ToWorker, frame::FrameBuffer, store::Answer};
use elasticrun_shm::fds;
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::eventfd::{EfdFlags, EventFd},
};

use super::Client;
use crate::{Error, agent::request};

/// Bytes that may wait for an agent that does not read.
const MOST_UNSENT: usize = 64 << 20;

/// See the module.
#[derive(Debug)]
pub(super) struct Line {
    number: u64,
    stream: UnixStream,
    /// What the kernel has not taken yet.
    unsent: Mutex<Vec<u8>>,
    /// Rung when there is something unsent.
    bell: EventFd,
    ended: AtomicBool,
}

impl Line {
    /// Dials, is let in, and starts the thread. Answers go to the client.
    pub(super) fn open(
        number: u64,
        socket: &Path,
        process: Process,
        client: Arc<Client>,
    ) -> Result<Arc<Self>, Error> {
        let lost = |error: io::Error| Error::AgentLost {
            why: format!("{}: {error}", socket.display()),
        };
        let stream = UnixStream::connect(socket).map_err(lost)?;
        let frames = enter(&stream, process).map_err(lost)??;
        stream.set_nonblocking(true).map_err(lost)?;
        let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK);
        let line = Arc::new(Self {
            number,
            stream,
            unsent: Mutex::default(),
            bell: bell
                .map_err(io::Error::from)
                .map_err(Error::system("make an eventfd"))?,
            ended: AtomicBool::new(false),
        });
        let own = Arc::clone(&line);
        // Ends with the connection, at the latest with the process.
        thread::Builder::new()
            .name("elasticrun-store".into())
            .spawn(move || {
                let Err(error) = own.listen(frames, &client);
                own.ended.store(true, Ordering::SeqCst);
                tracing::debug!(%error, "the connection for requests ended");
                client.line_ended(number, &error.to_string());
            })
            .map_err(Error::system("start a thread"))?;
        Ok(line)
    }

    /// Which connection of this process it is.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Whether no answer will come any more.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Sends a frame, after all that was sent before. Does not wait.
    pub(super) fn send(&self, frame: &[u8]) -> io::Result<()> {
        let mut unsent = self.unsent.lock().unwrap_or_else(PoisonError::into_inner);
        if unsent.len() + frame.len() > MOST_UNSENT {
            return Err(io::Error::other("the agent does not read requests"));
        }
        let mut rest = frame;
        if unsent.is_empty() {
            rest = &frame[as_much(fds::send(&self.stream, frame, &[]))?..];
        }
        if !rest.is_empty() {
            unsent.extend_from_slice(rest);
            self.bell.write(1)?;
        }
        Ok(())
    }

    fn listen(
        &self,
        mut frames: FrameBuffer,
        client: &Client,
    ) -> io::Result<std::convert::Infallible> {
        let mut bytes = vec![0; 64 << 10];
        loop {
            while let Some(answer) = frames.next_message::<Answer>().map_err(io::Error::other)? {
                client.answered(answer);
            }
            self.wait()?;
            self.flush()?;
            match fds::recv(&self.stream, &mut bytes, &mut Vec::new()) {
                Ok(0) => return Err(io::Error::other("the agent closed the connection")),
                Ok(count) => frames.extend(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Sleeps until something can be read, or sent if there is anything to send.
    fn wait(&self) -> io::Result<()> {
        let is_empty = (self.unsent.lock())
            .unwrap_or_else(PoisonError::into_inner)
            .is_empty();
        let wanted = match is_empty {
            true => PollFlags::POLLIN,
            false => PollFlags::POLLIN | PollFlags::POLLOUT,
        };
        let mut sources = [
            PollFd::new(self.stream.as_fd(), wanted),
            PollFd::new(self.bell.as_fd(), PollFlags::POLLIN),
        ];
        loop {
            match poll(&mut sources, PollTimeout::NONE) {
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
                Ok(_) => break,
            }
        }
        match self.bell.read() {
            Ok(_) | Err(Errno::EAGAIN) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn flush(&self) -> io::Result<()> {
        let mut unsent = self.unsent.lock().unwrap_or_else(PoisonError::into_inner);
        if !unsent.is_empty() {
            let count = as_much(fds::send(&self.stream, &unsent, &[]))?;
            unsent.drain(..count);
        }
        Ok(())
    }
}

/// What a socket that does not block has taken.
fn as_much(sent: io::Result<usize>) -> io::Result<usize> {
    match sent {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        other => other,
    }
}

/// Says who it is and waits to be let in. Gives what came behind the answer.
fn enter(stream: &UnixStream, process: Process) -> io::Result<Result<FrameBuffer, Error>> {
    let open = FromWorker::OpenStore {
        local_rank: process.local_rank,
        generation: process.generation,
    };
    Ok(match request(stream, &open)? {
        (ToWorker::StoreOpened, frames) => Ok(frames),
        (ToWorker::Refused { why }, _) => Err(Error::Refused { why }),
        _ => Err(Error::Protocol {
            why: "it answered the opening of the store with something else".to_owned(),
        }),
    })
}
