//! The receiving half of a connection: headers through a small buffer, payloads straight to where they belong, from the socket or
//! from memory that both ends share.

use std::{
    io::{self, IoSliceMut, Read},
    sync::Arc,
};

use super::{
    shared::{Reader, Slot},
    stream::Stream,
};
use crate::core::{
    frame::{FAILURE, FrameError, HEADER, Header, Kind, POSITION, SHARED},
    opening::Stranger,
};

/// Bytes that are read at once. A payload that is larger than what the buffer has goes past it.
const BUFFER: usize = 32 << 10;

/// Reads frames.
#[derive(Debug)]
pub(crate) struct Receiver {
    stream: Arc<Stream>,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// Memory that the other end shares.
    shared: Option<Reader>,
    /// The payload that is there, from its header on until it is released.
    slot: Option<Slot>,
    /// Whether the last payload was large. The next one will be too: only its header is read into the buffer, so that the
    /// payload is not copied.
    large: bool,
    /// Whether the socket had no more than was read last.
    drained: bool,
    /// The end of the connection, until it is told.
    ended: Option<io::Error>,
}

/// Payloads from this size on are large.
const LARGE: u64 = 16 << 10;

/// Why no frame was read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReceiveError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Frame(#[from] FrameError),
    #[error("{0}")]
    Stranger(#[from] Stranger),
}

impl Receiver {
    pub(crate) fn new(stream: Arc<Stream>) -> Self {
        Self {
            stream,
            buffer: vec![0; BUFFER].into_boxed_slice(),
            start: 0,
            end: 0,
            shared: None,
            slot: None,
            large: false,
            drained: false,
            ended: None,
        }
    }

    /// From now on, the other end may put payloads there.
    pub(crate) fn share(&mut self, reader: Reader) {
        self.shared = Some(reader);
    }

    fn buffered(&self) -> usize {
        self.end - self.start
    }

    fn compact(&mut self) {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.buffered());
        }
    }

    /// Reads what has come, without waiting. Returns whether anything has. The end of the connection is told again by what
    /// reads next.
    pub(crate) fn read_some(&mut self) -> io::Result<bool> {
        self.compact();
        // The header of a large frame is read alone.
        let space = match self.large && self.end < HEADER {
            true => HEADER,
            false => BUFFER,
        };
        let error = loop {
            match self.stream.read_now(&mut self.buffer[self.end..space]) {
                Ok(0) if space > self.end => break io::ErrorKind::UnexpectedEof.into(),
                Ok(count) => {
                    self.end += count;
                    self.drained = self.end < space;
                    return Ok(count > 0);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break error,
            }
        };
        self.ended = Some(io::Error::new(error.kind(), error.to_string()));
        Err(error)
    }

    /// Whether the last [`read_some`](Self::read_some) got all that had come, and nothing was read since. Returns it once.
    pub(crate) fn is_drained(&mut self) -> bool {
        std::mem::take(&mut self.drained)
    }

    /// The next header, if it has come. It is not consumed.
    pub(crate) fn next_header(&self) -> Option<Result<Header, FrameError>> {
        (self.buffered() >= HEADER).then(|| Header::decode(&self.head()))
    }

    /// Whether the buffer is too small for this frame.
    pub(crate) fn is_larger_than_buffer(header: &Header) -> bool {
        header.on_socket() > (BUFFER - HEADER) as u64
    }

    /// Whether the next frames are likely to be larger than the buffer.
    pub(crate) fn expects_large(&self) -> bool {
        self.large
    }

    /// Whether there is something to do for which no further byte is needed.
    pub(crate) fn has_work(&self) -> bool {
        let complete = |header: Header| header.on_socket() <= (self.buffered() - HEADER) as u64;
        self.ended.is_some()
            || (self.next_header()).is_some_and(|header| header.map_or(true, complete))
    }

    /// Reads until the buffer has `count` bytes.
    fn fill(&mut self, count: usize) -> io::Result<()> {
        if self.buffered() >= count {
            return Ok(());
        }
        if let Some(error) = self.ended.take() {
            return Err(error);
        }
        self.compact();
        let space = if self.large { count } else { BUFFER };
        while self.end < count {
            match (&*self.stream).read(&mut self.buffer[self.end..space]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(more) => self.end += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Waits for a header. Its payload must be read next, and then be [released](Self::release).
    pub(crate) fn header(&mut self) -> Result<Header, ReceiveError> {
        // It is still there if a callback panicked.
        self.release();
        self.fill(HEADER)?;
        let mut header = Header::decode(&self.head())?;
        self.large = header.on_socket() >= LARGE;
        if header.has(SHARED) {
            self.fill(HEADER + POSITION)?;
            self.start += HEADER;
            let mut position = [0; POSITION];
            position.copy_from_slice(&self.buffer[self.start..self.start + POSITION]);
            self.start += POSITION;
            let Header { kind, flags, .. } = header;
            let unknown = FrameError::Unknown {
                kind: kind as u8,
                flags,
            };
            let shared = self.shared.as_ref().ok_or(unknown)?;
            header.flags &= !SHARED;
            self.slot = Some(shared.open(u64::from_le_bytes(position), &header)?);
        } else {
            self.start += HEADER;
        }
        Ok(header)
    }

    /// The payload of the last header is not needed any more.
    pub(crate) fn release(&mut self) {
        if let (Some(_), Some(shared)) = (self.slot.take(), &self.shared) {
            shared.release();
        }
    }

    fn head(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes.copy_from_slice(&self.buffer[self.start..self.start + HEADER]);
        bytes
    }

    /// Whether a whole frame is in the buffer.
    pub(crate) fn has_frame(&self) -> bool {
        self.buffered() >= HEADER
            && Header::decode(&self.head())
                .is_ok_and(|header| header.on_socket() <= (self.buffered() - HEADER) as u64)
    }

    /// Reads exactly these parts.
    pub(crate) fn read(&mut self, parts: &mut [&mut [u8]]) -> io::Result<()> {
        if let (Some(slot), Some(shared)) = (&mut self.slot, &self.shared) {
            let whole = parts
                .iter_mut()
                .all(|part| shared.copy(slot, part) == part.len());
            return match whole {
                true => Ok(()),
                false => Err(io::ErrorKind::UnexpectedEof.into()),
            };
        }
        let mut slices = Vec::with_capacity(parts.len());
        for part in parts {
            let buffered = self.buffered().min(part.len());
            let (now, rest) = part.split_at_mut(buffered);
            now.copy_from_slice(&self.buffer[self.start..self.start + buffered]);
            self.start += buffered;
            if !rest.is_empty() {
                slices.push(IoSliceMut::new(rest));
            }
        }
        let mut slices = &mut slices[..];
        while !slices.is_empty() {
            match (&*self.stream).read_vectored(slices) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => IoSliceMut::advance_slices(&mut slices, count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads so many bytes and forgets them.
    pub(crate) fn skip(&mut self, count: u64) -> io::Result<()> {
        if self.slot.is_some() {
            // It is skipped as a whole.
            return Ok(());
        }
        let mut left = count;
        while left > 0 {
            if self.buffered() == 0 {
                self.large = false;
                self.fill(1)?;
            }
            let part = left.min(self.buffered() as u64);
            self.start += part as usize;
            left -= part;
        }
        Ok(())
    }

    /// Reads a payload into buffers that are used again and again. Values that are in shared memory stay there.
    pub(crate) fn payload<'a>(
        &'a mut self,
        header: &Header,
        scratch: &'a mut Scratch,
    ) -> io::Result<Payload<'a>> {
        let keys = header.keys as usize;
        let lens = header.lens as usize;
        let bytes = header.value_bytes as usize;
        if self.slot.is_some() {
            return self.shared_payload(header, scratch);
        }
        let words = bytes.div_ceil(8);
        // A length is a claim: memory is taken as the bytes come.
        if words <= FIRST_WORDS.max(scratch.values.len())
            && keys <= FIRST_WORDS.max(scratch.keys.len())
        {
            grow(&mut scratch.keys, keys);
            grow(&mut scratch.lens, lens);
            grow(&mut scratch.values, words);
            let values: &mut [u8] = bytemuck::cast_slice_mut(&mut scratch.values);
            self.read(&mut [
                bytemuck::cast_slice_mut(&mut scratch.keys[..keys]),
                bytemuck::cast_slice_mut(&mut scratch.lens[..lens]),
                &mut values[..bytes],
            ])?;
        } else {
            self.read_growing(&mut scratch.keys, keys * 8)?;
            self.read_growing(&mut scratch.lens, lens * 4)?;
            self.read_growing(&mut scratch.values, bytes)?;
        }
        let values: &[u8] = bytemuck::cast_slice(&scratch.values);
        Ok(Payload {
            keys: &scratch.keys[..keys],
            lens: &scratch.lens[..lens],
            values: &values[..bytes],
        })
    }

    /// What is checked is copied first, since the other end could change it: all but plain numbers.
    fn shared_payload<'a>(
        &'a mut self,
        header: &Header,
        scratch: &'a mut Scratch,
    ) -> io::Result<Payload<'a>> {
        let (keys, lens) = (header.keys as usize, header.lens as usize);
        let is_numbers = matches!(header.kind, Kind::Data) && !header.has(FAILURE);
        let copied = match is_numbers {
            true => 0,
            false => header.value_bytes as usize,
        };
        grow(&mut scratch.keys, keys);
        grow(&mut scratch.lens, lens);
        grow(&mut scratch.values, copied.div_ceil(8));
        let values: &mut [u8] = bytemuck::cast_slice_mut(&mut scratch.values);
        self.read(&mut [
            bytemuck::cast_slice_mut(&mut scratch.keys[..keys]),
            bytemuck::cast_slice_mut(&mut scratch.lens[..lens]),
            &mut values[..copied],
        ])?;
        let values: &[u8] = bytemuck::cast_slice(&scratch.values);
        Ok(Payload {
            keys: &scratch.keys[..keys],
            lens: &scratch.lens[..lens],
            values: match (&self.slot, &self.shared) {
                (Some(slot), Some(shared)) if is_numbers => shared.values(slot),
                _ => &values[..copied],
            },
        })
    }

    fn read_growing<N: bytemuck::Pod>(
        &mut self,
        into: &mut Vec<N>,
        bytes: usize,
    ) -> io::Result<()> {
        let mut filled = 0;
        while filled < bytes {
            let end = bytes.min((filled * 2).max(FIRST_WORDS * 8));
            grow(into, end.div_ceil(size_of::<N>()));
            let all: &mut [u8] = bytemuck::cast_slice_mut(into);
            self.read(&mut [&mut all[filled..end]])?;
            filled = end;
        }
        Ok(())
    }
}

/// Memory that a payload may take before any of it has come: 8 MiB.
const FIRST_WORDS: usize = 1 << 20;

fn grow<N: bytemuck::Pod>(vector: &mut Vec<N>, len: usize) {
    if vector.len() < len {
        vector.resize(len, N::zeroed());
    }
}

/// Buffers for payloads.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    keys: Vec<u64>,
    lens: Vec<u32>,
    /// Words, so that values of any type are aligned.
    values: Vec<u64>,
}

/// A payload in its parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Payload<'a> {
    pub(crate) keys: &'a [u64],
    pub(crate) lens: &'a [u32],
    pub(crate) values: &'a [u8],
}

#[cfg(test)]
mod tests;
