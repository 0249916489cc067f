//! The seeds of the fuzzer, and thousands of damaged ones, on any compiler.

#[path = "../../../../tests/fuzz/seeds.rs"]
mod seeds;

use elasticrun_core::random::Random;

use super::{check_footer, check_pages, check_thrift};

/// Damaged inputs of each target.
const INPUTS: usize = 4000;

/// Flips, cuts, repeats and inserts bytes.
fn damaged(seed: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=random.next_u64() % 3 {
        let mut below = |length: usize| random.next_u64() as usize % length.max(1);
        let (kind, pos) = (below(4), below(bytes.len()));
        let end = bytes.len().min(pos + 1 + below(16));
        match kind {
            0 if !bytes.is_empty() => bytes[pos] ^= 1 << below(8),
            1 => drop(bytes.drain(pos..end)),
            2 => {
                let again = bytes[pos..end].to_vec();
                drop(bytes.splice(pos..pos, again));
            }
            // The largest number of 32 bits.
            _ => drop(bytes.splice(pos..end, [0xff, 0xff, 0xff, 0xff, 0x0f])),
        }
    }
    bytes
}

fn with_damage(target: &str, check: impl Fn(&[u8])) {
    let seeds = seeds::read(target);
    let mut random = Random::from_seed(0);
    for input in 0..INPUTS {
        let (_, seed) = &seeds[input % seeds.len()];
        check(&damaged(seed, &mut random));
    }
}

#[test]
fn seeds_are_valid() {
    for (name, seed) in seeds::read("pages") {
        assert_eq!(check_pages(&seed), !name.starts_with("bad-"), "{name}");
    }
    for (name, seed) in seeds::read("footers") {
        assert_eq!(check_footer(&seed), !name.starts_with("bad-"), "{name}");
    }
    for (name, seed) in seeds::read("thrift") {
        assert_eq!(check_thrift(&seed) > 0, !name.starts_with("bad-"), "{name}");
    }
}

#[test]
fn damaged_pages_have_the_same_values_or_none() {
    with_damage("pages", |input| {
        check_pages(input);
    });
}

#[test]
fn damaged_footers_are_refused_or_read() {
    with_damage("footers", |input| {
        check_footer(input);
    });
}

#[test]
fn damaged_structures_are_refused_or_skipped() {
    with_damage("thrift", |input| {
        check_thrift(input);
    });
}
