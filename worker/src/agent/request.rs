//! An additional connection to the agent: its first message and the answer.

use std::{
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
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    let bytes = frame::to_frame(first).map_err(io::Error::other)?;
    fds::send_all(stream, &bytes, &[])?;
    let mut frames = FrameBuffer::default();
    let mut bytes = [0; 4096];
    let mut received: Vec<OwnedFd> = Vec::new();
    loop {
        match fds::recv(stream, &mut bytes, &mut received)? {
            0 => return Err(io::Error::other("it closed the connection")),
            count => frames.extend(&bytes[..count]),
        }
        if let Some(answer) = frames.next_message().map_err(io::Error::other)? {
            return Ok((answer, frames));
        }
    }
}
