//! Isolated plugins and all their kinds of failure. This process survives and reports each.

#![allow(clippy::unwrap_used)]

mod common;

use std::{
    fs,
    io::Write,
    path::Path,
    time::{Duration, Instant},
};

use common::*;
use elasticrun_plugin_loader::{
    Allowed, Catalog, Command, Error, FailureKind, Hash, HostProgram, Isolation, Live, Plugin,
    SearchPath, Settings,
};
use serde_json::{Value, json};
use tempfile::TempDir;

fn host() -> HostProgram {
    HostProgram {
        program: env!("CARGO_BIN_EXE_elasticrun-serve-plugin").into(),
        arguments: vec![],
    }
}

fn catalog(directory: &Path) -> Catalog {
    Catalog::new(SearchPath {
        given: vec![directory.into()],
        usual: vec![],
    })
    .isolated(host())
}

fn misbehaving() -> Plugin {
    catalog(&built()).find("misbehaving").unwrap()
}

fn c(defines: &[&str]) -> (TempDir, Plugin) {
    let (dir, _) = compiled(defines);
    let plugin = catalog(dir.path()).find("c").unwrap();
    (dir, plugin)
}

fn live(plugin: &Plugin, config: Value) -> Live {
    plugin
        .start(&options(config), PLENTY, Box::new(|| ()))
        .unwrap()
}

/// The failure of a poll. Checks that the process has ended, if the failure requires that.
fn polled(plugin: &Plugin, config: Value, deadline: Duration) -> (FailureKind, String) {
    let failure = live(plugin, config).poll(deadline).unwrap_err();
    (failure.kind, failure.message)
}

fn mode(mode: &str) -> (FailureKind, String) {
    polled(&misbehaving(), json!({"poll": mode}), PLENTY)
}

fn is_alive(process: u32) -> bool {
    // A zombie that init has not reaped has ended.
    let status = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    status
        .rsplit_once(") ")
        .is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

#[test]
fn an_isolated_plugin_gives_what_one_in_this_process_gives() {
    let isolated = catalog(&built()).find("static").unwrap();
    let here = Catalog::new(SearchPath::default()).find("static").unwrap();
    assert_eq!(
        (isolated.isolation(), here.isolation()),
        (Isolation::Process, Isolation::Thread)
    );
    assert_eq!(isolated.manifest(), here.manifest());
    let hosts = json!({"hosts": "a:4,me@[::1]"});
    let [first, second] =
        [&isolated, &here].map(|plugin| live(plugin, hosts.clone()).poll(PLENTY).unwrap());
    assert_eq!(first, second);
    let failures = [&isolated, &here].map(|plugin| {
        let options = options(json!({"hosts": "a:0"}));
        plugin.start(&options, PLENTY, Box::new(|| ())).unwrap_err()
    });
    assert_eq!(failures[0], failures[1]);
    assert!(failures[0].kind.is_fatal());
}

#[test]
fn a_plugin_that_ends_well_is_destroyed_and_leaves_nothing() {
    let dir = TempDir::new().unwrap();
    let log = dir.path().join("log");
    let mut plugin = live(&misbehaving(), json!({"log": log}));
    plugin.poll(PLENTY).unwrap();
    let process = plugin.process().unwrap();
    assert!(plugin.end());
    assert_eq!(fs::read_to_string(&log).unwrap(), "cpd");
    assert!(!is_alive(process));
}

#[test]
fn a_panic() {
    assert_eq!(
        mode("panic"),
        (FailureKind::Panicked, "panicked: told to panic".into())
    );
    assert_eq!(mode("panic_twice").0, FailureKind::Panicked);
}

#[test]
fn a_panic_in_drop() {
    for mode in ["panic", "panic_twice"] {
        let mut plugin = live(&misbehaving(), json!({"drop": mode}));
        assert_eq!(plugin.poll(PLENTY).unwrap().hosts[0].id, "fine");
        assert!(plugin.end(), "the process ends by itself all the same");
    }
}

#[test]
fn a_hang_and_a_spin() {
    for mode in ["hang", "spin"] {
        let mut plugin = live(&misbehaving(), json!({"poll": mode}));
        let process = plugin.process().unwrap();
        let failure = plugin.poll(Duration::from_millis(50)).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Hung);
        assert_eq!(
            failure.message,
            "the plugin was not back after 50ms and was killed"
        );
        assert!(!is_alive(process), "{mode}");
        assert_eq!(plugin.poll(PLENTY).unwrap_err().kind, FailureKind::Died);
    }
}

#[test]
fn a_hang_in_create_and_in_drop() {
    let started = Instant::now();
    let failure = misbehaving()
        .start(
            &options(json!({"create": "hang"})),
            Duration::from_millis(50),
            Box::new(|| ()),
        )
        .unwrap_err();
    assert_eq!(failure.kind, FailureKind::Hung);
    let plugin = live(&misbehaving(), json!({"drop": "hang"}));
    let process = plugin.process().unwrap();
    assert!(!plugin.end());
    assert!(!is_alive(process));
    assert!(started.elapsed() < PLENTY);
}

#[test]
fn a_segfault() {
    let expected = "the plugin was killed by signal 11 (SIGSEGV)";
    assert_eq!(mode("segfault"), (FailureKind::Died, expected.into()));
}

#[test]
fn an_abort() {
    let expected = "the plugin was killed by signal 6 (SIGABRT)";
    assert_eq!(mode("abort"), (FailureKind::Died, expected.into()));
}

#[test]
fn an_exit_with_zero_is_no_success() {
    let expected = "the plugin exited with code 0, which nobody asked for";
    assert_eq!(mode("exit_zero"), (FailureKind::Died, expected.into()));
}

#[test]
fn a_stack_overflow() {
    let (kind, message) = mode("stack_overflow");
    assert_eq!(kind, FailureKind::Died);
    assert!(
        message.starts_with("the plugin was killed by signal"),
        "{message}"
    );
}

#[test]
fn sixty_four_mib() {
    let (kind, message) = mode("sixty_four_mib");
    assert_eq!(kind, FailureKind::BadAnswer);
    assert!(
        message.starts_with("the plugin's answer has 6710") && message.contains("4 MiB"),
        "{message}"
    );
}

#[test]
fn invalid_utf_8() {
    let (_dir, plugin) = c(&["BAD_TEXT"]);
    assert_eq!(
        polled(&plugin, json!({"a": 1}), PLENTY),
        (
            FailureKind::BadAnswer,
            "the plugin's answer is not UTF-8".into()
        )
    );
}

#[test]
fn answers_that_break_a_rule() {
    for (define, expected) in [
        ("LARGE", "has 4194305 bytes; at most 4 MiB are allowed"),
        ("NO_DATA", "has a length but no data"),
        ("SILENT", "is not a snapshot: EOF"),
    ] {
        let (_dir, plugin) = c(&[define]);
        let (kind, message) = polled(&plugin, json!({"a": 1}), PLENTY);
        assert_eq!(kind, FailureKind::BadAnswer);
        assert!(message.contains(expected), "{message}");
    }
    assert_eq!(mode("repeated").0, FailureKind::BadAnswer);
}

#[test]
fn what_is_printed_on_stdout_is_not_the_jobs() {
    let mut plugin = live(&misbehaving(), json!({"poll": "print"}));
    assert_eq!(plugin.poll(PLENTY).unwrap().hosts[0].id, "fine");
    // The output is logged and counted, perhaps a little later than the answer.
    wait_until(|| plugin.printed() > 0, "nobody saw what was printed");
    assert_eq!(plugin.printed(), "hosts are on their way\n".len() as u64);
}

#[test]
fn descriptors_that_are_closed() {
    let mut plugin = live(&misbehaving(), json!({"poll": "close_descriptors"}));
    let process = plugin.process().unwrap();
    let failure = plugin.poll(PLENTY).unwrap_err();
    assert_eq!(
        (failure.kind, failure.message.as_str()),
        (
            FailureKind::Died,
            "the plugin closed its connection to the driver and was killed"
        )
    );
    assert!(!is_alive(process));
}

#[test]
fn a_finished_source_has_destroyed_an_idle_plugin() {
    let dir = TempDir::new().unwrap();
    let log = dir.path().join("log");
    let settings = Settings {
        interval: Duration::from_secs(3600),
        ..quick()
    };
    let source = watch(misbehaving(), json!({"log": log}), settings);
    source.next().unwrap();
    // A command is sent after the poll, so the plugin is idle once the source has sent it.
    source.running.command(Command::SelfTest);
    source.running.finish(Instant::now() + PLENTY);
    assert_eq!(fs::read_to_string(&log).unwrap(), "cptd");
}

#[test]
fn what_a_plugin_started_ends_with_it() {
    let dir = TempDir::new().unwrap();
    let gate = dir.path().join("gate");
    let config = json!({"poll": "leave_child", "gate": gate});
    assert_eq!(polled(&misbehaving(), config, PLENTY).0, FailureKind::Died);
    let child: u32 = fs::read_to_string(&gate).unwrap().parse().unwrap();
    wait_until(|| !is_alive(child), "the plugin's child lives on");
}

#[test]
fn a_wrong_abi() {
    let (dir, path) = compiled(&["MAJOR=2"]);
    let error = catalog(dir.path()).find("c").unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "{}: built for version 2.1 of the plugin interface, this is 1.1; build it with a matching SDK",
            path.display()
        )
    );
    let (dir, _) = compiled(&["UNDEFINED"]);
    let message = catalog(dir.path()).find("c").unwrap_err().to_string();
    assert!(message.contains("nobody_has_this"), "{message}");
}

#[test]
fn not_a_library() {
    let (dir, path) = written("static", b"#!/bin/sh\necho a\n");
    let error = catalog(dir.path()).find("static").unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("{}: not a dynamic library", path.display())
    );
}

#[test]
fn overwritten_while_it_is_loaded() {
    let (dir, path) = copied("static");
    let plugin = catalog(dir.path()).find("static").unwrap();
    let mut one = live(&plugin, json!({"hosts": "a"}));
    let length = fs::metadata(&path).unwrap().len() as usize;
    let mut file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all(&vec![0xcc; length]).unwrap();
    file.set_len(1000).unwrap();
    assert_eq!(one.poll(PLENTY).unwrap().hosts[0].id, "a");
    // A later instance also runs the checked image.
    fs::remove_file(&path).unwrap();
    let mut other = live(&plugin, json!({"hosts": "b"}));
    assert_eq!(other.poll(PLENTY).unwrap().hosts[0].id, "b");
}

#[test]
fn only_plugins_on_the_list_may_run() {
    let hash = Hash::digest(&fs::read(built().join(file_of("static"))).unwrap());
    let allowed = |name: &str, hash: Hash| Allowed {
        name: name.into(),
        hash,
    };
    let find = |list: Vec<Allowed>, name: &str| catalog(&built()).allow(list).find(name);
    find(vec![allowed("static", hash)], "static").unwrap();
    for list in [
        vec![allowed("static", Hash::digest(b"other"))],
        vec![allowed("misbehaving", hash)],
    ] {
        let error = find(list, "static").unwrap_err();
        assert!(matches!(error, Error::NotAllowed { .. }));
        let expected = format!("which needs static={hash} for it");
        assert!(error.to_string().ends_with(&expected), "{error}");
    }
    // A linked-in plugin needs no permission.
    let mut linked = Catalog::default().allow(vec![allowed("a", hash)]);
    linked.find("script").unwrap();
}

#[test]
fn a_plugin_sees_only_the_variables_that_its_manifest_names() {
    // Cargo sets the first for tests. No plugin needs it.
    assert!(std::env::var("CARGO_MANIFEST_DIR").is_ok());
    let seen = |name: &str| {
        let mut plugin = live(&misbehaving(), json!({"variable": name}));
        plugin.poll(PLENTY).unwrap().hosts[0].id.clone()
    };
    assert_eq!(seen("CARGO_MANIFEST_DIR"), "fine");
    // PATH may have white space, which is invalid in a host's id. Then the answer is refused.
    let mut plugin = live(&misbehaving(), json!({"variable": "PATH"}));
    match plugin.poll(PLENTY) {
        Ok(snapshot) => assert_ne!(snapshot.hosts[0].id, "fine"),
        Err(failure) => assert_eq!(failure.kind, FailureKind::BadAnswer),
    }
}

#[test]
fn commands_arrive_and_their_failures_come_back() {
    let dir = TempDir::new().unwrap();
    let log = dir.path().join("log");
    let mut plugin = live(&misbehaving(), json!({"log": log, "command": "auth"}));
    let failure = plugin.command(&Command::SelfTest, PLENTY).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Auth);
    let drained = Command::Drained { host: "a".into() };
    plugin.command(&drained, PLENTY).unwrap_err();
    assert_eq!(fs::read_to_string(&log).unwrap(), "ctm");
}

#[test]
fn a_plugin_that_dies_is_one_failure_and_is_started_again() {
    let dir = TempDir::new().unwrap();
    let (gate, log) = (dir.path().join("gate"), dir.path().join("log"));
    let config = json!({"poll": "abort", "log": log, "gate": gate});
    let source = watch(misbehaving(), config, quick());
    for _ in 0..3 {
        assert_eq!(source.next().unwrap_err().kind, FailureKind::Died);
    }
    assert!(fs::read_to_string(&log).unwrap().starts_with("cpcpcp"));
}

#[test]
fn a_death_between_two_polls_is_noticed_at_once() {
    let settings = Settings {
        interval: Duration::from_secs(3600),
        backoff: quick().backoff,
        ..quick()
    };
    let dir = TempDir::new().unwrap();
    let log = dir.path().join("log");
    // Commands run between polls.
    let source = watch(
        misbehaving(),
        json!({"command": "segfault", "log": log}),
        settings,
    );
    assert_eq!(source.ids(), ["fine"]);
    source
        .running
        .command(Command::Drained { host: "a".into() });
    wait_until(
        || fs::read_to_string(&log).unwrap().ends_with('m'),
        "the command does not arrive",
    );
    assert_eq!(source.ids(), ["fine"], "it is started again and asked");
}

#[test]
fn a_plugin_that_pushes_is_asked_at_once() {
    let dir = TempDir::new().unwrap();
    let watched = dir.path().join("watched");
    fs::write(&watched, "one").unwrap();
    let settings = Settings {
        interval: Duration::from_secs(3600),
        ..quick()
    };
    let config = json!({"watched": watched});
    let here = Catalog::new(SearchPath {
        given: vec![built()],
        usual: vec![],
    })
    .find("misbehaving")
    .unwrap();
    for plugin in [misbehaving(), here] {
        fs::write(&watched, "one").unwrap();
        let source = watch(plugin, config.clone(), settings);
        assert_eq!(source.ids(), ["one"]);
        fs::write(dir.path().join("new"), "two").unwrap();
        fs::rename(dir.path().join("new"), &watched).unwrap();
        assert_eq!(source.ids(), ["two"]);
    }
}

#[test]
fn a_plugin_dies_with_its_source() {
    let dir = TempDir::new().unwrap();
    let log = dir.path().join("log");
    let source = watch(misbehaving(), json!({"log": log}), quick());
    source.next().unwrap();
    source.running.stop();
    wait_until(
        || fs::read_to_string(&log).unwrap().ends_with('d'),
        "the plugin is not destroyed",
    );
}

#[test]
fn the_host_program_says_that_it_is_no_command_for_people() {
    let output = std::process::Command::new(host().program)
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("is started by elasticrun itself"), "{said}");
}
