//! Large messages: around the ring, in segments.

use std::ops::Range;

use rustix::event::PollFlags;

use super::{
    link::Progress,
    tree::aligned,
    wire::{Net, Order},
};
use crate::{
    element::{Element, Finish, Op},
    error::Error,
};

/// Bytes of a segment: what is received stays in the second-level cache until it is combined and sent.
const SEGMENT: usize = 512 << 10;
/// Segments of a piece of a block: while one is on its way the other is worked on. Within a machine
/// there is no way to hide, and a smaller piece stays in the caches.
const SEGMENTS: usize = 2;
const SEGMENTS_HERE: usize = 1;
/// Up to this many bytes the tree is faster than the ring.
const TREE: usize = 64 << 10;

/// A walk of blocks around the ring: in step s this host sends block `me + shift - s` and receives
/// the one before it, which it sends in the next step. Large blocks walk piece by piece, all steps of
/// the first pieces before the second pieces, so that a piece is still cached when it comes by again.
#[derive(Clone, Copy, Debug)]
struct Walk {
    /// Host count less one or zero, so that all is unsigned.
    shift: u32,
    steps: u32,
    /// Steps whose blocks are combined with the own data; later ones replace it.
    combining: u32,
}

/// A place in the walk: segment `segment` of piece `piece` of the block of step `step`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    piece: usize,
    step: u32,
    segment: usize,
    /// Frames before this one.
    index: u32,
}

impl Net {
    /// Reduces `data` over all hosts; result to all.
    pub(crate) fn allreduce<T: Element>(
        &mut self,
        order: Order<'_>,
        data: &mut [T],
        op: Op,
        finish: Finish,
    ) -> Result<(), Error> {
        if size_of_val(data) <= TREE {
            return self.tree_allreduce(order, data, op, finish);
        }
        let hosts = self.count as usize;
        let bounds: Vec<usize> = (0..=hosts).map(|h| data.len() * h / hosts).collect();
        let walk = Walk {
            shift: 0,
            steps: 2 * (self.count - 1),
            combining: self.count - 1,
        };
        self.walk(order, data, &bounds, walk, op, finish)
    }

    /// Reduces `data` over all hosts; the part between this host's bounds is complete afterwards, the
    /// rest is undefined.
    pub(crate) fn reduce_scatter<T: Element>(
        &mut self,
        order: Order<'_>,
        data: &mut [T],
        bounds: &[usize],
        op: Op,
        finish: Finish,
    ) -> Result<(), Error> {
        if size_of_val(data) <= TREE {
            return self.tree_allreduce(order, data, op, finish);
        }
        let walk = Walk {
            shift: self.count - 1,
            steps: self.count - 1,
            combining: self.count - 1,
        };
        self.walk(order, data, bounds, walk, op, finish)
    }

    /// Brings the part of each host, between its bounds, to all.
    pub(crate) fn allgather(
        &mut self,
        order: Order<'_>,
        data: &mut [u8],
        bounds: &[usize],
    ) -> Result<(), Error> {
        if data.len() <= TREE {
            return self.tree_allgather(order, data, bounds, 1);
        }
        let walk = Walk {
            shift: 0,
            steps: self.count - 1,
            combining: 0,
        };
        self.walk(order, data, bounds, walk, Op::Sum, Finish::Keep)
    }

    /// Brings the root host's bytes to all: along the ring in segments.
    pub(crate) fn broadcast(
        &mut self,
        order: Order<'_>,
        data: &mut [u8],
        root: u32,
    ) -> Result<(), Error> {
        if data.len() <= TREE {
            return self.tree_broadcast(order, data, root);
        }
        let (prev, next) = self.ring();
        let len = data.len();
        let segments = len.div_ceil(SEGMENT);
        let segment = |index: usize| index * SEGMENT..len.min((index + 1) * SEGMENT);
        // The root has all from the start; the last in the chain sends nothing on.
        let mut received = if self.me == root { segments } else { 0 };
        let mut sent = if next == root { segments } else { 0 };
        while received < segments || sent < segments {
            let before = (received, sent);
            while sent < received {
                match self.push(order, next, sent as u32, &data[segment(sent)])? {
                    Progress::Done => sent += 1,
                    Progress::Stuck => break,
                }
            }
            if received < segments {
                let part = &mut data[segment(received)];
                if self.pull(order, prev, received as u32, part)? == Progress::Done {
                    received += 1;
                }
            }
            if before == (received, sent) {
                let (receiving, sending) = (received < segments, sent < received);
                self.wait_both(order, (prev, receiving), (next, sending))?;
            }
        }
        Ok(())
    }

    fn walk<T: Element>(
        &mut self,
        order: Order<'_>,
        data: &mut [T],
        bounds: &[usize],
        walk: Walk,
        op: Op,
        finish: Finish,
    ) -> Result<(), Error> {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.resize(scratch.len().max(SEGMENT + size_of::<T>()), 0);
        let result = self.walk_with(order, data, bounds, walk, op, finish, &mut scratch);
        self.scratch = scratch;
        result
    }

    #[allow(clippy::too_many_arguments)]
    fn walk_with<T: Element>(
        &mut self,
        order: Order<'_>,
        data: &mut [T],
        bounds: &[usize],
        walk: Walk,
        op: Op,
        finish: Finish,
        scratch: &mut [u8],
    ) -> Result<(), Error> {
        let (prev, next) = self.ring();
        let (me, count) = (self.me, self.count);
        let unit = SEGMENT / size_of::<T>();
        let segments = if self.one_machine {
            SEGMENTS_HERE
        } else {
            SEGMENTS
        };
        let per_piece = unit * segments;
        let longest = bounds.windows(2).map(|pair| pair[1] - pair[0]).max();
        let pieces = longest.unwrap_or(0).div_ceil(per_piece).max(1);
        // The elements of a piece, and of a segment of it. An empty piece is one empty segment, so that
        // each step has a frame.
        let range = |piece: usize, step: u32| {
            let host = (me + walk.shift + 2 * count - step % count) % count;
            let (start, end) = (bounds[host as usize], bounds[host as usize + 1]);
            let start = end.min(start + piece * per_piece);
            start..end.min(start + per_piece)
        };
        let part = |range: &Range<usize>, segment: usize| {
            let start = range.start + segment * unit;
            start..range.end.min(start + unit)
        };
        let advance = |place: &mut Place, range: &Range<usize>| {
            place.index += 1;
            place.segment += 1;
            if place.segment * unit >= range.len() {
                place.segment = 0;
                place.step += 1;
                if place.step == walk.steps {
                    place.step = 0;
                    place.piece += 1;
                }
            }
        };
        let start = Place {
            piece: 0,
            step: 0,
            segment: 0,
            index: 0,
        };
        // What was received in a step is sent in the next; the first step sends own data.
        let may_send = |sent: &Place, received: &Place| {
            let place = |place: &Place| (place.piece, place.step, place.segment);
            sent.piece < pieces
                && (sent.step == 0 || place(received) > (sent.piece, sent.step - 1, sent.segment))
        };
        let (mut sent, mut received) = (start, start);
        while sent.piece < pieces || received.piece < pieces {
            let before = (sent, received);
            while may_send(&sent, &received) {
                let from = range(sent.piece, sent.step);
                let bytes = bytemuck::cast_slice(&data[part(&from, sent.segment)]);
                match self.push(order, next, sent.index, bytes)? {
                    Progress::Done => advance(&mut sent, &from),
                    Progress::Stuck => break,
                }
            }
            if received.piece < pieces {
                let into = range(received.piece, received.step + 1);
                let target = &mut data[part(&into, received.segment)];
                let progress = if received.step < walk.combining {
                    let other = aligned::<T>(scratch, target.len());
                    let bytes = bytemuck::cast_slice_mut(&mut other[..]);
                    let progress = self.pull(order, prev, received.index, bytes)?;
                    if progress == Progress::Done {
                        let last = received.step + 1 == walk.combining;
                        T::combine(op, target, other, if last { finish } else { Finish::Keep });
                    }
                    progress
                } else {
                    let bytes = bytemuck::cast_slice_mut(target);
                    self.pull(order, prev, received.index, bytes)?
                };
                if progress == Progress::Done {
                    advance(&mut received, &into);
                }
            }
            if before == (sent, received) {
                let receiving = received.piece < pieces;
                let sending = may_send(&sent, &received);
                self.wait_both(order, (prev, receiving), (next, sending))?;
            }
        }
        Ok(())
    }

    fn wait_both(
        &mut self,
        order: Order<'_>,
        (prev, receiving): (u32, bool),
        (next, sending): (u32, bool),
    ) -> Result<(), Error> {
        let mut input = PollFlags::empty();
        input.set(PollFlags::IN, receiving);
        let mut output = PollFlags::empty();
        output.set(PollFlags::OUT, sending);
        match (prev == next, receiving, sending) {
            (true, ..) => self.wait(order, &[(prev, input | output)]),
            (_, true, true) => self.wait(order, &[(prev, input), (next, output)]),
            (_, true, false) => self.wait(order, &[(prev, input)]),
            (_, false, _) => self.wait(order, &[(next, output)]),
        }
    }

    fn ring(&self) -> (u32, u32) {
        (
            (self.me + self.count - 1) % self.count,
            (self.me + 1) % self.count,
        )
    }
}
