//! Slurm commands that are missing, hang or fail give one line each. The commands are scripts.

#![allow(clippy::unwrap_used)]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    time::{Duration, Instant},
};

use elasticrun_plugin_sdk::{ErrorKind, Plugin, PluginError, from_options};
use elasticrun_plugin_slurm::Slurm;

/// Polls with this `squeue` in PATH.
fn poll(squeue: Option<&str>, deadline: Duration) -> PluginError {
    let directory = tempfile::tempdir().unwrap();
    if let Some(body) = squeue {
        let path = directory.path().join("squeue");
        fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = std::env::var_os("PATH").unwrap();
    // SAFETY: nextest runs each test in its own process, and there is no other thread yet.
    unsafe { std::env::set_var("PATH", directory.path()) };
    let mut plugin = Slurm::create(from_options(br#"{"job": "7"}"#).unwrap()).unwrap();
    let error = plugin.poll(deadline).unwrap_err();
    // SAFETY: as above.
    unsafe { std::env::set_var("PATH", path) };
    error
}

#[test]
fn a_machine_without_slurm_is_recognized() {
    let error = poll(None, Duration::from_secs(5));
    assert_eq!(error.kind, ErrorKind::Retryable);
    assert!(
        error
            .message
            .starts_with("squeue cannot be run: No such file"),
        "{error}"
    );
    assert!(error.message.ends_with("is Slurm in PATH?"), "{error}");
}

#[test]
fn a_command_that_hangs_is_killed_at_the_deadline() {
    let started = Instant::now();
    let error = poll(Some("exec /bin/sleep 60"), Duration::from_millis(200));
    assert!(
        started.elapsed() < Duration::from_secs(30),
        "it was not waited for"
    );
    assert_eq!(
        error.message,
        "squeue has not answered in time and was killed"
    );
}

#[test]
fn a_controller_that_is_away_may_come_back() {
    let why = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)";
    let error = poll(
        Some(&format!("echo '{why}' >&2; exit 1")),
        Duration::from_secs(5),
    );
    assert_eq!(
        (error.kind, error.message),
        (ErrorKind::Retryable, format!("squeue: {why}"))
    );
}

#[test]
fn an_answer_that_cannot_be_read_is_shown() {
    let error = poll(Some("echo 'n[1|RUNNING'"), Duration::from_secs(5));
    assert_eq!(
        error.message,
        r#"squeue: "n[1" is no list of hosts: a bracket is not closed; the form is node[01-03,7],login"#
    );
}
