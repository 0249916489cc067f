//! The exact output of `--help`, `config show` and `--dry-run`.

use super::{elasticrun, text};

fn printed(words: &[&str]) -> String {
    let output = elasticrun(words);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{words:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.stderr.is_empty());
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn help() {
    insta::assert_snapshot!(printed(&["--help"]));
    assert_eq!(printed(&["-h"]), printed(&["run", "--help"]));
}

#[test]
fn agent_help() {
    insta::assert_snapshot!(printed(&["agent", "--help"]));
}

#[test]
fn subcommands_name_themselves_and_only_options_that_they_read() {
    let help = printed(&["plugin", "new", "--help"]);
    assert!(
        help.contains("\nUsage: elasticrun plugin new [OPTIONS] --lang <LANGUAGE> <NAME>\n"),
        "{help}"
    );
    for words in [&["hosts", "--help"][..], &["config", "show", "--help"]] {
        let help = printed(words);
        assert!(help.contains("--discovery <"), "{help}");
        for option in ["--dry-run", "--check-build", "--version"] {
            assert!(!help.contains(option), "{option}: {help}");
        }
    }
}

#[test]
fn man_page() {
    let page = printed(&["man"]);
    insta::assert_snapshot!(page.replace(env!("CARGO_PKG_VERSION"), "VERSION"));
}

#[test]
fn version() {
    let version = format!("elasticrun {}\n", env!("CARGO_PKG_VERSION"));
    for words in [["--version"], ["-v"], ["-V"]] {
        assert_eq!(printed(&words), version);
    }
}

#[test]
fn build() {
    insta::assert_snapshot!(printed(&["-cb"]));
}

#[test]
fn config_show() {
    insta::assert_snapshot!(printed(&[
        "config",
        "show",
        "-np",
        "4",
        "-H",
        "a:2,[::1]:2",
        "--ssh-option",
        "User=x",
        "--ssh-option",
        "Port=2",
        "--quiet",
        "--start-timeout",
        "90",
    ]));
}

#[test]
fn dry_run_of_fixed_hosts() {
    insta::assert_snapshot!(printed(&[
        "--dry-run",
        "-np",
        "4",
        "--max-np",
        "5",
        "--spares",
        "1",
        "-H",
        "localhost:4,192.0.2.7:2",
        "--tcp",
        "python",
        "train.py",
        "--name",
        "it's",
    ]));
}

#[test]
fn dry_run_of_hosts_that_are_discovered() {
    insta::assert_snapshot!(text(&[
        "--dry-run",
        "-np",
        "4",
        "-H",
        "localhost:4",
        "--discovery",
        "asg:name=gpus",
        "--launcher",
        "agent",
        "--print-join-token",
        "true",
    ]));
}

#[test]
fn dry_run_of_slots_of_spark() {
    insta::assert_snapshot!(text(&[
        "--dry-run",
        "--spark",
        "spark://head:7077",
        "-np",
        "2",
        "--max-np",
        "8",
        "train",
    ]));
}

#[test]
fn dry_run_of_slots_of_spark_without_a_bound() {
    let words = ["--dry-run", "--spark", "yarn", "-np", "2", "train"];
    insta::assert_snapshot!(text(&words));
}

#[test]
fn dry_run_of_slots_that_are_found_on_the_hosts() {
    insta::assert_snapshot!(text(&[
        "--dry-run",
        "-np",
        "2",
        "-H",
        "localhost,192.0.2.7",
        "--reset-limit",
        "3",
        "true"
    ]));
}

#[test]
fn help_is_a_word_as_well() {
    assert_eq!(text(&["help"]), text(&["--help"]));
    for name in ["agent", "drain", "hosts", "plugin", "run"] {
        assert_eq!(text(&["help", name]), text(&[name, "--help"]), "{name}");
    }
}
