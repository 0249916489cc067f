//! Damaged host lists of Slurm: the fuzzer's check, bounded, on any compiler.

#[path = "../../../../tests/fuzz/seeds.rs"]
mod seeds;

use crate::any_input;
use proptest::prelude::*;

const LISTS: [&str; 6] = [
    "node[01-03,7]",
    "login,gpu[8-11],cn[098-100]",
    "r[1-2]n[1-2]-ib",
    "a.example.org",
    "2(x3),1",
    "a100:4,t4:1",
];

const WORDS: [&str; 12] = [
    "[",
    "]",
    "-",
    ",",
    "0",
    "00",
    "9",
    "4294967296",
    "18446744073709551616",
    "a",
    " ",
    "(x9)",
];

#[test]
fn the_examples_are_valid() {
    for list in LISTS {
        assert!(any_input::check(list) > 0 || list.contains(':'), "{list}");
    }
}

#[test]
fn each_seed_of_the_fuzzer_is_expanded() {
    for (name, seed) in seeds::read("host_lists") {
        let names = any_input::check_input(&seed);
        assert!(
            names.is_none_or(|names| names > 0) || name == "gpus" || name == "tasks",
            "{name}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn damaged_lists_are_refused_or_expanded(
        list in prop::sample::select(&LISTS[..]),
        damages in prop::collection::vec(
            (0.0..1.0, 0.0..0.3, prop::sample::select(&WORDS[..])),
            0..5,
        ),
    ) {
        let mut text = list.to_owned();
        for (at, length, word) in damages {
            let from = (at * text.len() as f64) as usize;
            let to = (from + (length * text.len() as f64) as usize).min(text.len());
            text.replace_range(from..to, word);
        }
        any_input::check(&text);
    }
}
