//! Integers as packed differences, DELTA_BINARY_PACKED.
//!
//! Source: Encodings.md of Apache Parquet, "Delta Encoding".

/// More values in a block are not believed. Writers have 128 to 1,024.
const MAX_BLOCK: u64 = 1 << 16;

/// Passes `count` integers, at least one, to `emit`, which returns `None` to end. Returns the bytes that they take. `None` if bytes
/// are missing, if there is another number of integers, or if `emit` ends. Integers of 32 bits are the lower halves.
pub(super) fn each(
    bytes: &[u8],
    count: usize,
    mut emit: impl FnMut(i64) -> Option<()>,
) -> Option<usize> {
    let mut input = Input { bytes, position: 0 };
    let (block, parts) = (input.varint()?, input.varint()?);
    let total = input.varint()?;
    let is_sound = parts > 0 && block <= MAX_BLOCK && block % parts == 0 && block / parts % 8 == 0;
    if !is_sound || block == 0 || total != count as u64 {
        return None;
    }
    let in_part = (block / parts) as usize;
    let mut value = input.zigzag()?;
    emit(value)?;
    let mut left = count - 1;
    while left > 0 {
        let least = input.zigzag()?;
        let widths = input.take(parts as usize)?;
        for width in widths {
            if left == 0 {
                break;
            }
            let width = u32::from(*width);
            if width > u64::BITS {
                return None;
            }
            let packed = input.take(in_part * width as usize / 8)?;
            let here = left.min(in_part);
            for index in 0..here {
                let delta = (least as u64).wrapping_add(unpacked(packed, width, index));
                value = value.wrapping_add(delta as i64);
                emit(value)?;
            }
            left -= here;
        }
    }
    Some(input.position)
}

/// A value of `width` bits, lowest bits first.
#[inline]
fn unpacked(bytes: &[u8], width: u32, index: usize) -> u64 {
    let bit = index * width as usize;
    let rest = &bytes[(bit / 8).min(bytes.len())..];
    let (shift, mask) = (bit % 8, ((1_u128 << width) - 1) as u64);
    if let (Some(window), true) = (rest.first_chunk::<8>(), width <= 56) {
        return u64::from_le_bytes(*window) >> shift & mask;
    }
    let mut window = [0; 16];
    let length = rest.len().min(16);
    window[..length].copy_from_slice(&rest[..length]);
    (u128::from_le_bytes(window) >> shift) as u64 & mask
}

struct Input<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Input<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let end = self.position.checked_add(length)?;
        let taken = self.bytes.get(self.position..end)?;
        self.position = end;
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

    fn zigzag(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(bytes: &[u8], count: usize) -> Option<(Vec<i64>, usize)> {
        let mut values = Vec::new();
        let length = each(bytes, count, |value| {
            values.push(value);
            Some(())
        })?;
        Some((values, length))
    }

    /// The example of Encodings.md: 7, 5, 3, 1, 2, 3, 4, 5 as deltas from a minimum of -2.
    #[test]
    fn the_example_of_the_specification() {
        let mut bytes = vec![0x80, 0x01, 0x04, 0x08, 0x0e, 0x03, 2, 0, 0, 0, 0xc0, 0x3f];
        // The rest of the part of 32 values.
        bytes.extend([0; 6]);
        let values = vec![7, 5, 3, 1, 2, 3, 4, 5];
        assert_eq!(decode(&bytes, 8), Some((values, bytes.len())));
        assert_eq!(decode(&bytes, 7), None, "another number of values");
        assert_eq!(decode(&bytes[..bytes.len() - 1], 8), None, "cut");
    }

    fn varint(mut value: u64, bytes: &mut Vec<u8>) {
        while value > 0x7f {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
    }

    fn zigzag(value: i64, bytes: &mut Vec<u8>) {
        varint((value << 1 ^ value >> 63) as u64, bytes);
    }

    /// Blocks of 64 values in two parts of 32.
    fn encode(values: &[i64]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in [64, 2, values.len() as u64] {
            varint(number, &mut bytes);
        }
        zigzag(values[0], &mut bytes);
        let deltas: Vec<i64> = (values.windows(2))
            .map(|pair| pair[1].wrapping_sub(pair[0]))
            .collect();
        for block in deltas.chunks(64) {
            let least = *block.iter().min().unwrap();
            zigzag(least, &mut bytes);
            let parts: Vec<Vec<u64>> = (block.chunks(32))
                .map(|part| part.iter().map(|d| d.wrapping_sub(least) as u64).collect())
                .collect();
            let width = |part: &[u64]| {
                part.iter()
                    .map(|value| 64 - value.leading_zeros())
                    .max()
                    .unwrap_or(0)
            };
            let widths: Vec<u32> = parts.iter().map(|part| width(part)).collect();
            bytes.extend((0..2).map(|part| *widths.get(part).unwrap_or(&0) as u8));
            for (part, width) in parts.iter().zip(widths) {
                let mut packed = vec![0_u8; 4 * width as usize];
                for (index, value) in part.iter().enumerate() {
                    for bit in (0..width as usize).filter(|bit| value >> bit & 1 == 1) {
                        let place = index * width as usize + bit;
                        packed[place / 8] |= 1 << (place % 8);
                    }
                }
                bytes.extend(packed);
            }
        }
        bytes
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            values in prop::collection::vec(prop_oneof![any::<i64>(), -9..9_i64, Just(5)], 1..300),
            behind in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            let bytes = encode(&values);
            let (read, length) = decode(&[&bytes[..], &behind].concat(), values.len()).unwrap();
            prop_assert_eq!(read, values);
            prop_assert_eq!(length, bytes.len());
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..100), count in 1..500_usize) {
            if let Some((values, length)) = decode(&bytes, count) {
                prop_assert_eq!(values.len(), count);
                prop_assert!(length <= bytes.len());
            }
        }
    }
}
