//! The conformance suite: bundled plugins pass, and each check finds its violation.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;

use common::*;
use elasticrun_plugin_loader::{Catalog, HostProgram, Isolation, SearchPath, conformance};
use serde_json::{Value, json};
use tempfile::TempDir;

fn isolated() -> Catalog {
    Catalog::new(SearchPath {
        given: vec![built()],
        usual: vec![],
    })
    .isolated(HostProgram {
        program: env!("CARGO_BIN_EXE_elasticrun-serve-plugin").into(),
        arguments: vec![],
    })
}

/// Names and details of the failed checks, of all nine.
fn failed(mut catalog: Catalog, name: &str, config: Value) -> Vec<(&'static str, String)> {
    let plugin = catalog.find(name).unwrap();
    let mut seen = 0;
    let checks = conformance::check(&plugin, &options(config), |_| seen += 1);
    assert_eq!((checks.len(), seen), (9, 9));
    let failed = checks.into_iter().filter(|check| !check.passed);
    failed.map(|check| (check.name, check.detail)).collect()
}

#[test]
fn bundled_plugins_keep_all_rules() {
    let dir = TempDir::new().unwrap();
    let (list, script) = (dir.path().join("list"), dir.path().join("hosts.sh"));
    fs::write(&list, "a:4\nb\n").unwrap();
    fs::write(&script, "#!/bin/sh\necho localhost:2\n").unwrap();
    chmod(&script, 0o755);
    for (name, config) in [
        ("static", json!({"hosts": "a:4,b"})),
        ("file", json!({"path": list})),
        ("script", json!({"path": script})),
    ] {
        for catalog in [isolated(), Catalog::default()] {
            assert_eq!(failed(catalog, name, config.clone()), [], "{name}");
        }
    }
    let linked = Catalog::default().find("static").unwrap();
    assert_eq!(linked.isolation(), Isolation::Thread);
}

#[test]
fn each_violation_is_found() {
    let of = |config: Value| failed(isolated(), "misbehaving", config);
    assert_eq!(of(json!({})), []);
    assert_eq!(
        of(json!({"poll": "print"})),
        [(
            "stdout",
            "23 bytes were printed to standard output; write to standard error or to the log"
                .into()
        )]
    );
    assert_eq!(
        of(json!({"command": "auth"})),
        [("self-test", "no access: told to have no access".into())]
    );
    let hangs = "it did not end within 2 s of being destroyed before its first poll";
    assert_eq!(of(json!({"drop": "hang"})), [("cancel", hangs.into())]);
    let polled = ["poll", "stable-ids", "short-deadline", "cancel", "stdout"];
    for (mode, expected) in [
        ("panic", "panicked: told to panic"),
        ("segfault", "signal 11 (SIGSEGV)"),
        ("abort", "signal 6 (SIGABRT)"),
        ("exit_zero", "exited with code 0"),
        ("stack_overflow", "was killed by signal"),
        ("sixty_four_mib", "at most 4 MiB are allowed"),
        ("repeated", "ids must be unique"),
        ("close_descriptors", "closed its connection"),
    ] {
        let failed = of(json!({"poll": mode}));
        let names: Vec<_> = failed.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, polled, "{mode}");
        // With a deadline of 1 ms, some plugins are killed before they misbehave.
        assert!(failed[0].1.contains(expected), "{failed:?}");
    }
}

#[test]
fn ids_that_change_are_found() {
    let dir = TempDir::new().unwrap();
    let script = dir.path().join("hosts.sh");
    let count = dir.path().join("count");
    let body = format!(
        "#!/bin/sh\necho x >> '{0}'\necho host-$(wc -l < '{0}')\n",
        count.display()
    );
    fs::write(&script, body).unwrap();
    chmod(&script, 0o755);
    let failed = failed(isolated(), "script", json!({"path": script}));
    let names: Vec<_> = failed.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["stable-ids"]);
    assert!(
        failed[0]
            .1
            .contains("must be the same as long as the host is")
    );
}

#[test]
fn options_that_do_not_match_the_schema_are_found() {
    let failed = failed(isolated(), "script", json!({}));
    let schema = failed.iter().find(|(name, _)| *name == "schema").unwrap();
    assert_eq!(
        schema.1,
        "the option path is required; test it with :path=..."
    );
}
