//! Whether the rows of a column are tensors, as far as its row groups have shown, so that each byte is read once.
//!
//! Row groups of a column are usually alike. The fast path reads a column from its file if its rows have been tensors, and
//! not if they have not: one ragged row group decides for the life of the decoder, as Arrow's reader gives the same values,
//! only slower. Before the first row group has shown that, the whole chunk is read into memory, where both can decode it.
//! The fast path then decompresses one page in vain if the rows are ragged.

use std::{
    collections::BTreeMap,
    sync::{PoisonError, RwLock},
};

/// What the row groups of a column have shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Rows of one size, without nulls.
    Tensors,
    /// Other rows.
    Ragged,
}

/// The shapes of columns by name. Shared by the threads that decode.
#[derive(Debug, Default)]
pub(super) struct ColumnShapes(RwLock<BTreeMap<String, Shape>>);

impl ColumnShapes {
    /// The shape of a column; `None` as long as no row group has shown it.
    pub(super) fn get(&self, name: &str) -> Option<Shape> {
        let shapes = self.0.read().unwrap_or_else(PoisonError::into_inner);
        shapes.get(name).copied()
    }

    /// A row group has this shape.
    pub(super) fn note(&self, name: &str, shape: Shape) {
        if matches!(self.get(name), Some(known) if known == shape || known == Shape::Ragged) {
            return;
        }
        let mut shapes = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let known = shapes.entry(name.to_owned()).or_insert(shape);
        if shape == Shape::Ragged {
            *known = shape;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_ragged_row_group_decides() {
        let shapes = ColumnShapes::default();
        assert_eq!(shapes.get("x"), None);
        shapes.note("x", Shape::Tensors);
        assert_eq!(shapes.get("x"), Some(Shape::Tensors));
        shapes.note("x", Shape::Ragged);
        shapes.note("x", Shape::Tensors);
        assert_eq!(shapes.get("x"), Some(Shape::Ragged));
        assert_eq!(shapes.get("y"), None);
    }
}
