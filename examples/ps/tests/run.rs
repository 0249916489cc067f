//! The example, as its README says: processes that a script starts.

#![allow(clippy::unwrap_used, reason = "a helper of a test is a test")]

use std::{
    net::TcpListener,
    path::Path,
    process::{Command, Output},
};

fn run(servers: &str, workers: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("run.sh");
    // It is closed again at once.
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
    let port = free().unwrap().port();
    Command::new(script)
        .args([servers, workers, env!("CARGO_BIN_EXE_ps-digits")])
        .args(arguments)
        .env("DMLC_PS_ROOT_PORT", port.to_string())
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

#[test]
fn two_servers_and_two_workers_learn_to_read() {
    learns(&[]);
}

#[test]
fn elastic_servers_end_with_the_job() {
    learns(&[("PS_ELASTIC", "1"), ("PS_REPLICAS", "1")]);
}

fn learns(variables: &[(&str, &str)]) {
    let output = run("2", "2", &[], variables);
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    let line = text
        .lines()
        .find(|line| line.starts_with("accuracy "))
        .unwrap();
    let accuracy: f64 = line.split(' ').nth(1).unwrap().parse().unwrap();
    assert!(accuracy > 0.93, "{line}");
    let done = |rank: u32| format!("worker {rank}: 719 images, 20 epochs");
    assert!(text.contains(&done(0)) && text.contains(&done(1)), "{text}");
}

#[test]
fn a_wrong_variable_ends_all_with_a_line() {
    let output = run("1", "1", &[], &[("PS_DROP_MSG", "many")]);
    assert!(!output.status.success());
    let errors = String::from_utf8_lossy(&output.stderr);
    let line = "ps-digits: PS_DROP_MSG=many: expected a percentage from 0 to 99";
    assert!(errors.lines().any(|found| found == line), "{errors}");
}
