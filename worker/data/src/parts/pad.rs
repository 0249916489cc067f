//! Lists of different lengths as one array, with padding at the end of the rows.

use arrow_buffer::{Buffer, MutableBuffer};

use super::{Form, Numbers, Parts};

/// How rows are padded.
#[derive(Clone, Copy, Debug)]
pub struct Pad<'a> {
    /// The bytes of one value, which stand where a row has none and in place of nulls.
    pub value: &'a [u8],
    /// Values of each row; by default those of the longest one.
    pub length: Option<usize>,
    /// The number of values is rounded up to a multiple of this, at least 1.
    pub multiple_of: usize,
    /// Whether longer rows lose their end. They are an error otherwise.
    pub truncates: bool,
    /// Whether padding is at the beginning of the rows.
    pub is_left: bool,
}

/// Rows of one length.
#[derive(Clone, Debug)]
pub struct Padded {
    /// Number of values of each row.
    pub length: usize,
    /// Numbers of each value: 1, or the size of the fixed-size lists that are the values.
    pub width: Option<usize>,
    /// The numbers of all rows.
    pub numbers: Numbers,
    /// A byte for each value: 1 if it is one of the row, 0 for padding and null.
    pub mask: Buffer,
}

/// Why a column cannot be padded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PadError {
    /// The column is no list of numbers, or of fixed-size lists of numbers.
    #[error("only lists of numbers, and of fixed-size lists of numbers, can be padded")]
    NoNumbers,
    /// A row does not fit.
    #[error("row {row} of the batch has {values} values, and there is room for {length}")]
    TooLong {
        /// The row of the batch.
        row: usize,
        /// Its number of values.
        values: usize,
        /// The number of values of a padded row.
        length: usize,
    },
    /// The batch needs more memory than can be addressed.
    #[error("the padded batch is too large")]
    TooLarge,
}

impl Parts {
    /// The lists as rows of one length.
    ///
    /// # Errors
    /// If the column has no lists of numbers, or a row is too long.
    ///
    /// # Panics
    /// If the bytes of the padding value are not those of one number.
    pub fn padded(&self, pad: &Pad<'_>) -> Result<Padded, PadError> {
        let (ends, child, fixed) = self.lists().ok_or(PadError::NoNumbers)?;
        let (numbers, width) = child.numbers().ok_or(PadError::NoNumbers)?;
        assert_eq!(pad.value.len(), numbers.size, "one number");
        let of_row = |row: usize| match fixed {
            Some(values) => row * values..(row + 1) * values,
            None => ends[row] as usize..ends[row + 1] as usize,
        };
        let longest = (0..self.rows)
            .map(|row| of_row(row).len())
            .max()
            .unwrap_or(0);
        let length = pad.length.unwrap_or(longest);
        let length = length.next_multiple_of(pad.multiple_of.max(1));
        if let Some(row) = (0..self.rows).find(|row| of_row(*row).len() > length && !pad.truncates)
        {
            let values = of_row(row).len();
            return Err(PadError::TooLong {
                row,
                values,
                length,
            });
        }
        let size = numbers.size * width.unwrap_or(1);
        let places = self.rows.checked_mul(length).ok_or(PadError::TooLarge)?;
        let bytes = places
            .checked_mul(size)
            .filter(|bytes| *bytes <= isize::MAX as usize);
        let mut values = MutableBuffer::with_capacity(bytes.ok_or(PadError::TooLarge)?);
        let mut mask = MutableBuffer::with_capacity(places);
        let padding = pad.value.repeat(length * width.unwrap_or(1));
        for row in 0..self.rows {
            let all = of_row(row);
            // A null fixed-size list has values that count for nothing.
            let count = if self.is_valid(row) {
                all.len().min(length)
            } else {
                0
            };
            let blank = length - count;
            if pad.is_left {
                values.extend_from_slice(&padding[..blank * size]);
                mask.extend_zeros(blank);
            }
            let from = all.start;
            let begin = values.len();
            values.extend_from_slice(&numbers.values[from * size..(from + count) * size]);
            let masked = mask.len();
            mask.resize(masked + count, 1);
            child.blank_nulls(
                from,
                count,
                size,
                &padding,
                (&mut values[begin..], &mut mask[masked..]),
            );
            if !pad.is_left {
                values.extend_from_slice(&padding[..blank * size]);
                mask.extend_zeros(blank);
            }
        }
        Ok(Padded {
            length,
            width,
            numbers: Numbers {
                values: values.into(),
                ..*numbers
            },
            mask: mask.into(),
        })
    }

    /// Offsets of the rows and their values, or the number of values of each row.
    fn lists(&self) -> Option<(&[i64], &Self, Option<usize>)> {
        match &self.form {
            Form::List { offsets, child } => Some((offsets, child, None)),
            Form::Fixed { width, child } => Some((&[], child, Some(*width))),
            _ => None,
        }
    }

    /// The numbers, and how many of them make one value of fixed size.
    fn numbers(&self) -> Option<(&Numbers, Option<usize>)> {
        match &self.form {
            Form::Numbers(numbers) => Some((numbers, None)),
            Form::Fixed { width, child } => match &child.form {
                Form::Numbers(numbers) if child.valid.is_none() => Some((numbers, Some(*width))),
                _ => None,
            },
            _ => None,
        }
    }

    /// Puts padding in place of the nulls among `count` values from `from` on.
    fn blank_nulls(
        &self,
        from: usize,
        count: usize,
        size: usize,
        padding: &[u8],
        (values, mask): (&mut [u8], &mut [u8]),
    ) {
        if self.valid.is_none() {
            return;
        }
        for at in (0..count).filter(|at| !self.is_valid(from + at)) {
            values[at * size..(at + 1) * size].copy_from_slice(&padding[..size]);
            mask[at] = 0;
        }
    }
}
