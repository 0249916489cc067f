//! Encoding of shares and ledgers.
//! Numbers are LEB128: seven bits a byte, lowest first. A range is stored by its distance to the previous one, so it
//! takes two to eight bytes.

use std::ops::Range;

use super::Share;

/// Bytes that do not decode to a share or a ledger.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not the position in a data set: {0}")]
pub struct Malformed(pub &'static str);

/// Appends a number.
pub(super) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Removes a number from the front.
pub(super) fn take(from: &mut &[u8]) -> Result<u64, Malformed> {
    let mut value = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (byte, rest) = from.split_first().ok_or(Malformed("it ends too early"))?;
        *from = rest;
        let bits = u64::from(byte & 0x7f);
        if bits << shift >> shift != bits {
            break;
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Malformed("a number is too large"))
}

/// Removes eight bytes from the front.
pub(super) fn take_word(from: &mut &[u8]) -> Result<u64, Malformed> {
    let (word, rest) = from
        .split_first_chunk()
        .ok_or(Malformed("it ends too early"))?;
    *from = rest;
    Ok(u64::from_le_bytes(*word))
}

impl Share {
    /// Appends the share: about four bytes for each opened row group, and a few more.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put(out, self.ranges().len() as u64);
        let mut last = 0_u64;
        for range in self.ranges() {
            // The lowest bit holds the sign, so a small step back is a small number.
            let step = range.start.wrapping_sub(last) as i64;
            put(out, ((step << 1) ^ (step >> 63)) as u64);
            put(out, range.end - range.start);
            last = range.end;
        }
    }

    /// Removes the output of [`Share::encode`] from the front of `from`.
    ///
    /// # Errors
    /// If a range is empty or overflows, if two ranges overlap, or if the bytes end too early.
    pub fn decode(from: &mut &[u8]) -> Result<Self, Malformed> {
        let count = take(from)?;
        if count > from.len() as u64 {
            return Err(Malformed("it ends too early"));
        }
        let mut share = Share::EMPTY;
        let mut last = 0_u64;
        for _ in 0..count {
            let step = take(from)?;
            let step = (step >> 1) as i64 ^ -((step & 1) as i64);
            let start = last.wrapping_add(step as u64);
            let len = take(from)?;
            last = (start.checked_add(len)).ok_or(Malformed("a range is too long"))?;
            if len == 0 {
                return Err(Malformed("a range is empty"));
            }
            share.push(start..last);
        }
        disjoint(share.ranges().iter().cloned())?;
        Ok(share)
    }
}

/// Fails if two ranges overlap.
pub(super) fn disjoint(ranges: impl Iterator<Item = Range<u64>>) -> Result<(), Malformed> {
    let mut ranges: Vec<Range<u64>> = ranges.collect();
    ranges.sort_unstable_by_key(|range| range.start);
    if ranges.windows(2).any(|pair| pair[1].start < pair[0].end) {
        return Err(Malformed("a row is in it twice"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_come_back(value: u64, behind: u8) {
            let mut bytes = Vec::new();
            put(&mut bytes, value);
            bytes.push(behind);
            let mut from = &bytes[..];
            prop_assert_eq!(take(&mut from), Ok(value));
            prop_assert_eq!(from, [behind]);
        }

        #[test]
        fn nonsense_is_an_error_at_worst(bytes: Vec<u8>) {
            let mut from = &bytes[..];
            if let Ok(share) = Share::decode(&mut from) {
                let read = bytes.len() - from.len();
                let mut again = Vec::new();
                share.encode(&mut again);
                // Adjacent ranges are merged, and numbers may have leading zeros in the input.
                prop_assert!(again.len() <= read);
            }
        }

        #[test]
        fn shares_come_back(steps in prop::collection::vec((1_u64..1 << 40, 0_u64..1 << 40), 0..20), turned: bool) {
            let mut last = 0;
            let mut ranges = Vec::new();
            for (len, gap) in steps {
                ranges.push(last + gap..last + gap + len);
                last += gap + len;
            }
            if turned {
                ranges.reverse();
            }
            let share: Share = ranges.into_iter().collect();
            let mut bytes = Vec::new();
            share.encode(&mut bytes);
            let mut from = &bytes[..];
            prop_assert_eq!(Share::decode(&mut from), Ok(share));
            prop_assert!(from.is_empty());
        }
    }
}
