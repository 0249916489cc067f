//! Frames on their way out, and their vectored write.

use std::{
    collections::VecDeque,
    io::{self, IoSlice},
};

use bytes::Bytes;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

use super::{shared::Writer, stream::Stream};
use crate::core::frame::{HEADER, Header, mark_shared};

/// A frame: header, keys, lens and values.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    header: [u8; HEADER],
    parts: [Bytes; 3],
    pub(super) priority: i32,
}

impl Outgoing {
    /// A frame. The lengths in the header are those of the parts.
    pub(crate) fn new(header: &Header, parts: [Bytes; 3]) -> Self {
        debug_assert_eq!(
            header.payload() as usize,
            parts.iter().map(Bytes::len).sum::<usize>()
        );
        Self {
            header: header.encode(),
            parts,
            priority: header.priority,
        }
    }

    pub(crate) fn len(&self) -> usize {
        HEADER + self.parts.iter().map(Bytes::len).sum::<usize>()
    }

    /// Puts a payload that is worth it into shared memory, if there is room. What is left for the socket says where it is.
    fn share(&mut self, writer: &mut Writer) {
        if self.len() - HEADER < SMALLEST_SHARED {
            return;
        }
        if let Some(position) = writer.put(&self.parts) {
            mark_shared(&mut self.header);
            let position = Bytes::copy_from_slice(&position.to_le_bytes());
            self.parts = [position, Bytes::new(), Bytes::new()];
        }
    }
}

/// Smaller payloads go through the socket: they come with their header in one call.
const SMALLEST_SHARED: usize = 4 << 10;

/// Frames that are taken from the queue together, so that small ones share a system call.
#[derive(Debug, Default)]
pub(super) struct Batch {
    frames: VecDeque<Outgoing>,
    /// Bytes of the first frame that are sent.
    sent: usize,
    /// How many of the frames were offered to shared memory.
    offered: usize,
    pub(super) bytes: usize,
}

/// Most frames and bytes of a batch. What is in a batch is not overtaken by higher priorities.
const MAX_FRAMES: usize = 64;
const MAX_BYTES: usize = 256 << 10;

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.frames.len() >= MAX_FRAMES || self.bytes >= MAX_BYTES
    }

    pub(super) fn push(&mut self, frame: Outgoing) {
        self.bytes += frame.len();
        self.frames.push_back(frame);
    }

    /// Puts payloads of new frames into shared memory.
    pub(super) fn share(&mut self, writer: &mut Writer) {
        for frame in self.frames.iter_mut().skip(self.offered) {
            let before = frame.len();
            frame.share(writer);
            self.bytes -= before - frame.len();
        }
        self.offered = self.frames.len();
    }

    /// Sends what the socket takes now. Returns whether everything is sent.
    pub(super) fn send(&mut self, stream: &Stream) -> io::Result<bool> {
        while !self.is_empty() {
            let mut slices = Vec::with_capacity(self.frames.len() * 4);
            let mut skip = self.sent;
            for frame in &self.frames {
                let parts = frame.parts.iter().map(|part| &part[..]);
                for part in std::iter::once(&frame.header[..]).chain(parts) {
                    let skipped = skip.min(part.len());
                    skip -= skipped;
                    if skipped < part.len() {
                        slices.push(IoSlice::new(&part[skipped..]));
                    }
                }
            }
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match sendmsg(stream, &slices, &mut SendAncillaryBuffer::default(), flags) {
                Ok(count) => self.advance(count),
                Err(rustix::io::Errno::AGAIN) => return Ok(false),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(true)
    }

    fn advance(&mut self, count: usize) {
        self.bytes -= count;
        self.sent += count;
        while let Some(first) = self.frames.front()
            && self.sent >= first.len()
        {
            self.sent -= first.len();
            self.frames.pop_front();
            self.offered = self.offered.saturating_sub(1);
        }
    }
}
