//! Damaged lists and snapshots: the fuzzer's checks, bounded, on any compiler.

#[path = "../../../../tests/fuzz/seeds.rs"]
mod seeds;

use crate::any_input;
use proptest::prelude::*;

const LISTS: [&str; 6] = [
    "a:4,b:4",
    " me@b.example.org:4 , 10.0.0.1:2",
    "[::1]:4,root@[fe80::1%eth0]",
    "# two forms\r\n\r\na slots=4\nb:2 # the old one\n\tc\tport=2222 slots=1  \n d",
    "me@[::1]:3 port=2222\n[::1]:1024\n",
    "\u{feff}node-1\nnode-2:8\n",
];

const SNAPSHOTS: [&str; 3] = [
    r#"{"hosts":[{"id":"a","address":"10.0.0.1","addresses":["10.0.0.2"],"port":22,"user":"me","slots":8,"slots_from":"label","state":"draining","reason":"spot","deadline_ms":120000,"spot":true,"zone":"z","type":"p5","labels":{"k":"v"}}],"complete":false,"next_poll_ms":5000,"target_size":3}"#,
    r#"{"hosts":[{"id":"a","slots":4,"slots_from":"explicit"},{"id":"b","state":"gone"},{"id":"a","state":"pending"}]}"#,
    r#"{"hosts":[{"id":"b","address":"a"},{"id":"c","state":"resting","moon":1}],"target_size":4294967295}"#,
];

/// What a list or a snapshot may be damaged with.
const WORDS: [&str; 22] = [
    ":",
    ",",
    "@",
    "[",
    "]",
    "%",
    "#",
    "\n",
    " slots=",
    " port=",
    "0",
    "1025",
    "65536",
    "a",
    "A",
    "::1",
    "\u{e9}",
    "null",
    "\"",
    "{}",
    "\"id\":\"a\",",
    "-",
];

/// Replaces a part of a text by a word. Positions are shares of the length.
fn damaged(texts: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    let damage = (0.0..1.0, 0.0..0.2, prop::sample::select(&WORDS[..]));
    let damages = prop::collection::vec(damage, 0..4);
    (prop::sample::select(texts), damages).prop_map(|(text, damages)| {
        let mut bytes = text.as_bytes().to_vec();
        for (at, length, word) in damages {
            let from = (at * bytes.len() as f64) as usize;
            let to = (from + (length * bytes.len() as f64) as usize).min(bytes.len());
            drop(bytes.splice(from..to, word.bytes()));
        }
        bytes
    })
}

#[test]
fn the_examples_are_valid() {
    for list in LISTS {
        assert!(any_input::check_lists(list.as_bytes()) > 0, "{list}");
    }
    let all = SNAPSHOTS.join("\n");
    assert_eq!(any_input::check_snapshots(all.as_bytes()), SNAPSHOTS.len());
}

#[test]
fn each_seed_of_the_fuzzer_is_read() {
    for (name, seed) in seeds::read("host_lists") {
        assert_ne!(any_input::check_input(&seed), Some(0), "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn damaged_lists_are_refused_or_understood(bytes in damaged(&LISTS)) {
        any_input::check_lists(&bytes);
    }

    #[test]
    fn damaged_snapshots_are_refused_or_merged(
        snapshots in prop::collection::vec(damaged(&SNAPSHOTS), 0..4),
    ) {
        any_input::check_snapshots(&snapshots.join(&b'\n'));
    }
}
