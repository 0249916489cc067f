//! An additional connection to the agent: its first message and the answers.

use std::{
    collections::VecDeque,
    io,
    os::{fd::OwnedFd, unix::net::UnixStream},
    time::Duration,
};

use elasticrun_protocol::{
    FromWorker, ToWorker,
    frame::{self, FrameBuffer},
};
use elasticrun_shm::fds;

/// Timeout of the agent's answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Sends the first message of a connection and waits for the answer. Also returns the bytes
/// received after it.
pub(crate) fn request(
    stream: &UnixStream,
    first: &FromWorker,
) -> io::Result<(ToWorker, FrameBuffer)> {
    let mut answers = Answers::of(stream, first)?;
    let answer = answers.next()?;
    Ok((answer, answers.frames))
}

/// The answers to the first message of a connection, and the descriptors that come with them.
#[derive(Debug)]
pub(crate) struct Answers<'a> {
    stream: &'a UnixStream,
    frames: FrameBuffer,
    fds: VecDeque<OwnedFd>,
}

impl<'a> Answers<'a> {
    /// Sends the first message.
    pub(crate) fn of(stream: &'a UnixStream, first: &FromWorker) -> io::Result<Self> {
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        let bytes = frame::to_frame(first).map_err(io::Error::other)?;
        fds::send_all(stream, &bytes, &[])?;
        Ok(Self {
            stream,
            frames: FrameBuffer::default(),
            fds: VecDeque::new(),
        })
    }

    /// Waits for the next answer.
    pub(crate) fn next(&mut self) -> io::Result<ToWorker> {
        let mut bytes = [0; 4096];
        let mut received = Vec::new();
        loop {
            if let Some(answer) = self.frames.next_message().map_err(io::Error::other)? {
                return Ok(answer);
            }
            match fds::recv(self.stream, &mut bytes, &mut received)? {
                0 => return Err(io::Error::other("it closed the connection")),
                count => self.frames.extend(&bytes[..count]),
            }
            self.fds.extend(received.drain(..));
        }
    }

    /// Takes the next descriptors that came with the answers.
    pub(crate) fn take_fds(&mut self, count: usize) -> io::Result<Vec<OwnedFd>> {
        let missing = || io::Error::other("a descriptor did not come with its message");
        (0..count)
            .map(|_| self.fds.pop_front().ok_or_else(missing))
            .collect()
    }
}
