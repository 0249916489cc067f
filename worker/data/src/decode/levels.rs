//! Repetition and definition levels: checks that nothing is null, and that all lists have one length.
//!
//! The repetition level of a value is 0 at the start of a row, and 1 within its list. Its definition level is the
//! maximum if neither the value nor anything around it is null or empty.

use super::hybrid::{Run, Runs};

/// The levels at the beginning of a page.
#[derive(Debug)]
pub(super) struct Levels<'a> {
    pub(super) repetition: &'a [u8],
    pub(super) definition: &'a [u8],
    /// Bytes before the values.
    pub(super) length: usize,
}

/// Finds the levels in the content of a page, for each kind that exists. `known` are their lengths, if the header has
/// them. `None` if the page is cut.
pub(super) fn split_levels(
    known: Option<(usize, usize)>,
    content: &[u8],
    repetition: bool,
    definition: bool,
) -> Option<Levels<'_>> {
    if let Some((repetition, definition)) = known {
        let length = repetition.checked_add(definition)?;
        let (repetition, definition) = content.get(..length)?.split_at(repetition);
        return Some(Levels {
            repetition,
            definition,
            length,
        });
    }
    let mut rest = content;
    let mut next = |present: bool| -> Option<&[u8]> {
        if !present {
            return Some(&[]);
        }
        let (length, after) = rest.split_first_chunk::<4>()?;
        let (levels, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        rest = after;
        Some(levels)
    };
    let (repetition, definition) = (next(repetition)?, next(definition)?);
    Some(Levels {
        repetition,
        definition,
        length: content.len() - rest.len(),
    })
}

/// Fails unless each value has the maximum definition level.
pub(super) fn all_defined(levels: &[u8], highest: i16, values: usize) -> Option<()> {
    if highest == 0 {
        return Some(());
    }
    let highest = u32::try_from(highest).ok()?;
    let width = u32::BITS - highest.leading_zeros();
    let mut runs = Runs::new(levels, width, values);
    let mut defined = true;
    while let Some(run) = runs.next()? {
        match run {
            Run::Same { value, .. } => defined &= value == highest,
            Run::Packed { bytes, count } => {
                super::hybrid::unpack(bytes, width, count, |level| defined &= level == highest);
            }
        }
    }
    defined.then_some(())
}

/// The common length of all lists of a chunk, from the repetition levels of its pages.
#[derive(Debug, Default)]
pub(super) struct UniformLength {
    length: Option<usize>,
    rows: usize,
    /// Values of the current row.
    row_values: usize,
}

impl UniformLength {
    /// Adds the levels of a page. `None` if lists differ in length.
    pub(super) fn add(&mut self, levels: &[u8], values: usize) -> Option<()> {
        let mut runs = Runs::new(levels, 1, values);
        while let Some(run) = runs.next()? {
            match run {
                Run::Same { value: 0, count } => self.begin_rows(count)?,
                Run::Same { count, .. } => self.row_values += count,
                Run::Packed { bytes, count } => self.add_bits(bytes, count)?,
            }
        }
        Some(())
    }

    /// Eight levels in a byte, the first in the lowest bit.
    fn add_bits(&mut self, bytes: &[u8], count: usize) -> Option<()> {
        let mut left = count;
        for byte in bytes {
            let levels = left.min(8);
            if levels == 0 {
                break;
            }
            let mut starts = !u32::from(*byte) & ((1 << levels) - 1);
            let mut seen = 0;
            while starts != 0 {
                let bit = starts.trailing_zeros() as usize;
                self.row_values += bit - seen;
                self.begin()?;
                seen = bit + 1;
                starts &= starts - 1;
            }
            self.row_values += levels - seen;
            left -= levels;
        }
        Some(())
    }

    /// The first value of a row.
    fn begin(&mut self) -> Option<()> {
        self.end_row()?;
        self.row_values = 1;
        Some(())
    }

    /// The first values of `count` rows, at least one: all rows but the last one have no other value.
    fn begin_rows(&mut self, count: usize) -> Option<()> {
        self.begin()?;
        let more = count - 1;
        if more > 0 && *self.length.get_or_insert(1) != 1 {
            return None;
        }
        self.rows += more;
        Some(())
    }

    fn end_row(&mut self) -> Option<()> {
        if self.row_values > 0 {
            let length = *self.length.get_or_insert(self.row_values);
            if self.row_values != length {
                return None;
            }
            self.rows += 1;
        }
        Some(())
    }

    /// The length, if there are `rows` rows.
    pub(super) fn finish(mut self, rows: usize) -> Option<usize> {
        self.end_row()?;
        self.length.filter(|_| self.rows == rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_one_length_are_found_across_pages_and_runs() {
        // 0 1 1 | 0 1 1 | 0 1 as bits, then 1 and 0 1 1 in the next page.
        let mut lengths = UniformLength::default();
        lengths.add(&[0x03, 0b1011_0110], 8).unwrap();
        lengths.add(&[0x02, 1, 0x02, 0, 0x04, 1], 4).unwrap();
        assert_eq!(lengths.finish(4), Some(3));
    }

    #[test]
    fn another_length_or_number_of_rows_is_refused() {
        let add = |levels: &[u8], values| {
            let mut lengths = UniformLength::default();
            lengths.add(levels, values).map(|()| lengths)
        };
        assert!(add(&[0x03, 0b0011_0110], 8).is_none());
        assert_eq!(add(&[0x03, 0b1011_0110], 8).unwrap().finish(3), None);
        assert_eq!(add(&[0x03, 0b1011_0110], 6).unwrap().finish(3), None);
        assert_eq!(add(&[0x03, 0b1011_0110], 6).unwrap().finish(2), Some(3));
        assert!(add(&[0x02], 1).is_none(), "cut");
        assert_eq!(UniformLength::default().finish(0), None);
    }

    #[test]
    fn rows_of_one_value_are_counted_at_once() {
        let mut lengths = UniformLength::default();
        // 2^62 rows in one run, which no loop over rows ends.
        let levels = [
            0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01, 0,
        ];
        lengths.add(&levels, 1 << 62).unwrap();
        assert_eq!(lengths.finish(1 << 62), Some(1));
        let mut lengths = UniformLength::default();
        lengths.add(&[0x03, 0b1011_0110], 8).unwrap();
        assert!(lengths.add(&[0x04, 0], 2).is_none(), "lists of 3 and of 1");
    }

    #[test]
    fn a_null_is_seen_in_runs_and_in_bits() {
        assert!(all_defined(&[0x10, 1], 1, 8).is_some());
        assert!(all_defined(&[0x08, 1, 0x08, 0], 1, 8).is_none());
        assert!(all_defined(&[0x03, 0xff], 1, 8).is_some());
        assert!(all_defined(&[0x03, 0xf7], 1, 8).is_none());
        assert!(all_defined(&[0x03, 0xf7], 1, 3).is_some());
        assert!(all_defined(&[0x10, 3], 3, 9).is_none(), "cut");
        assert!(all_defined(&[], 0, 9).is_some());
    }
}
