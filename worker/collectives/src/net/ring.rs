//! Large messages: around the ring, in segments.

use std::ops::Range;

use rustix::event::PollFlags;

use super::{
    link::Progress,
    tree::aligned,
    wire::{Net, NetOperation},
};
use crate::{
    element::Element,
    error::Error,
    reduction::{Finish, Op},
};

/// Bytes of a segment. Received data stays in the second-level cache until it is combined and sent.
const SEGMENT: usize = 512 << 10;
/// Segments of a piece of a block: one is in flight while another is processed. Within a machine
/// there is no latency to hide, and a smaller piece stays in the caches.
const SEGMENTS: usize = 2;
const SEGMENTS_LOCAL: usize = 1;
/// Up to this many bytes, the tree is faster than the ring.
const MAX_TREE_BYTES: usize = 64 << 10;

/// The schedule of blocks around the ring. In step s, this host sends block `me + shift - s` and
/// receives the block before it, which it sends in the next step. Large blocks are processed piece
/// by piece: all steps of the first pieces come before the second pieces. A piece is therefore
/// still cached when it returns.
#[derive(Clone, Copy, Debug)]
struct RingSchedule {
    /// Host count less one, or zero, so that all arithmetic is unsigned.
    shift: u32,
    steps: u32,
    /// Number of steps whose blocks are combined with local data. Later blocks replace it.
    combining: u32,
}

/// A position in the schedule: segment `segment` of piece `piece` of the block of step `step`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cursor {
    piece: usize,
    step: u32,
    segment: usize,
    /// Frames before this one.
    index: u32,
}

impl Net {
    /// Reduces `data` over all hosts. All hosts get the result.
    pub(crate) fn allreduce<T: Element>(
        &mut self,
        operation: NetOperation<'_>,
        data: &mut [T],
        op: Op,
        finish: Finish,
    ) -> Result<(), Error> {
        if size_of_val(data) <= MAX_TREE_BYTES {
            return self.tree_allreduce(operation, data, op, finish);
        }
        let hosts = self.count as usize;
        let bounds: Vec<usize> = (0..=hosts).map(|h| data.len() * h / hosts).collect();
        let schedule = RingSchedule {
            shift: 0,
            steps: 2 * (self.count - 1),
            combining: self.count - 1,
        };
        self.run_schedule(operation, data, &bounds, schedule, op, finish)
    }

    /// Reduces `data` over all hosts. Afterwards, the part between this host's bounds is complete
    /// and the rest is undefined.
    pub(crate) fn reduce_scatter<T: Element>(
        &mut self,
        operation: NetOperation<'_>,
        data: &mut [T],
        bounds: &[usize],
        op: Op,
        finish: Finish,
    ) -> Result<(), Error> {
        if size_of_val(data) <= MAX_TREE_BYTES {
            return self.tree_allreduce(operation, data, op, finish);
        }
        let schedule = RingSchedule {
            shift: self.count - 1,
            steps: self.count - 1,
            combining: self.count - 1,
        };
        self.run_schedule(operation, data, bounds, schedule, op, finish)
    }

    /// Sends the part of each host, between its bounds, to all.
    pub(crate) fn allgather(
        &mut self,
        operation: NetOperation<'_>,
        data: &mut [u8],
        bounds: &[usize],
    ) -> Result<(), Error> {
        if data.len() <= MAX_TREE_BYTES {
            return self.tree_allgather(operation, data, bounds, 1);
        }
        let schedule = RingSchedule {
            shift: 0,
            steps: self.count - 1,
            combining: 0,
        };
        self.run_schedule(operation, data, bounds, schedule, Op::Sum, Finish::Keep)
    }

    /// Sends the root host's bytes to all, along the ring in segments.
    pub(crate) fn broadcast(
        &mut self,
        operation: NetOperation<'_>,
        data: &mut [u8],
        root: u32,
    ) -> Result<(), Error> {
        if data.len() <= MAX_TREE_BYTES {
            return self.tree_broadcast(operation, data, root);
        }
        let (prev, next) = self.ring_neighbours();
        let len = data.len();
        let segments = len.div_ceil(SEGMENT);
        let segment = |index: usize| index * SEGMENT..len.min((index + 1) * SEGMENT);
        // The root has all segments from the start. The last host in the chain forwards nothing.
        let mut received = if self.me == root { segments } else { 0 };
        let mut sent = if next == root { segments } else { 0 };
        while received < segments || sent < segments {
            let before = (received, sent);
            while sent < received {
                match self.push(operation, next, sent as u32, &data[segment(sent)])? {
                    Progress::Done => sent += 1,
                    Progress::Stuck => break,
                }
            }
            if received < segments {
                let part = &mut data[segment(received)];
                if self.pull(operation, prev, received as u32, part)? == Progress::Done {
                    received += 1;
                }
            }
            if before == (received, sent) {
                let (receiving, sending) = (received < segments, sent < received);
                self.wait_both(operation, (prev, receiving), (next, sending))?;
            }
        }
        Ok(())
    }

    fn run_schedule<T: Element>(
        &mut self,
        operation: NetOperation<'_>,
        data: &mut [T],
        bounds: &[usize],
        schedule: RingSchedule,
        op: Op,
        finish: Finish,
    ) -> Result<(), Error> {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.resize(scratch.len().max(SEGMENT + size_of::<T>()), 0);
        let result =
            self.run_schedule_with(operation, data, bounds, schedule, op, finish, &mut scratch);
        self.scratch = scratch;
        result
    }

    #[allow(clippy::too_many_arguments)]
    fn run_schedule_with<T: Element>(
        &mut self,
        operation: NetOperation<'_>,
        data: &mut [T],
        bounds: &[usize],
        schedule: RingSchedule,
        op: Op,
        finish: Finish,
        scratch: &mut [u8],
    ) -> Result<(), Error> {
        let (prev, next) = self.ring_neighbours();
        let (me, count) = (self.me, self.count);
        let unit = SEGMENT / size_of::<T>();
        let segments = if self.one_machine {
            SEGMENTS_LOCAL
        } else {
            SEGMENTS
        };
        let per_piece = unit * segments;
        let longest = bounds.windows(2).map(|pair| pair[1] - pair[0]).max();
        let pieces = longest.unwrap_or(0).div_ceil(per_piece).max(1);
        // The elements of a piece, and of a segment of it. An empty piece is one empty segment, so
        // that each step has a frame.
        let range = |piece: usize, step: u32| {
            let host = (me + schedule.shift + 2 * count - step % count) % count;
            let (start, end) = (bounds[host as usize], bounds[host as usize + 1]);
            let start = end.min(start + piece * per_piece);
            start..end.min(start + per_piece)
        };
        let part = |range: &Range<usize>, segment: usize| {
            let start = range.start + segment * unit;
            start..range.end.min(start + unit)
        };
        let advance = |cursor: &mut Cursor, range: &Range<usize>| {
            cursor.index += 1;
            cursor.segment += 1;
            if cursor.segment * unit >= range.len() {
                cursor.segment = 0;
                cursor.step += 1;
                if cursor.step == schedule.steps {
                    cursor.step = 0;
                    cursor.piece += 1;
                }
            }
        };
        let start = Cursor {
            piece: 0,
            step: 0,
            segment: 0,
            index: 0,
        };
        // What was received in a step is sent in the next. The first step sends local data.
        let may_send = |sent: &Cursor, received: &Cursor| {
            let position = |cursor: &Cursor| (cursor.piece, cursor.step, cursor.segment);
            sent.piece < pieces
                && (sent.step == 0
                    || position(received) > (sent.piece, sent.step - 1, sent.segment))
        };
        let (mut sent, mut received) = (start, start);
        while sent.piece < pieces || received.piece < pieces {
            let before = (sent, received);
            while may_send(&sent, &received) {
                let source = range(sent.piece, sent.step);
                let bytes = bytemuck::cast_slice(&data[part(&source, sent.segment)]);
                match self.push(operation, next, sent.index, bytes)? {
                    Progress::Done => advance(&mut sent, &source),
                    Progress::Stuck => break,
                }
            }
            if received.piece < pieces {
                let target_range = range(received.piece, received.step + 1);
                let target = &mut data[part(&target_range, received.segment)];
                let progress = if received.step < schedule.combining {
                    let other = aligned::<T>(scratch, target.len());
                    let bytes = bytemuck::cast_slice_mut(&mut other[..]);
                    let progress = self.pull(operation, prev, received.index, bytes)?;
                    if progress == Progress::Done {
                        let last = received.step + 1 == schedule.combining;
                        T::combine(op, target, other, if last { finish } else { Finish::Keep });
                    }
                    progress
                } else {
                    let bytes = bytemuck::cast_slice_mut(target);
                    self.pull(operation, prev, received.index, bytes)?
                };
                if progress == Progress::Done {
                    advance(&mut received, &target_range);
                }
            }
            if before == (sent, received) {
                let receiving = received.piece < pieces;
                let sending = may_send(&sent, &received);
                self.wait_both(operation, (prev, receiving), (next, sending))?;
            }
        }
        Ok(())
    }

    fn wait_both(
        &mut self,
        operation: NetOperation<'_>,
        (prev, receiving): (u32, bool),
        (next, sending): (u32, bool),
    ) -> Result<(), Error> {
        let mut input = PollFlags::empty();
        input.set(PollFlags::IN, receiving);
        let mut output = PollFlags::empty();
        output.set(PollFlags::OUT, sending);
        match (prev == next, receiving, sending) {
            (true, ..) => self.wait(operation, &[(prev, input | output)]),
            (_, true, true) => self.wait(operation, &[(prev, input), (next, output)]),
            (_, true, false) => self.wait(operation, &[(prev, input)]),
            (_, false, _) => self.wait(operation, &[(next, output)]),
        }
    }

    fn ring_neighbours(&self) -> (u32, u32) {
        (
            (self.me + self.count - 1) % self.count,
            (self.me + 1) % self.count,
        )
    }
}
