//! Parquet's hybrid of run-length encoding and bit packing, for levels and dictionary indices.
//!
//! Source: Encodings.md of Apache Parquet, "Run Length Encoding / Bit-Packing Hybrid".
//!
//! Two kinds of runs are refused here, because Arrow's reader does not decode them as runs. A repeated value with more
//! bits than the bit width is an error there. A repetition of length 0 is the padding of some writers: it ends the
//! values there.

/// A run of a hybrid sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Run<'a> {
    /// One value, repeated.
    Same { value: u32, count: usize },
    /// `count` bit-packed values of `width` bits, lowest bits first.
    Packed { bytes: &'a [u8], count: usize },
}

/// The runs of `left` values of `width` bits, at most 32.
#[derive(Clone, Debug)]
pub(super) struct Runs<'a> {
    bytes: &'a [u8],
    width: u32,
    left: usize,
}

impl<'a> Runs<'a> {
    pub(super) fn new(bytes: &'a [u8], width: u32, values: usize) -> Self {
        Self {
            bytes,
            width,
            left: values,
        }
    }

    /// The next run. The inner `None` is the end of the values; the outer one means that bytes are missing, or that the
    /// run is refused.
    #[expect(
        clippy::option_option,
        reason = "the end of the values is not the end of the bytes"
    )]
    pub(super) fn next(&mut self) -> Option<Option<Run<'a>>> {
        if self.left == 0 {
            return Some(None);
        }
        let head = self.varint()?;
        let run = if head & 1 == 1 {
            let groups = usize::try_from(head >> 1).ok()?;
            let count = groups.checked_mul(8)?.min(self.left);
            let length = groups.checked_mul(self.width as usize)?;
            // The last group may be cut after its last value.
            let needed = (count * self.width as usize).div_ceil(8);
            let bytes = self.take(length.min(self.bytes.len()))?;
            if bytes.len() < needed {
                return None;
            }
            Run::Packed { bytes, count }
        } else {
            let count = usize::try_from(head >> 1).ok().filter(|count| *count > 0)?;
            let bytes = self.take(self.width.div_ceil(8) as usize)?;
            let value = bytes
                .iter()
                .rev()
                .fold(0, |value, byte| value << 8 | u64::from(*byte));
            if value >> self.width != 0 {
                return None;
            }
            Run::Same {
                value: value as u32,
                count: count.min(self.left),
            }
        };
        self.left -= match run {
            Run::Same { count, .. } | Run::Packed { count, .. } => count,
        };
        Some(Some(run))
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(length)?;
        self.bytes = rest;
        Some(taken)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.take(1)?.first()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

/// Passes the first `count` values of `width` bits in `bytes` to `emit`.
#[inline]
pub(super) fn unpack(bytes: &[u8], width: u32, count: usize, mut emit: impl FnMut(u32)) {
    let mask = ((1_u64 << width) - 1) as u32;
    let (mut pos, mut value) = (0, 0);
    // While eight bytes can be read at the start of a value, it takes one load and one shift.
    while value < count {
        let Some(window) = bytes
            .get(pos / 8..)
            .and_then(|rest| rest.first_chunk::<8>())
        else {
            break;
        };
        emit((u64::from_le_bytes(*window) >> (pos % 8)) as u32 & mask);
        pos += width as usize;
        value += 1;
    }
    for _ in value..count {
        let mut window = [0; 8];
        let rest = &bytes[(pos / 8).min(bytes.len())..];
        let length = rest.len().min(8);
        window[..length].copy_from_slice(&rest[..length]);
        emit((u64::from_le_bytes(window) >> (pos % 8)) as u32 & mask);
        pos += width as usize;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All values of a sequence.
    fn decode(bytes: &[u8], width: u32, values: usize) -> Option<Vec<u32>> {
        let mut runs = Runs::new(bytes, width, values);
        let mut decoded = Vec::new();
        while let Some(run) = runs.next()? {
            match run {
                Run::Same { value, count } => decoded.extend(std::iter::repeat_n(value, count)),
                Run::Packed { bytes, count } => {
                    unpack(bytes, width, count, |value| decoded.push(value))
                }
            }
        }
        Some(decoded)
    }

    /// The example of Encodings.md: 0 to 7 in three bits each.
    #[test]
    fn the_example_of_the_specification() {
        let bytes = [0x03, 0x88, 0xc6, 0xfa];
        assert_eq!(decode(&bytes, 3, 8).unwrap(), (0..8).collect::<Vec<_>>());
        assert_eq!(decode(&bytes, 3, 6).unwrap(), (0..6).collect::<Vec<_>>());
        assert_eq!(decode(&bytes[..3], 3, 8), None);
        assert_eq!(decode(&bytes, 3, 9), None);
    }

    #[test]
    fn a_value_with_more_bits_than_the_width_is_refused() {
        assert_eq!(decode(&[0x04, 0x07], 3, 2), Some(vec![7, 7]));
        assert_eq!(decode(&[0x04, 0x08], 3, 2), None);
        assert_eq!(decode(&[0x04, 0xff, 0x01], 9, 2), Some(vec![511, 511]));
        assert_eq!(decode(&[0x04, 0xff, 0x03], 9, 2), None);
        assert_eq!(
            decode(&[0x02, 0xff, 0xff, 0xff, 0xff], 32, 1).unwrap(),
            [u32::MAX]
        );
        assert_eq!(decode(&[0x04], 0, 2), Some(vec![0, 0]));
    }

    #[test]
    fn a_repetition_of_length_0_is_refused() {
        assert_eq!(decode(&[0x00, 0x01, 0x04, 0x01], 1, 2), None);
        // No byte of the value follows: this is padding.
        assert_eq!(decode(&[0x02, 0x01, 0x00], 1, 2), None);
        // It is behind the values.
        assert_eq!(decode(&[0x04, 0x01, 0x00], 1, 2), Some(vec![1, 1]));
        // No group of eight packed values is a run all the same.
        assert_eq!(decode(&[0x01, 0x04, 0x01], 1, 2), Some(vec![1, 1]));
    }

    /// Packs values as groups of eight.
    fn pack(values: &[u32], width: u32) -> Vec<u8> {
        let groups = values.len().div_ceil(8);
        let mut bits = vec![0_u8; groups * width as usize];
        for (index, value) in values.iter().enumerate() {
            for bit in 0..width as usize {
                if value >> bit & 1 == 1 {
                    let pos = index * width as usize + bit;
                    bits[pos / 8] |= 1 << (pos % 8);
                }
            }
        }
        bits
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            width in 1..=32_u32,
            parts in prop::collection::vec((any::<u32>(), 1..50_usize, any::<bool>()), 1..10),
        ) {
            let mask = ((1_u64 << width) - 1) as u32;
            let (mut bytes, mut values) = (Vec::new(), Vec::new());
            for (seed, count, packed) in parts {
                if packed {
                    let run: Vec<u32> = (0..8 * count as u32).map(|step| seed.wrapping_mul(step | 1) & mask).collect();
                    // 50 groups at most: the head is one byte.
                    bytes.push((count as u8) << 1 | 1);
                    bytes.extend(pack(&run, width));
                    values.extend(run);
                } else {
                    bytes.push((count as u8) << 1);
                    bytes.extend(&(seed & mask).to_le_bytes()[..width.div_ceil(8) as usize]);
                    values.extend(std::iter::repeat_n(seed & mask, count));
                }
            }
            prop_assert_eq!(decode(&bytes, width, values.len()).unwrap(), values);
        }

        #[test]
        fn no_bytes_make_it_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..100), width in 0..=32_u32, values in 0..1000_usize,
        ) {
            if let Some(decoded) = decode(&bytes, width, values) {
                prop_assert_eq!(decoded.len(), values);
            }
        }
    }
}
