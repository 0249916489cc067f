//! What one shard holds of a tensor.

use crate::{
    Rect,
    interval::{Interval, total},
    layout::product,
};

/// What one shard holds of a tensor: blocks that follow each other in its local tensor. A shard that has no part in the
/// tensor has no block. A shard with an empty part has a block without elements.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rects(pub(crate) Vec<Block>);

/// A list of intervals for each dimension. The block has all elements whose index in each dimension is in one of its
/// intervals. In memory it is in row-major order of these indices, without gaps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Block(pub(crate) Vec<Vec<Interval>>);

impl Rects {
    /// The blocks, in the order in which they are in the local tensor.
    pub fn blocks(&self) -> &[Block] {
        &self.0
    }

    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.0.iter().map(Block::elements).sum()
    }

    /// The hyper-rectangles, none of which is empty. The elements of two of one block may alternate in memory.
    pub fn iter(&self) -> impl Iterator<Item = Rect> {
        self.0.iter().flat_map(Block::rects)
    }
}

impl Block {
    /// A rectangle, as a block.
    pub(crate) fn from_rect(rect: &Rect) -> Self {
        Self(
            (0..rect.len.len())
                .map(|dim| vec![rect.interval(dim)])
                .collect(),
        )
    }

    /// The intervals of each dimension, in increasing order.
    pub fn dims(&self) -> &[Vec<Interval>] {
        &self.0
    }

    /// The shape of the local tensor.
    pub fn shape(&self) -> Vec<u64> {
        self.0.iter().map(|list| total(list)).collect()
    }

    /// Number of elements.
    pub fn elements(&self) -> u64 {
        product(&self.shape())
    }

    /// The hyper-rectangles of the block, in row-major order of their offsets.
    pub fn rects(&self) -> impl Iterator<Item = Rect> {
        let counts: Vec<u64> = self.0.iter().map(|list| list.len() as u64).collect();
        (0..product(&counts)).map(move |nth| {
            let mut rest = nth;
            let mut intervals: Vec<Interval> = (self.0.iter().rev())
                .map(|list| {
                    let count = list.len() as u64;
                    let interval = list[(rest % count) as usize];
                    rest /= count;
                    interval
                })
                .collect();
            intervals.reverse();
            Rect {
                offset: intervals.iter().map(|interval| interval.offset).collect(),
                len: intervals.iter().map(|interval| interval.len).collect(),
            }
        })
    }
}
