//! Decoding table of a Huffman tree.

use super::bits::Bits;

/// Maximum bits of a code.
pub(super) const MAX_BITS: u32 = 11;
/// Maximum accuracy, in bits, of the FSE code of the weights.
const MAX_STATE_BITS: u32 = 6;
/// The largest weight of a symbol.
const MAX_WEIGHT: usize = 11;

/// For each value of the next [`MAX_BITS`] bits: the symbol in the high byte, and the length of its code.
pub(super) struct Table(pub(super) [u16; 1 << MAX_BITS]);

impl Default for Box<Table> {
    fn default() -> Self {
        Self::new(Table([0; 1 << MAX_BITS]))
    }
}

impl Table {
    /// Reads the tree at the start of `section`, and returns its length. `None` if there is none.
    pub(super) fn read(&mut self, section: &[u8]) -> Option<usize> {
        let (weights, length) = weights(section)?;
        let total: u32 = weights.iter().map(|weight| (1 << weight) >> 1).sum();
        let bits = total.checked_ilog2()? + 1;
        // The last symbol gets the rest.
        let left = (1 << bits) - total;
        if bits > MAX_BITS || !u32::is_power_of_two(left) || weights.len() > 255 {
            return None;
        }
        let last = left.ilog2() as u8 + 1;
        let mut rest = &mut self.0[..];
        for weight in 1..=bits as u8 {
            let entries = 1 << (u32::from(weight) - 1 + MAX_BITS - bits);
            let code = bits as u16 + 1 - u16::from(weight);
            for (entry_weight, symbol) in weights.iter().chain([&last]).zip(0..) {
                if *entry_weight == weight {
                    let (filled, after) = rest.split_at_mut_checked(entries)?;
                    filled.fill(symbol << 8 | code);
                    rest = after;
                }
            }
        }
        rest.is_empty().then_some(length)
    }
}

/// The weights of all symbols but the last, and their length in bytes: 4 bits each, or FSE-coded.
fn weights(section: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (&header, rest) = section.split_first()?;
    let header = usize::from(header);
    let Some(count) = header.checked_sub(127) else {
        return Some((compressed_weights(rest.get(..header)?)?, 1 + header));
    };
    let packed = rest.get(..count.div_ceil(2))?;
    let mut weights: Vec<u8> = packed.iter().flat_map(|two| [two >> 4, two & 15]).collect();
    weights.truncate(count);
    let fits = weights
        .iter()
        .all(|weight| usize::from(*weight) <= MAX_WEIGHT);
    fits.then_some((weights, 1 + packed.len()))
}

/// A state of the FSE decoder.
#[derive(Clone, Copy, Default)]
struct State {
    weight: u8,
    /// The next state is this plus a number of `bits` bits.
    next: usize,
    bits: u32,
}

fn compressed_weights(bytes: &[u8]) -> Option<Vec<u8>> {
    let (states, length) = states(bytes)?;
    let mut bits = Bits::new(bytes.get(length..)?)?;
    let size_bits = states.len().ilog2();
    let mut now = bits.take(size_bits);
    let mut other = bits.take(size_bits);
    let mut weights = Vec::new();
    // Two states alternate until the bits do not suffice for one of them.
    loop {
        let state = states.get(now)?;
        weights.push(state.weight);
        if bits.left() < state.bits as isize {
            weights.push(states.get(other)?.weight);
            return (bits.left() >= 0 && weights.len() < 256).then_some(weights);
        }
        now = state.next + bits.take(state.bits);
        (now, other) = (other, now);
        if weights.len() > 255 {
            return None;
        }
    }
}

/// The states from the probabilities at the start of `bytes`, and the length of these.
fn states(bytes: &[u8]) -> Option<(Vec<State>, usize)> {
    let (probabilities, size_bits, length) = probabilities(bytes)?;
    let size = 1 << size_bits;
    let mut states = vec![State::default(); size];
    // Symbols with a probability below one state get one state from the end.
    let mut end = size;
    for (weight, _) in (0..).zip(&probabilities).filter(|(_, p)| **p < 0) {
        end = end.checked_sub(1)?;
        states[end].weight = weight;
    }
    let step = (size >> 1) + (size >> 3) + 3;
    let mut pos = 0;
    for (weight, probability) in (0..).zip(&probabilities) {
        for _ in 0..*probability {
            states[pos].weight = weight;
            pos = (pos + step) % size;
            while pos >= end {
                pos = (pos + step) % size;
            }
        }
    }
    let mut seen: Vec<u32> = probabilities.iter().map(|p| p.unsigned_abs()).collect();
    for state in &mut states {
        let count = seen.get_mut(usize::from(state.weight))?;
        state.bits = size_bits - count.checked_ilog2()?;
        state.next = ((*count as usize) << state.bits) - size;
        *count += 1;
    }
    Some((states, length))
}

/// The probabilities in units of a power of two (-1 if below one unit), the exponent, and their length in bytes.
fn probabilities(bytes: &[u8]) -> Option<(Vec<i32>, u32, usize)> {
    let mut pos = 0;
    let mut peek = |count: u32, taken: u32| {
        let bit = |pos: usize| {
            bytes
                .get(pos / 8)
                .map_or(0, |byte| i32::from(byte >> (pos % 8) & 1))
        };
        let value: i32 = (0..count)
            .map(|step| bit(pos + step as usize) << step)
            .sum();
        pos += taken as usize;
        value
    };
    let size_bits = peek(4, 4) as u32 + 5;
    if size_bits > MAX_STATE_BITS {
        return None;
    }
    let mut left = 1_i32 << size_bits;
    let mut probabilities = Vec::new();
    while left > 0 {
        // Values up to `left + 1`; the smallest take one bit less.
        let bits = (left + 1).ilog2() + 1;
        let short = (1 << bits) - 1 - (left + 1);
        let low = peek(bits - 1, 0);
        let value = if low < short {
            peek(bits - 1, bits - 1)
        } else {
            let value = peek(bits, bits);
            if value < 1 << (bits - 1) {
                value
            } else {
                value - short
            }
        };
        let probability = value - 1;
        left -= probability.abs();
        probabilities.push(probability);
        // After a zero, two bits tell how many zeros follow, up to three at a time.
        let mut more = if probability == 0 { 3 } else { 0 };
        while more == 3 && probabilities.len() <= MAX_WEIGHT {
            more = peek(2, 2);
            probabilities.extend((0..more).map(|_| 0));
        }
        if probabilities.len() > MAX_WEIGHT + 1 {
            return None;
        }
    }
    (left == 0).then_some((probabilities, size_bits, pos.div_ceil(8)))
}
