//! Judges page by page whether the rows of a column are tensors: lists or byte strings of one length, without nulls.
//!
//! From the first page on that shows otherwise, nothing is judged any more.

use super::{
    column_chunk::Page,
    header::PageType,
    levels::{UniformLength, all_defined, split_levels},
    page_path::{Leaf, PLAIN, PLAIN_DICTIONARY, PREFIX, RLE_DICTIONARY, Values},
};

/// What the pages of a chunk have revealed so far.
#[derive(Debug)]
pub(super) struct UniformRows {
    leaf: Leaf,
    lengths: UniformLength,
    /// Bytes of a byte string.
    size: Option<usize>,
    has_dictionary: bool,
    /// Where the values of each data page begin.
    starts: Vec<usize>,
}

impl UniformRows {
    pub(super) fn new(leaf: Leaf) -> Self {
        Self {
            leaf,
            lengths: UniformLength::default(),
            size: None,
            has_dictionary: false,
            starts: Vec::new(),
        }
    }

    /// Adds the next page with its content. Returns whether all rows may still be tensors.
    pub(super) fn add(&mut self, page_type: PageType, page: &Page, content: &[u8]) -> bool {
        let is_uniform = match page_type {
            PageType::Dictionary => self.add_dictionary(page, content),
            PageType::Data | PageType::DataV2 => self.add_data(page, content),
            PageType::Other => Some(()),
        };
        is_uniform.is_some()
    }

    fn add_dictionary(&mut self, page: &Page, content: &[u8]) -> Option<()> {
        // Others decide on a second dictionary, and on one behind values.
        if self.has_dictionary || !self.starts.is_empty() {
            return None;
        }
        self.has_dictionary = true;
        match self.leaf.values {
            Values::Lists { .. } => Some(()),
            Values::Bytes { .. } => self.add_bytes(content, page.values),
        }
    }

    fn add_data(&mut self, page: &Page, content: &[u8]) -> Option<()> {
        if ![PLAIN, PLAIN_DICTIONARY, RLE_DICTIONARY].contains(&page.encoding) {
            return None;
        }
        let (definition, is_list) = (self.leaf.definition, self.leaf.is_list());
        // An old encoding packs the bits of levels.
        if (is_list && !page.are_runs.0) || (definition > 0 && !page.are_runs.1) {
            return None;
        }
        let levels = split_levels(page.levels, content, is_list, definition > 0)?;
        all_defined(levels.definition, definition, page.values)?;
        if is_list {
            self.lengths.add(levels.repetition, page.values)?;
        } else if page.encoding == PLAIN {
            self.add_bytes(&content[levels.length..], page.values)?;
        } else if !self.has_dictionary {
            return None;
        }
        self.starts.push(page.start + levels.length);
        Some(())
    }

    /// Adds `count` plain byte strings. Fails unless all have the size of the first one of the chunk.
    fn add_bytes(&mut self, values: &[u8], count: usize) -> Option<()> {
        let size = match self.size {
            Some(size) => size,
            None => {
                let first = values.first_chunk::<PREFIX>()?;
                *self.size.insert(u32::from_le_bytes(*first) as usize)
            }
        };
        let step = size + PREFIX;
        let values = values.get(..count.checked_mul(step)?)?;
        let length = (size as u32).to_le_bytes();
        values
            .chunks_exact(step)
            .all(|value| value.starts_with(&length))
            .then_some(())
    }

    /// The bytes of a row, and where the values of each data page begin. `None` if rows are no tensors, or if there is
    /// another number of rows.
    pub(super) fn finish(self) -> Option<(usize, Vec<usize>)> {
        let size = match self.leaf.values {
            Values::Lists { number, .. } => {
                self.lengths.finish(self.leaf.rows)?.checked_mul(number)?
            }
            Values::Bytes { .. } => self.size?,
        };
        Some((size, self.starts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(values: usize, encoding: i32, are_runs: (bool, bool)) -> Page {
        Page {
            start: 0,
            end: 0,
            values,
            encoding,
            levels: None,
            are_runs,
        }
    }

    fn leaf(values: Values, definition: i16) -> Leaf {
        Leaf {
            values,
            definition,
            rows: 2,
            may_be_tensor: true,
            varying: None,
        }
    }

    fn bytes(definition: i16) -> UniformRows {
        UniformRows::new(leaf(Values::Bytes { is_text: false }, definition))
    }

    fn adds(rows: &mut UniformRows, encoding: i32, content: &[u8]) -> bool {
        let page_type = match encoding {
            DICTIONARY_PAGE => PageType::Dictionary,
            _ => PageType::Data,
        };
        rows.add(page_type, &page(2, encoding, (true, true)), content)
    }

    /// Stands for the plain encoding of a dictionary page.
    const DICTIONARY_PAGE: i32 = -1;

    #[test]
    fn levels_that_are_no_runs_are_left_to_arrow() {
        let is_accepted = |definition: i16, are_runs| {
            // A run of definition levels if values are optional.
            let levels: &[u8] = match definition {
                0 => &[],
                _ => &[2, 0, 0, 0, 0x04, 0x01],
            };
            let content = [levels, b"\x02\0\0\0ab\x02\0\0\0cd"].concat();
            bytes(definition).add(PageType::Data, &page(2, PLAIN, are_runs), &content)
        };
        assert!(is_accepted(1, (true, true)));
        assert!(is_accepted(1, (false, true)), "it has no repetition levels");
        assert!(!is_accepted(1, (true, false)));
        assert!(is_accepted(0, (false, false)), "it has no levels");
    }

    #[test]
    fn the_first_page_of_another_length_ends_it() {
        let mut rows = bytes(0);
        assert!(adds(&mut rows, PLAIN, b"\x02\0\0\0ab\x02\0\0\0cd"));
        assert!(!adds(&mut rows, PLAIN, b"\x03\0\0\0abc\x03\0\0\0cde"));
        assert!(!adds(&mut bytes(0), PLAIN, b"\x02\0\0\0ab\x01\0\0\0c"));
        assert!(!adds(&mut bytes(0), PLAIN, b"\x02\0\0\0ab"), "cut");
        let mut lists = UniformRows::new(leaf(
            Values::Lists {
                number: 4,
                is_integer: false,
            },
            0,
        ));
        // 0 1 as runs, then 0 1 1, whose length is only known with the next row.
        let add = |lists: &mut UniformRows, runs: &[u8], values| {
            let content = [&(runs.len() as u32).to_le_bytes()[..], runs].concat();
            lists.add(PageType::Data, &page(values, PLAIN, (true, true)), &content)
        };
        assert!(add(&mut lists, &[0x02, 0, 0x02, 1], 2));
        assert!(add(&mut lists, &[0x02, 0, 0x04, 1], 3));
        assert!(!add(&mut lists, &[0x02, 0], 1));
    }

    #[test]
    fn a_dictionary_tells_the_length_and_comes_first() {
        let dictionary = b"\x02\0\0\0ab\x02\0\0\0cd";
        let mut rows = bytes(0);
        assert!(adds(&mut rows, DICTIONARY_PAGE, dictionary));
        assert!(adds(&mut rows, RLE_DICTIONARY, &[]));
        assert!(!adds(&mut rows, PLAIN, b"\x03\0\0\0abc\x03\0\0\0cde"));
        assert!(!adds(&mut rows, DICTIONARY_PAGE, dictionary));
        assert_eq!(rows.finish().unwrap().0, 2);
        assert!(!adds(&mut bytes(0), RLE_DICTIONARY, &[]), "no dictionary");
        assert!(!adds(&mut bytes(0), 5, dictionary), "another encoding");
    }
}
