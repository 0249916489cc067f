//! Shell completions: what a real bash offers for a line, and what other shells get.

use std::{
    fs::{self, File},
    io::Read,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Command,
};

use elasticrun::config::KEYS;
use nix::pty::openpty;

use super::text;

/// Calls the function that bash calls for a line, and prints what it offers.
const CALL: &str = r#"
source "$1"
shift
COMP_WORDS=(elasticrun "$@") COMP_CWORD=$#
word=${COMP_WORDS[COMP_CWORD]}
[[ $word == [=:]* ]] && word=
_elasticrun_line elasticrun "$word" "${COMP_WORDS[COMP_CWORD - 1]}" 2>/dev/null
printf '%s\n' "${COMPREPLY[@]}"
"#;

/// A directory with the script, a data file `train.py` and a program `trainer`. No other program is on the PATH.
fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    fs::create_dir(at("bin")).expect("a directory");
    fs::write(at("bin/trainer"), "#!/bin/sh\n").expect("a file");
    fs::set_permissions(at("bin/trainer"), fs::Permissions::from_mode(0o755)).expect("a mode");
    fs::write(at("train.py"), "").expect("a file");
    fs::write(at("script"), text(&["completions", "bash"])).expect("a file");
    directory
}

fn bash(directory: &Path) -> Command {
    let mut bash = Command::new("/bin/bash");
    bash.current_dir(directory)
        .env_clear()
        .env("PATH", directory.join("bin"))
        .args(["--norc", "--noprofile"]);
    bash
}

/// What bash offers for the last word of a line. readline cuts words at `=` and `:`.
fn offered(directory: &Path, line: &str) -> Vec<String> {
    let output = bash(directory)
        .args(["-c", CALL, "bash", "script"])
        .args(line.split(' '))
        .output()
        .expect("bash runs");
    assert!(output.stderr.is_empty(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let mut words: Vec<_> = text
        .lines()
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect();
    words.sort();
    words.dedup();
    words
}

#[test]
fn bash_offers_options_subcommands_and_the_program_of_the_user() {
    let directory = directory();
    let cases: &[(&str, &[&str])] = &[
        // The first word.
        ("hos", &["hosts"]),
        ("trai", &["trainer"]),
        ("completions ", &["--help", "-h", "bash", "fish", "zsh"]),
        ("plugin new --lang ", &["c", "python", "rust"]),
        ("hosts --wat", &["--watch"]),
        ("config ", &["--help", "-h", "show"]),
        // Options and their values.
        ("-np 4 --min-", &["--min-np", "--min-num-proc"]),
        ("run -np 4 --min-", &["--min-np", "--min-num-proc"]),
        ("--hostfile hosts --min-", &["--min-np", "--min-num-proc"]),
        ("-n", &["-np"]),
        ("--restart-mode ", &["auto", "in-process", "process"]),
        ("--restart-mode = p", &["process"]),
        ("--restart-mode =", &["auto", "in-process", "process"]),
        ("--hostfile tra", &["train.py"]),
        ("-hostfile tra", &["train.py"]),
        ("--hostfile = tra", &["train.py"]),
        ("-H a : 2,b", &[]),
        // Hidden options are accepted but not offered.
        ("--gloo", &[]),
        ("--parent", &[]),
        // COMMAND.
        ("-np 4 trai", &["trainer"]),
        ("-np 4 hos", &[]),
        ("-np 4 -- trai", &["trainer"]),
        ("-np = 4 trai", &["trainer"]),
        ("-H a : 2,b : 2 trai", &["trainer"]),
        ("--blacklist-cooldown-range 1s 2s trai", &["trainer"]),
        ("--gloo-timeout-seconds 30 trai", &["trainer"]),
        ("run --quiet trai", &["trainer"]),
        // Words of COMMAND: nothing here, so that bash completes files.
        ("-np 4 trainer --min-", &[]),
        ("-np 4 trainer hosts --wat", &[]),
        ("-np 4 trainer --restart-mode ", &[]),
    ];
    for (line, expected) in cases {
        assert_eq!(offered(directory.path(), line), *expected, "{line}");
    }
}

#[test]
fn bash_offers_each_option_of_the_help() {
    let directory = directory();
    let options = offered(directory.path(), "-np 4 -");
    let help = text(&["--help"]);
    for key in KEYS {
        let option = format!("--{}", key.name);
        let shown = help.contains(&format!("{option} ")) || help.contains(&format!("{option}]"));
        assert_eq!(options.contains(&option), shown, "{option}");
    }
}

/// Types a line with a tab into an interactive bash, and returns the words that elasticrun is called with.
fn typed(directory: &Path, line: &str) -> String {
    let terminal = openpty(None, None).expect("a terminal");
    let side = || terminal.slave.try_clone().expect("a descriptor");
    let input = format!(
        "PS1=; source script; elasticrun() {{ printf 'called: %s.\\n' \"$*\"; }}\n{line}\nexit\n"
    );
    let mut child = bash(directory)
        .arg("-i")
        .env("TERM", "dumb")
        .stdin(side())
        .stdout(side())
        .stderr(side())
        .spawn()
        .expect("bash runs");
    drop(terminal.slave);
    nix::unistd::write(&terminal.master, input.as_bytes()).expect("a terminal");
    let mut output = Vec::new();
    // The terminal ends with an error when bash has closed it.
    let _ = File::from(terminal.master).read_to_end(&mut output);
    child.wait().expect("bash ends");
    let output = String::from_utf8_lossy(&output);
    let (_, called) = output
        .rsplit_once("called: ")
        .unwrap_or_else(|| panic!("not called: {output}"));
    called.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn tab_in_an_interactive_bash_completes_the_program_and_its_files() {
    let directory = directory();
    for (line, expected) in [
        ("elasticrun -np 4 traine\t", "-np 4 trainer."),
        ("elasticrun -np 4 trainer tra\t", "-np 4 trainer train.py."),
        ("elasticrun -H a:2,b:2 traine\t x", "-H a:2,b:2 trainer x."),
        (
            "elasticrun --restart-mode=pro\t x",
            "--restart-mode=process x.",
        ),
        ("elasticrun ho\t", "hosts."),
    ] {
        let called = typed(directory.path(), line);
        assert_eq!(called.replace(" .", ".").replace("  ", " "), expected);
    }
}

#[test]
fn fish_offers_the_same() {
    if Command::new("fish").arg("--version").output().is_err() {
        eprintln!("skipped: fish is not installed");
        return;
    }
    let directory = directory();
    fs::write(
        directory.path().join("script.fish"),
        text(&["completions", "fish"]),
    )
    .expect("a file");
    for (line, expected) in [
        ("-np 4 --min-", &["--min-np", "--min-num-proc"][..]),
        ("-n", &["-np"]),
        ("--gloo", &[]),
        ("--restart-mode ", &["auto", "in-process", "process"]),
        ("--blacklist-cooldown-range 1s 2s trai", &["trainer"]),
        ("-hostfile f trainer tra", &["train.py"]),
        ("completions ", &["bash", "fish", "zsh"]),
    ] {
        let bin = directory.path().join("bin");
        let script = format!(
            "set -x PATH {} $PATH; source script.fish; complete --do-complete='elasticrun {line}'",
            bin.display()
        );
        let output = Command::new("fish")
            .args(["--no-config", "-c", &script])
            .current_dir(directory.path())
            .env("HOME", directory.path())
            .output()
            .expect("fish runs");
        let text = String::from_utf8_lossy(&output.stdout);
        let mut words: Vec<_> = text
            .lines()
            .filter_map(|line| line.split('\t').next())
            .collect();
        words.sort_unstable();
        assert_eq!(words, expected, "{line}: {output:?}");
    }
}

/// The script for zsh changes the name of the generated function, so that zsh calls ours.
#[test]
fn zsh_calls_the_function_that_finds_command() {
    let script = text(&["completions", "zsh"]);
    assert!(script.starts_with("#compdef elasticrun\n"));
    assert_eq!(script.matches("_elasticrun_options() {\n").count(), 1);
    assert_eq!(script.matches("\n_elasticrun() {\n").count(), 1);
    assert_eq!(script.matches("funcstack").count(), 1);
    for name in ["@ONE@", "@TWO@", "@SUBCOMMANDS@", "@SINGLE_DASH@"] {
        assert!(!script.contains(name), "{name} is left");
    }
}
