//! Properties of the command line, over random words.

use std::ffi::OsString;

use elasticrun::{
    cli::{Invocation, parse},
    config::{KEYS, variable},
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_words_make_it_panic(
        words in prop::collection::vec(word(), 0..9),
        value in word(),
        key in 0..KEYS.len(),
    ) {
        let variable = (OsString::from(variable(KEYS[key].name)), OsString::from(value));
        match parse(words.iter().map(OsString::from), [variable]) {
            Err(error) => {
                let line = error.to_string();
                prop_assert!(!line.is_empty() && !line.contains(['\n', '\r']), "{:?}", line);
            }
            Ok(Invocation::Run(request)) => {
                let workers = request.settings.workers;
                prop_assert!(workers.min_np <= workers.np);
                prop_assert!(workers.max_np.is_none_or(|max_np| workers.np <= max_np));
                prop_assert!(!request.settings.command.is_empty());
                prop_assert!(!request.settings.hosts.sources.is_empty());
            }
            Ok(_) => {}
        }
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
