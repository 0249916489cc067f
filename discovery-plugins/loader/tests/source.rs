//! Sources that poll real plugins, well-behaved and misbehaving ones.

#![allow(clippy::unwrap_used)]

mod common;

use std::{
    fs,
    path::Path,
    sync::mpsc::{RecvTimeoutError, channel},
    time::{Duration, Instant},
};

use common::*;
use elasticrun_plugin_loader::{Backoff, Command, FailureKind, Library, Settings, Source, Spec};
use serde_json::{Value, json};
use tempfile::TempDir;

fn calls(log: &Path) -> String {
    fs::read_to_string(log).unwrap_or_default()
}

#[test]
fn every_poll_is_an_update() {
    let dir = TempDir::new().unwrap();
    let log = dir.path().join("log");
    let started = Instant::now();
    let source = watch(bundled("misbehaving"), json!({"log": log}), quick());
    for _ in 0..5 {
        assert_eq!(source.ids(), ["fine"]);
    }
    assert!(started.elapsed() >= 4 * quick().interval);
    assert!(calls(&log).starts_with("cppppp"));
}

#[test]
fn a_plugin_may_ask_for_another_pace() {
    let settings = Settings {
        interval: Duration::from_secs(3600),
        ..quick()
    };
    let source = watch(
        bundled("misbehaving"),
        json!({"next_poll_ms": "20"}),
        settings,
    );
    for _ in 0..3 {
        assert_eq!(source.ids(), ["fine"]);
    }
}

#[test]
fn a_stopped_source_destroys_its_plugin_and_sends_no_update() {
    let dir = TempDir::new().unwrap();
    let log = dir.path().join("log");
    let source = watch(bundled("misbehaving"), json!({"log": log}), quick());
    source.next().unwrap();
    source.running.stop();
    // Both threads end, and drop the sender of updates.
    wait_until(
        || {
            matches!(
                source.updates.try_recv(),
                Err(std::sync::mpsc::TryRecvError::Disconnected)
            )
        },
        "the source goes on",
    );
    wait_until(|| calls(&log).ends_with('d'), "the plugin is not destroyed");
    assert_eq!(calls(&log).matches(['c', 'd']).collect::<String>(), "cd");
}

#[test]
fn a_finished_source_has_sent_all_commands() {
    let dir = TempDir::new().unwrap();
    let (gate, log) = (dir.path().join("gate"), dir.path().join("log"));
    let config = json!({"poll": "gate", "gate": gate, "log": log});
    let source = watch(bundled("misbehaving"), config, quick());
    wait_until(|| calls(&log) == "cp", "it is not polled");
    let drained = || Command::Drained { host: "a".into() };
    source.running.command(drained());
    source.running.command(drained());
    // The plugin is busy with a poll, which returns only now.
    fs::write(&gate, "").unwrap();
    source.running.finish(Instant::now() + PLENTY);
    assert!(calls(&log).starts_with("cpmm"), "{}", calls(&log));
}

#[test]
fn a_source_finishes_at_its_deadline() {
    let config = json!({"command": "hang"});
    let source = watch(bundled("misbehaving"), config, quick());
    source.next().unwrap();
    source.running.command(Command::SelfTest);
    let (began, patience) = (Instant::now(), 50 * MILLISECOND);
    source.running.finish(began + patience);
    assert!((patience..PLENTY).contains(&began.elapsed()));
    // A plugin without pending commands is not waited for.
    let source = watch(bundled("misbehaving"), json!({"poll": "hang"}), quick());
    let began = Instant::now();
    source.running.finish(began + PLENTY);
    assert!(began.elapsed() < PLENTY / 2, "{:?}", began.elapsed());
}

#[test]
fn a_hanging_poll_is_one_failure_and_then_its_result() {
    let dir = TempDir::new().unwrap();
    let (gate, log) = (dir.path().join("gate"), dir.path().join("log"));
    // Its later polls must return within it, also on a busy machine.
    let settings = Settings {
        deadline: 2000 * MILLISECOND,
        ..quick()
    };
    let config = json!({"poll": "gate", "gate": gate, "log": log});
    let source = watch(bundled("misbehaving"), config, settings);
    assert_eq!(
        source.failure(),
        (FailureKind::Hung, "the plugin is not back after 2s".into())
    );
    // There is no further update and no further call until it returns.
    let quiet = source.updates.recv_timeout(Duration::from_secs(2));
    assert!(matches!(quiet, Err(RecvTimeoutError::Timeout)), "{quiet:?}");
    assert_eq!(calls(&log), "cp");
    fs::write(&gate, "").unwrap();
    assert_eq!(source.ids(), ["fine"]);
    assert_eq!(source.ids(), ["fine"]);
}

#[test]
fn a_plugin_that_hangs_forever_blocks_no_other_thread() {
    let settings = Settings {
        deadline: 50 * MILLISECOND,
        ..quick()
    };
    for call in ["create", "poll", "drop"] {
        let source = watch(bundled("misbehaving"), json!({call: "hang"}), settings);
        if call == "drop" {
            source.next().unwrap();
        } else {
            assert_eq!(source.failure().0, FailureKind::Hung);
        }
        source.running.stop();
        wait_until(
            || {
                matches!(
                    source.updates.try_recv(),
                    Err(std::sync::mpsc::TryRecvError::Disconnected)
                )
            },
            "the poll timer does not end",
        );
    }
}

#[test]
fn after_a_panic_there_is_a_new_instance() {
    let dir = TempDir::new().unwrap();
    let log = dir.path().join("log");
    let config = json!({"poll": "panic", "drop": "panic_twice", "log": log});
    let source = watch(bundled("misbehaving"), config, quick());
    for _ in 0..3 {
        assert_eq!(
            source.failure(),
            (FailureKind::Panicked, "panicked: told to panic".into())
        );
    }
    assert!(calls(&log).starts_with("cpdcpdcp"), "{}", calls(&log));
}

#[test]
fn a_failed_create_is_retried() {
    let dir = TempDir::new().unwrap();
    let log = dir.path().join("log");
    let source = watch(
        bundled("misbehaving"),
        json!({"create": "auth", "log": log}),
        quick(),
    );
    for _ in 0..3 {
        assert_eq!(
            source.failure(),
            (FailureKind::Auth, "told to have no access".into())
        );
    }
    assert!(calls(&log).starts_with("ccc"));
}

#[test]
fn pauses_after_failures_use_the_given_random_numbers() {
    let (sender, updates) = channel();
    let backoff = Backoff {
        first: 100 * MILLISECOND,
        max: 400 * MILLISECOND,
    };
    let _running = Source::new(
        "mine",
        bundled("misbehaving"),
        options(json!({"poll": "retryable"})),
    )
    .settings(Settings { backoff, ..quick() })
    .random(Box::new(|| u64::MAX))
    .start(Box::new(move |update| {
        let _ = sender.send(update);
    }))
    .unwrap();
    let times: Vec<_> = (0..4)
        .map(|_| updates.recv_timeout(PLENTY).unwrap().at)
        .collect();
    for (pair, limit) in times.windows(2).zip([100, 200, 400]) {
        assert!(
            pair[1] - pair[0] >= limit * MILLISECOND,
            "{:?}",
            pair[1] - pair[0]
        );
    }
}

#[test]
fn hosts_of_a_script_are_followed() {
    let dir = TempDir::new().unwrap();
    let (script, list) = (dir.path().join("hosts.sh"), dir.path().join("list"));
    fs::write(&script, format!("#!/bin/sh\ncat {}\n", list.display())).unwrap();
    chmod(&script, 0o755);
    let write = |content: &str| {
        let new = dir.path().join("new");
        fs::write(&new, content).unwrap();
        fs::rename(&new, &list).unwrap();
    };
    write("localhost:2\n");
    let spec: Spec = format!("script:path={}", script.display()).parse().unwrap();
    for library in [bundled("script"), Library::linked("script").unwrap()] {
        write("localhost:2\n");
        let source = watch(library, Value::Object(spec.options.clone()), quick());
        assert_eq!(source.ids(), ["localhost"]);
        write("localhost:2\n127.0.0.1:2\n");
        wait_until(
            || source.ids() == ["localhost", "127.0.0.1"],
            "the new host is not seen",
        );
        write("");
        wait_until(|| source.ids().is_empty(), "the empty list is not seen");
        write("localhost:two\n");
        let mut failure = None;
        wait_until(
            || {
                failure = source.next().err();
                failure.is_some()
            },
            "the slip is not seen",
        );
        let failure = failure.unwrap();
        assert_eq!(failure.kind, FailureKind::Retryable);
        assert!(
            failure
                .message
                .contains("printed: line 1, \"localhost:two\""),
            "{failure}"
        );
    }
}

#[test]
fn a_script_that_fails_at_first_is_fatal_and_one_that_hangs_is_not() {
    let dir = TempDir::new().unwrap();
    let script = dir.path().join("hosts.sh");
    fs::write(&script, "#!/bin/sh\nexit 3\n").unwrap();
    chmod(&script, 0o755);
    let library = Library::linked("script").unwrap();
    let source = watch(library.clone(), json!({"path": script}), quick());
    let (kind, message) = source.failure();
    assert!(
        kind.is_fatal() && message.ends_with("ended with exit code 3"),
        "{message}"
    );

    fs::write(&script, "#!/bin/sh\nsleep 1000\n").unwrap();
    let settings = Settings {
        deadline: 200 * MILLISECOND,
        ..quick()
    };
    let source = watch(library, json!({"path": script}), settings);
    let (kind, message) = source.failure();
    assert_eq!(kind, FailureKind::Retryable);
    assert!(message.contains("did not end within"), "{message}");
}
