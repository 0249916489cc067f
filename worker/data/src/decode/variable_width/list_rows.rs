//! The rows of a column of lists, from the levels of its pages.
//!
//! | definition level | meaning, if rows and elements may be missing |
//! |---|---|
//! | 0 | the list is missing |
//! | 1 | it is empty |
//! | 2 | an element is missing |
//! | 3 | an element |
//!
//! The levels of what cannot be missing do not exist, and the ones above are lower by one.

use arrow_buffer::NullBuffer;

use super::validity::Validity;
use crate::{
    column::Span,
    decode::{level_pairs::each_pair, levels::Levels, page_path::Optional},
};

/// The rows of the pages so far.
#[derive(Debug)]
pub(super) struct ListRows {
    optional: Optional,
    /// The number of elements of each row, null elements included.
    rows: Vec<Span>,
    max_rows: usize,
    row_validity: Validity,
    element_validity: Validity,
}

/// Elements of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Elements {
    pub(super) all: usize,
    /// Those that are not null, which the page has values of.
    pub(super) defined: usize,
}

impl ListRows {
    /// `rows` is empty, and has memory for `max_rows`.
    pub(super) fn new(optional: Optional, rows: Vec<Span>, max_rows: usize) -> Self {
        Self {
            optional,
            rows,
            max_rows,
            row_validity: Validity::default(),
            element_validity: Validity::default(),
        }
    }

    /// Rows so far, the last of which may continue.
    pub(super) fn count(&self) -> usize {
        self.rows.len()
    }

    /// Adds the levels of a page with `values` values. `None` if they do not fit together, or if there are too many rows.
    pub(super) fn add_page(&mut self, levels: &Levels<'_>, values: usize) -> Option<Elements> {
        let empty = u32::from(self.optional.row);
        let element = empty + 1;
        let defined = element + u32::from(self.optional.element);
        let width = u32::BITS - defined.leading_zeros();
        let mut elements = Elements::default();
        let definition = Some((levels.definition, width));
        each_pair(
            Some(levels.repetition),
            definition,
            values,
            |repetition, level, count| {
                if level > defined {
                    return None;
                }
                let is_element = level >= element;
                if repetition == 0 {
                    let length = u32::from(is_element);
                    if count > self.max_rows - self.rows.len() {
                        return None;
                    }
                    let row = Span { start: 0, length };
                    self.rows.extend(std::iter::repeat_n(row, count));
                    self.row_validity.append(count, level >= empty);
                } else {
                    // The first element of a list has repetition level 0.
                    let row = self
                        .rows
                        .last_mut()
                        .filter(|row| is_element && row.length > 0)?;
                    row.length = row.length.checked_add(u32::try_from(count).ok()?)?;
                }
                if is_element {
                    let is_defined = level == defined;
                    elements.all += count;
                    elements.defined += if is_defined { count } else { 0 };
                    self.element_validity.append(count, is_defined);
                }
                Some(())
            },
        )?;
        Some(elements)
    }

    /// The rows, and the validity of rows and of elements. `None` if there is another number of rows.
    pub(super) fn finish(self) -> Option<(Vec<Span>, Option<NullBuffer>, Option<NullBuffer>)> {
        (self.rows.len() == self.max_rows).then(|| {
            let (rows, elements) = (self.row_validity.finish(), self.element_validity.finish());
            (self.rows, rows, elements)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: Optional = Optional {
        row: true,
        element: true,
    };

    /// Runs of single levels.
    fn runs(levels: &[u8]) -> Vec<u8> {
        levels.iter().flat_map(|level| [0x02, *level]).collect()
    }

    fn add(rows: &mut ListRows, repetition: &[u8], definition: &[u8]) -> Option<Elements> {
        let (r, d) = (runs(repetition), runs(definition));
        let levels = Levels {
            repetition: &r,
            definition: &d,
            length: 0,
        };
        rows.add_page(&levels, repetition.len())
    }

    fn lengths(rows: &[Span]) -> Vec<u32> {
        rows.iter().map(|row| row.length).collect()
    }

    #[test]
    fn missing_and_empty_lists_and_missing_elements_differ() {
        let mut rows = ListRows::new(BOTH, Vec::new(), 5);
        // [a, null, b], null, [] and the first part of [null, c], []
        let page = add(&mut rows, &[0, 1, 1, 0, 0, 0], &[3, 2, 3, 0, 1, 2]).unwrap();
        assert_eq!((page.all, page.defined), (4, 2));
        let page = add(&mut rows, &[1, 0], &[3, 1]).unwrap();
        assert_eq!((page.all, page.defined), (1, 1));
        let (rows, nulls, elements) = rows.finish().unwrap();
        assert_eq!(lengths(&rows), [3, 0, 0, 2, 0]);
        let valid = |nulls: Option<NullBuffer>| nulls.unwrap().iter().collect::<Vec<_>>();
        assert_eq!(valid(nulls), [true, false, true, true, true]);
        assert_eq!(valid(elements), [true, false, true, false, true]);
    }

    #[test]
    fn levels_of_what_cannot_be_missing_do_not_exist() {
        for (optional, definition) in [
            (
                Optional {
                    row: false,
                    element: false,
                },
                [0, 1, 1],
            ),
            (
                Optional {
                    row: true,
                    element: false,
                },
                [1, 2, 2],
            ),
            (
                Optional {
                    row: false,
                    element: true,
                },
                [0, 2, 2],
            ),
        ] {
            let mut rows = ListRows::new(optional, Vec::new(), 2);
            add(&mut rows, &[0, 0, 1], &definition).unwrap();
            let (rows, nulls, elements) = rows.finish().unwrap();
            assert_eq!(lengths(&rows), [0, 2]);
            assert_eq!((nulls, elements), (None, None));
        }
    }

    #[test]
    fn levels_that_do_not_fit_together_are_refused() {
        let refused = |repetition: &[u8], definition: &[u8]| {
            let mut rows = ListRows::new(BOTH, Vec::new(), 2);
            add(&mut rows, repetition, definition).is_none()
        };
        assert!(!refused(&[0, 1], &[3, 3]));
        assert!(refused(&[1], &[3]), "no row has begun");
        assert!(refused(&[0, 1], &[1, 3]), "the list is empty");
        assert!(refused(&[0, 1], &[0, 3]), "the list is missing");
        assert!(refused(&[0, 1], &[3, 1]), "an empty list within a list");
        assert!(
            refused(&[0, 0, 0], &[3, 3, 3]),
            "more rows than the footer says"
        );
        let mut rows = ListRows::new(BOTH, Vec::new(), 3);
        add(&mut rows, &[0], &[3]).unwrap();
        assert!(rows.finish().is_none(), "fewer rows than the footer says");
    }
}
