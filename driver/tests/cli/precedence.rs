//! defaults < file < environment < flags, and the origin of each value.

use std::fs;

use elasticrun::{
    cli::Invocation,
    config::{Config, Origin},
};

use super::{text, with};

fn config(words: &[&str], environment: &[(&str, &str)]) -> Config {
    match with(words, environment) {
        Ok(Invocation::Run(request)) => request.config,
        other => panic!("{words:?} is no job: {other:?}"),
    }
}

#[test]
fn the_nearer_source_wins() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("job.toml");
    fs::write(
        &file,
        "np = 4\nmin-np = 1\nspares = 0\nstart-timeout = 90\n",
    )
    .expect("a file");
    let path = file.to_str().expect("UTF-8");
    let config = config(
        &["--config", path, "--min-np", "3", "true"],
        &[
            ("ELASTICRUN_MIN_NP", "2"),
            ("ELASTICRUN_START_TIMEOUT", "2m"),
            ("ELASTICRUN_SPARES", ""),
        ],
    );
    assert_eq!(config.min_np.origin, Origin::Flag("--min-np".to_owned()));
    assert_eq!(config.min_np.value.map(u32::from), Some(3));
    assert_eq!(
        config.start_timeout.origin,
        Origin::Environment("ELASTICRUN_START_TIMEOUT".to_owned())
    );
    assert_eq!(config.start_timeout.value.get().as_secs(), 120);
    assert_eq!(
        config.np.origin,
        Origin::File {
            path: file.clone(),
            line: 1
        }
    );
    assert_eq!(
        config.spares.origin,
        Origin::File {
            path: file.clone(),
            line: 3
        }
    );
    assert_eq!(config.max_np.origin, Origin::Default);
}

#[test]
fn the_file_may_be_named_by_the_environment_and_the_flag_wins() {
    let directory = tempfile::tempdir().expect("a directory");
    let [one, two] = ["one.toml", "two.toml"].map(|name| directory.path().join(name));
    fs::write(&one, "np = 1\n").expect("a file");
    fs::write(&two, "np = 2\n").expect("a file");
    let variable = [("ELASTICRUN_CONFIG", one.to_str().expect("UTF-8"))];
    assert_eq!(
        config(&["true"], &variable).np.value.map(u32::from),
        Some(1)
    );
    let flag = ["--config", two.to_str().expect("UTF-8"), "true"];
    assert_eq!(config(&flag, &variable).np.value.map(u32::from), Some(2));
}

#[test]
fn variables_of_a_worker_are_no_settings() {
    let of_a_worker = [
        ("ELASTICRUN_RUN_ID", "x"),
        ("ELASTICRUN_AGENT_SOCKET", "/run/x"),
        ("ELASTICRUN_GENERATION", "7"),
        ("ELASTICRUN_PLUGIN_PATH", "/x"),
        ("HOROVOD_RANK", "3"),
    ];
    let rows = config(&["-np", "1", "true"], &of_a_worker).rows();
    let given: Vec<_> = rows
        .iter()
        .filter(|row| row.origin != Origin::Default)
        .map(|row| row.key)
        .collect();
    assert_eq!(given, ["np"]);
}

#[test]
fn what_config_show_prints_is_a_file_that_says_the_same() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("shown.toml");
    let shown = text(&[
        "config",
        "show",
        "-np",
        "4",
        "--min-np",
        "2",
        "-H",
        "me@a:2,[::1]:2",
        "--discovery",
        r"x:a=1\,2,b=",
        "--discovery",
        "y",
        "--blacklist-cooldown-range",
        "0",
        "1.5h",
        "--network-interface",
        "eth0,ib0",
        "--last-call",
        "0",
        "--listen",
        "[::]:7070",
        "--log-level",
        "WARNING",
        "--ssh-option",
        "ProxyCommand=ssh -W \"%h:%p\" j",
        "--push-binary",
        "--slots",
        "3",
        "--failure-domain",
        "slot",
    ]);
    fs::write(&file, &shown).expect("a file");
    let again = text(&["config", "show", "--config", file.to_str().expect("UTF-8")]);
    let values = |text: &str| -> Vec<String> {
        text.lines()
            .map(|line| {
                line.split("  # ")
                    .next()
                    .unwrap_or_default()
                    .trim_end()
                    .to_owned()
            })
            .collect()
    };
    assert_eq!(values(&again), values(&shown));
    assert!(
        shown.contains("network-interface = [\"eth0\", \"ib0\"]"),
        "{shown}"
    );
}
