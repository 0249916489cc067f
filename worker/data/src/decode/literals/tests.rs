//! Comparison with the library: the same bytes, or none.

use proptest::prelude::*;

use super::{FULL, Literals};

fn compressed(plain: &[u8], level: i32) -> Vec<u8> {
    zstd::bulk::compress(plain, level).expect("memory")
}

/// Whether the frame was decoded here; the library must then give the same bytes.
fn agrees(literals: &mut Literals, frame: &[u8], length: usize) -> bool {
    let mut dst = vec![0xAA; length];
    let decoded = literals.decode(frame, &mut dst);
    if decoded {
        let mut expected = vec![0x55; length];
        let filled = zstd::bulk::decompress_to_buffer(frame, &mut expected);
        assert_eq!(filled.map_err(|error| error.to_string()), Ok(length));
        assert!(
            dst == expected,
            "{length} bytes are not those of the library"
        );
    }
    decoded
}

/// Bytes without repetitions: each is the smallest of `rarer` random bytes.
fn literals(mut seed: u64, length: usize, rarer: u32) -> Vec<u8> {
    let mut draw = || {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 56) as u8
    };
    (0..length)
        .map(|_| (0..rarer).map(|_| draw()).min().unwrap_or(0))
        .collect()
}

/// Bytes like a column of floats.
fn floats(seed: u64, count: usize) -> Vec<u8> {
    let mut random = literals(seed, count * 4, 1).into_iter();
    let mut unit = || {
        let bytes = [0; 4].map(|_: u8| random.next().unwrap_or(0));
        f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX)
    };
    (0..count)
        .flat_map(|_| ((unit() * 6.0 - 3.0) as f32).to_le_bytes())
        .collect()
}

#[test]
fn a_page_of_floats_is_decoded_here() {
    let mut literals = Literals::default();
    for count in [2 * FULL / 4, 2 * FULL / 4 + 1, 262_129, 1 << 18] {
        let plain = floats(7, count);
        let frame = compressed(&plain, 1);
        assert!(frame.len() < plain.len());
        assert!(agrees(&mut literals, &frame, plain.len()), "{count} floats");
    }
}

#[test]
fn what_repeats_is_left_to_the_library_as_is_a_single_block() {
    let mut literals = Literals::default();
    let mut twice = floats(3, 60_000);
    twice.extend_from_within(..);
    assert!(!agrees(&mut literals, &compressed(&twice, 1), twice.len()));
    let short = floats(3, 30_000);
    assert!(!agrees(&mut literals, &compressed(&short, 1), short.len()));
    assert!(!agrees(&mut literals, &[], 0));
}

#[test]
fn a_target_of_another_size_is_left_to_the_library() {
    let plain = floats(5, 100_000);
    let frame = compressed(&plain, 1);
    let mut literals = Literals::default();
    for length in [0, plain.len() - 1, plain.len() + 1, 2 * plain.len()] {
        assert!(!literals.decode(&frame, &mut vec![0; length]), "{length}");
    }
}

#[test]
fn a_first_block_without_a_tree_is_left_to_the_library() {
    let plain = floats(9, 100_000);
    let mut frame = compressed(&plain, 1);
    let mut literals = Literals::default();
    assert!(agrees(&mut literals, &frame, plain.len()));
    // Behind magic, descriptor, four bytes of content size and the block's header: coded becomes coded by the tree before.
    assert_eq!(frame[12] & 3, 2);
    frame[12] |= 3;
    assert!(!agrees(&mut literals, &frame, plain.len()));
}

proptest! {
    #[test]
    fn any_frame_is_that_of_the_library_or_left_to_it(
        seed: u64,
        length in 0..5 * FULL,
        rarer in 1_u32..40,
        level in 1..6,
    ) {
        let plain = literals(seed, length, rarer);
        agrees(&mut Literals::default(), &compressed(&plain, level), length);
    }

    #[test]
    fn a_damaged_frame_is_that_of_the_library_or_left_to_it(
        seed: u64,
        rarer in 1_u32..8,
        damages in prop::collection::vec((any::<prop::sample::Index>(), 1_u8..), 1..4),
    ) {
        let plain = literals(seed, 2 * FULL + 4321, rarer);
        let mut frame = compressed(&plain, 1);
        // Most of a frame is literals, so half of the damages are where trees and lengths are.
        for (number, (at, change)) in damages.into_iter().enumerate() {
            let end = if number % 2 == 0 { 200.min(frame.len()) } else { frame.len() };
            let at = at.index(end);
            frame[at] ^= change;
        }
        agrees(&mut Literals::default(), &frame, plain.len());
    }

    #[test]
    fn any_bytes_are_left_to_the_library_or_are_a_frame(
        mut bytes in prop::collection::vec(any::<u8>(), 0..600),
        length in 0..3000_usize,
    ) {
        if bytes.len() > 4 {
            bytes[..4].copy_from_slice(&super::MAGIC);
        }
        agrees(&mut Literals::default(), &bytes, length);
    }
}
