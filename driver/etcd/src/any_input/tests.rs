//! Answers that were damaged: the fuzzer's check, bounded, on any compiler.

#[path = "../../../../tests/fuzz/seeds.rs"]
mod seeds;

use proptest::prelude::*;

use super::check;

#[test]
fn the_seeds_of_the_fuzzer_keep_the_properties() {
    for (name, bytes) in seeds::read("etcd") {
        assert!(check(&bytes) > 0, "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_stream_keeps_the_properties(input in prop::collection::vec(any::<u8>(), 0..200)) {
        check(&input);
    }

    #[test]
    fn a_stream_of_json_marks_keeps_the_properties(size in 1_u8..9, stream in "[{}\":,a1\\\\ \n\\[\\]]{0,40}") {
        check(&[&[size], stream.as_bytes()].concat());
    }

    #[test]
    fn a_damaged_answer_keeps_the_properties(
        index in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        size in 1_u8..50,
    ) {
        for (_, mut bytes) in seeds::read("etcd") {
            let index = index.index(bytes.len());
            bytes[index] = byte;
            bytes[0] = size;
            check(&bytes);
        }
    }
}
