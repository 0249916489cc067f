//! Properties of the command line, over random words.

use std::ffi::OsString;

use crate::{
    cli::{
        Invocation,
        any_input::{check_input, check_words},
        parse,
    },
    config::{KEYS, any_input::check_file, variable},
    seeds,
};
use proptest::prelude::*;

/// Options and values, mixed with random words.
fn word() -> impl Strategy<Value = String> {
    let options = KEYS
        .iter()
        .map(|key| format!("--{}", key.name))
        .collect::<Vec<_>>();
    prop_oneof![
        4 => prop::sample::select(options),
        2 => prop::sample::select(vec![
            "-np", "-H", "-p", "-i", "--", "-", "-np=2", "-np4", "--min-np=", "--help", "--dry-run", "run", "config", "show",
            "agent", "--gloo", "--mpi-args", "-hostfile", "", "=", "--=", "-é", "--config",
        ])
        .prop_map(str::to_owned),
        3 => prop::sample::select(vec!["1", "2", "0", "5s", "a:2,b:2", "auto", "x=1", "-1", "eth0", "ssh", "/"])
            .prop_map(str::to_owned),
        1 => ".{0,8}",
        1 => "-{0,3}[a-zH]{0,3}=?.{0,3}",
    ]
}

/// Lines of configuration files.
const LINES: [&str; 33] = [
    "np = 4",
    "min-np = 2",
    "max-np = 8",
    "spares = 1",
    "slots-per-host = \"auto\"",
    "slots-per-host = 4",
    "hosts = \"a:4,me@[::1]:2\"",
    "hosts = [\"a:4\", \"b:4\"]",
    "discovery = [\"static:hosts=a:4\\\\,b:4\", \"file:path=/a b\"]",
    "discovery = \"x:z=a ,b=c\"",
    "aws-asg = \"gpus:region=eu-central-1,slots=8\"",
    "gcp-mig = [\"p/z/g\"]",
    "k8s = \"app=train,role!=x:namespace=ml\"",
    "slurm = true",
    "spark = \"spark://h:7077\"",
    "plugin-isolation = \"thread\"",
    "elastic-timeout = \"10m\"",
    "last-call = 1.5",
    "drain-timeout = \"0\"",
    "heartbeat-interval = \"50ms\"",
    "blacklist = \"forever\"",
    "blacklist-cooldown-range = [\"5s\", \"10m\"]",
    "failure-domain = \"slot\"",
    "listen = \"[::]:7070\"",
    "env = [\"DATA\", \"A=b c\"]",
    "ssh-option = [\"Port=22\", \"User me\"]",
    "network-interface = [\"eth0, ib0\", \"lo\"]",
    "notice-file = \"/run/leave\"",
    "encrypt = \"data\"",
    "commit-memory = \"64 GiB\"",
    "preload = \"torch, torch.nn\"",
    "log-level = \"debug\"",
    "quiet = true # and a comment",
];

/// What a configuration file may be damaged with.
const WORDS: [&str; 20] = [
    "\"", "'", "\"\"\"", "\\n", "\\u0007", "\\u2028", "\n", "[", "]", "=", ",", " ", ":", "0",
    "-1", "1e9", "true", "#", "x", "\u{e9}",
];

fn file() -> impl Strategy<Value = String> {
    let damage = (0.0..1.0_f64, 0.0..0.1_f64, prop::sample::select(&WORDS[..]));
    let lines = prop::sample::subsequence(&LINES[..], 0..6);
    (lines, prop::collection::vec(damage, 0..4)).prop_map(|(lines, damages)| {
        let mut text = lines.join("\n");
        for (at, length, word) in damages {
            let boundary =
                |share: f64| text.floor_char_boundary((share * text.len() as f64) as usize);
            let (from, to) = (boundary(at), boundary((at + length).min(1.0)));
            text.replace_range(from..to, word);
        }
        text
    })
}

#[test]
fn each_line_is_valid_by_itself() {
    for line in LINES {
        assert!(check_file(line), "{line}");
    }
}

#[test]
fn each_seed_of_the_fuzzer_is_accepted() {
    for (name, seed) in seeds::read("config") {
        assert!(check_input(&seed), "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_words_make_it_panic(
        words in prop::collection::vec(word(), 0..9),
        value in word(),
        key in 0..KEYS.len(),
    ) {
        let variable = (OsString::from(variable(KEYS[key].name)), OsString::from(value));
        check_words(words.iter().map(OsString::from), [variable]);
    }

    #[test]
    fn any_file_is_refused_or_shown_as_it_is(text in file()) {
        check_file(&text);
    }

    #[test]
    fn a_command_comes_through_as_it_is(command in prop::collection::vec(word(), 1..9)) {
        prop_assume!(!command[0].is_empty());
        let words = ["-np", "1", "--"].into_iter().map(str::to_owned).chain(command.clone());
        match parse(words.map(OsString::from), []) {
            Ok(Invocation::Run(request)) => prop_assert_eq!(request.settings.command, command),
            other => prop_assert!(false, "{:?}", other),
        }
    }
}
