//! Looks at each page of a chunk as it is decompressed: whether the page path decodes it, and whether all rows may still be
//! tensors.

use super::{column_chunk::Page, header::PageType, page_path::Leaf, uniform_rows::UniformRows};

/// What the pages of a chunk have shown so far.
#[derive(Debug)]
pub(super) struct PageSurvey {
    leaf: Leaf,
    /// As long as all rows may be tensors.
    uniform: Option<UniformRows>,
    has_dictionary: bool,
    has_data: bool,
    /// Whether all pages are decoded if rows vary.
    may_vary: bool,
}

impl PageSurvey {
    pub(super) fn new(leaf: Leaf) -> Self {
        Self {
            leaf,
            uniform: leaf.may_be_tensor.then(|| UniformRows::new(leaf)),
            has_dictionary: false,
            has_data: false,
            may_vary: leaf.varying.is_some(),
        }
    }

    /// Adds the next page with its content. Returns whether the page path decodes the pages so far.
    pub(super) fn add(&mut self, page_type: PageType, page: &Page, content: &[u8]) -> bool {
        let is_tensor = |rows: &mut UniformRows| rows.add(page_type, page, content);
        if !self.uniform.as_mut().is_some_and(is_tensor) {
            self.uniform = None;
        }
        self.may_vary &= self.is_decoded(page_type, page);
        !self.is_refused()
    }

    /// Whether a page is decoded if rows vary.
    fn is_decoded(&mut self, page_type: PageType, page: &Page) -> bool {
        match page_type {
            PageType::Dictionary => {
                // Arrow's reader decides on a second dictionary, and on one behind values.
                !std::mem::replace(&mut self.has_dictionary, true) && !self.has_data
            }
            PageType::Data | PageType::DataV2 => {
                self.has_data = true;
                // An old encoding packs the bits of levels.
                let are_runs = (page.are_runs.0 || !self.leaf.is_list())
                    && (page.are_runs.1 || self.leaf.definition == 0);
                are_runs && self.leaf.has_decoder(page.encoding)
            }
            PageType::Other => true,
        }
    }

    /// Whether a page was refused.
    pub(super) fn is_refused(&self) -> bool {
        self.uniform.is_none() && !self.may_vary
    }

    /// What was learned of rows of one size, if all may be such.
    pub(super) fn finish(self) -> Option<UniformRows> {
        self.uniform
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::page_path::{DELTA_BYTE_ARRAY, Optional, PLAIN, RLE_DICTIONARY, Values};

    const NONE: Optional = Optional {
        row: false,
        element: false,
    };

    fn survey(may_be_tensor: bool, varying: Option<Optional>) -> PageSurvey {
        PageSurvey::new(Leaf {
            values: Values::Bytes { is_text: false },
            definition: 0,
            rows: 2,
            may_be_tensor,
            varying,
        })
    }

    fn add(survey: &mut PageSurvey, page_type: PageType, encoding: i32, content: &[u8]) -> bool {
        let page = Page {
            start: 0,
            end: 0,
            values: 2,
            encoding,
            levels: None,
            are_runs: (true, true),
        };
        survey.add(page_type, &page, content)
    }

    const SAME: &[u8] = b"\x02\0\0\0ab\x02\0\0\0cd";
    const OTHER: &[u8] = b"\x03\0\0\0abc\x01\0\0\0c";

    #[test]
    fn rows_of_other_lengths_end_a_tensor_and_no_column() {
        let mut rows = survey(true, Some(NONE));
        assert!(add(&mut rows, PageType::Data, PLAIN, SAME));
        assert!(add(&mut rows, PageType::Data, PLAIN, OTHER));
        assert!(add(&mut rows, PageType::DataV2, DELTA_BYTE_ARRAY, OTHER));
        assert!(!add(&mut rows, PageType::Data, 5, SAME));
        assert!(rows.is_refused() && rows.finish().is_none());
        let mut tensors = survey(true, None);
        assert!(add(&mut tensors, PageType::Data, PLAIN, SAME));
        assert!(!add(&mut tensors, PageType::Data, PLAIN, OTHER));
        let mut tensors = survey(true, Some(NONE));
        assert!(add(&mut tensors, PageType::Data, PLAIN, SAME));
        assert!(tensors.finish().is_some());
    }

    #[test]
    fn a_dictionary_comes_once_and_first() {
        for varying in [survey(false, Some(NONE)), survey(true, Some(NONE))] {
            let mut rows = varying;
            assert!(add(&mut rows, PageType::Dictionary, PLAIN, OTHER));
            assert!(add(&mut rows, PageType::Data, RLE_DICTIONARY, &[]));
            assert!(!add(&mut rows, PageType::Dictionary, PLAIN, OTHER));
        }
    }
}
