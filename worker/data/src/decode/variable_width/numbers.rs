//! Numbers of a page, written out as plain values.

use super::delta;
use crate::decode::{
    fixed_width_fast_path::write_out,
    page_path::{BYTE_STREAM_SPLIT, DELTA_BINARY_PACKED, PLAIN},
};

/// Writes the first `count` numbers of `number` bytes each to `target`, which has their size. `None` if the page has fewer.
pub(super) fn write(
    encoding: i32,
    values: &[u8],
    count: usize,
    number: usize,
    dictionary: &[u8],
    target: &mut [u8],
) -> Option<()> {
    if count == 0 {
        return Some(());
    }
    match encoding {
        PLAIN => target.copy_from_slice(values.get(..count.checked_mul(number)?)?),
        DELTA_BINARY_PACKED => {
            let mut targets = target.chunks_exact_mut(number);
            delta::each(values, count, |value| {
                let target = targets.next()?;
                target.copy_from_slice(&value.to_le_bytes()[..number]);
                Some(())
            })?;
        }
        BYTE_STREAM_SPLIT => {
            // The first bytes of all numbers, then all second ones, and so on.
            if values.len() != count.checked_mul(number)? {
                return None;
            }
            for (place, stream) in values.chunks_exact(count).enumerate() {
                for (target, byte) in target.chunks_exact_mut(number).zip(stream) {
                    target[place] = *byte;
                }
            }
        }
        _ => write_out(values, count, dictionary, number, 0, target)?,
    }
    Some(())
}

/// Moves the values at the beginning of `target` to the elements that are not null. Null elements are 0.
pub(super) fn spread(
    target: &mut [u8],
    number: usize,
    defined: usize,
    is_valid: impl Fn(usize) -> bool,
) {
    let mut next = defined;
    for element in (0..target.len() / number).rev() {
        let place = element * number;
        if is_valid(element) && next > 0 {
            next -= 1;
            target.copy_within(next * number..(next + 1) * number, place);
        } else {
            target[place..place + number].fill(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_bytes_are_joined() {
        let mut target = [0; 8];
        write(
            BYTE_STREAM_SPLIT,
            &[1, 5, 2, 6, 3, 7, 4, 8],
            2,
            4,
            &[],
            &mut target,
        )
        .unwrap();
        assert_eq!(target, [1, 2, 3, 4, 5, 6, 7, 8]);
        assert!(write(BYTE_STREAM_SPLIT, &[1, 5], 2, 4, &[], &mut target).is_none());
        assert!(write(PLAIN, &[1, 5], 2, 4, &[], &mut target).is_none());
    }

    #[test]
    fn values_move_to_their_elements() {
        let mut target = [1, 2, 3, 9, 9, 9];
        spread(&mut target, 1, 3, |element| [1, 3, 4].contains(&element));
        assert_eq!(target, [0, 1, 0, 2, 3, 0]);
    }
}
