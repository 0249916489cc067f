//! Damaged answers of plugins: the fuzzer's checks, bounded, on any compiler.

#![allow(clippy::unwrap_used)]

#[path = "../../../../tests/fuzz/seeds.rs"]
mod seeds;

use crate::any_input;
use proptest::prelude::*;

const ANSWERS: [&str; 6] = [
    r#"{"hosts":[{"id":"a","address":"10.0.0.1","addresses":["::1"],"port":22,"user":"me","slots":8,"slots_from":"label","state":"draining","reason":"spot","deadline_ms":120000,"labels":{"k":"v"}}],"complete":false,"next_poll_ms":5000,"target_size":3}"#,
    r#"{"hosts":[{"id":"a"},{"id":"ns/b","address":"b","slots":1024}]}"#,
    r#"{"name":"rack","version":"1.0.0","license":"MIT","description":"a row","config":{"type":"object"},"environment":["AWS_*"],"permissions":["read"]}"#,
    r#"{"name":"rack","version":"1"}"#,
    r#"{"message":"row: the hall has rows 0 to 9","retry_after_ms":5000}"#,
    "plain text",
];

const FRAMES: [&str; 8] = [
    r#"{"hello": {"frames": 1, "manifest": {"name": "rack", "version": "1"}, "watches": true}}"#,
    r#"{"refused": "no such rack"}"#,
    r#"{"answer": 1}"#,
    r#"{"answer": 2, "snapshot": {"hosts": [{"id": "i-1", "slots": 8}]}}"#,
    r#"{"answer": 3, "error": "bad-config", "message": "row 10", "retry_after_ms": 5000}"#,
    r#"{"answer": 4, "error": "odd"}"#,
    r#"{"changed": true}"#,
    r#"{"log": "info", "text": "12 instances"}"#,
];

const SPECS: [&str; 4] = [
    "aws-asg",
    "script:path=/a b/c:d=e",
    r"static:hosts=a:4\,b:4,x-y=,z=\\",
    "a=sha256:0123456789abcdef0123456789abcdef0123456789ABCDEF0123456789abcdef",
];

const WORDS: [&str; 20] = [
    "null",
    "-1",
    "1e400",
    "18446744073709551616",
    "{}",
    "[[[[",
    "\"",
    "\\u000a",
    "\\ud800",
    "\n",
    "\u{1b}[31m",
    "\\",
    ",",
    "=",
    ":",
    "1025",
    "\"hosts\":",
    "\"id\":\"-x\",",
    "\u{0}",
    "\u{2028}",
];

type Damage = (f64, f64, &'static str);

fn damages() -> impl Strategy<Value = Vec<Damage>> {
    prop::collection::vec((0.0..1.0, 0.0..0.2, prop::sample::select(&WORDS[..])), 0..4)
}

/// Replaces parts of bytes by words. Positions are shares of the length.
fn damage(bytes: &mut Vec<u8>, damages: &[Damage]) {
    for (at, length, word) in damages {
        let from = (at * bytes.len() as f64) as usize;
        let to = (from + (length * bytes.len() as f64) as usize).min(bytes.len());
        drop(bytes.splice(from..to, word.bytes()));
    }
}

fn frame(body: &[u8]) -> Vec<u8> {
    [format!("{}\n", body.len()).as_bytes(), body].concat()
}

#[test]
fn the_examples_are_valid() {
    let valid: usize = ANSWERS
        .iter()
        .map(|answer| any_input::check_answer(1, answer.as_bytes()))
        .sum();
    assert_eq!(valid, 4);
    let stream: Vec<u8> = FRAMES
        .iter()
        .flat_map(|body| frame(body.as_bytes()))
        .collect();
    assert_eq!(any_input::check_stream(3, &stream), 6);
    assert_eq!(any_input::check_script(b"a:4\n[::1]:2 port=22\n"), 2);
    assert!(SPECS.iter().all(|spec| any_input::check_spec(spec) == 1));
}

#[test]
fn each_seed_of_the_fuzzer_is_read() {
    for (name, seed) in seeds::read("plugin_answers") {
        // An error is no snapshot, and what a plugin logs is no message for the caller.
        let is_read = !["error", "changed", "log"].contains(&&*name);
        assert_eq!(any_input::check_input(&seed) > 0, is_read, "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn damaged_answers_are_refused_or_understood(
        answer in prop::sample::select(&ANSWERS[..]),
        damages in damages(),
        number in 0..8,
    ) {
        let mut bytes = answer.as_bytes().to_vec();
        damage(&mut bytes, &damages);
        any_input::check_answer(number, &bytes);
        any_input::check_script(&bytes);
    }

    #[test]
    fn damaged_frames_are_refused_or_understood(
        bodies in prop::collection::vec((prop::sample::select(&FRAMES[..]), damages()), 1..4),
        outside in damages(),
        cut in 1usize..50,
    ) {
        let mut stream = Vec::new();
        for (body, damages) in bodies {
            let mut body = body.as_bytes().to_vec();
            damage(&mut body, &damages);
            stream.extend(frame(&body));
        }
        any_input::check_stream(cut, &stream);
        damage(&mut stream, &outside);
        any_input::check_stream(cut, &stream);
    }

    #[test]
    fn damaged_specs_are_refused_or_understood(
        spec in prop::sample::select(&SPECS[..]),
        damages in damages(),
    ) {
        let mut bytes = spec.as_bytes().to_vec();
        damage(&mut bytes, &damages);
        any_input::check_spec(&String::from_utf8_lossy(&bytes));
    }
}
