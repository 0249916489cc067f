//! Damaged layouts and bodies: the fuzzer's check, bounded, on any compiler.

#[path = "../../../../tests/fuzz/seeds.rs"]
mod seeds;

use proptest::prelude::*;

use super::check;

#[test]
fn the_seeds_of_the_fuzzer_keep_the_properties() {
    for (name, bytes) in seeds::read("shards") {
        assert_eq!(check(&bytes), !name.starts_with("bad-"), "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5000))]

    #[test]
    fn any_bytes_keep_the_properties(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        check(&bytes);
    }

    #[test]
    fn damaged_seeds_keep_the_properties(
        seed in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4), 1..4),
    ) {
        let seeds = seeds::read("shards");
        let mut bytes = seed.get(&seeds).1.clone();
        for (index, byte, change) in changes {
            let index = index.index(bytes.len());
            match change {
                0 => bytes[index] = byte,
                1 => bytes[index] = bytes[index].wrapping_add(byte % 5).wrapping_sub(2),
                2 => bytes.insert(index, byte),
                _ => drop(bytes.remove(index)),
            }
        }
        check(&bytes);
    }
}
