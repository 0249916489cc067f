//! Real libraries: those of the bundled plugins, one in C that is compiled here, and invalid files.

#![allow(clippy::unwrap_used)]

mod common;

use std::{fs, io::Write, os::unix::fs::symlink, time::Duration};

use common::*;
use elasticrun_plugin_loader::{Catalog, Command, Error, FailureKind, Library, Origin, SearchPath};
use serde_json::json;

#[test]
fn bundled_plugins_are_the_same_linked_in_and_loaded() {
    let loaded = bundled("static");
    let linked = Library::linked("static").unwrap();
    assert_eq!(loaded.manifest(), linked.manifest());
    assert_eq!(loaded.manifest().name, "static");
    assert_eq!(linked.origin(), &Origin::Linked);
    assert_eq!(
        loaded.origin(),
        &Origin::File(built().join(file_of("static")))
    );
    let hosts = json!({"hosts": "a:4,me@[::1]"});
    let [first, second] =
        [&loaded, &linked].map(|library| instance(library, hosts.clone()).poll(PLENTY).unwrap());
    assert_eq!(first, second);
    assert_eq!(first.hosts[1].user.as_deref(), Some("me"));
    for library in [loaded, linked] {
        let failure = library
            .create(&options(json!({"hosts": "a:0"})))
            .unwrap_err();
        assert_eq!(failure.kind, FailureKind::BadConfig);
        assert!(failure.kind.is_fatal());
        assert_eq!(
            failure.message,
            r#"hosts: host 1, "a:0": slots must be a number from 1 to 1024"#
        );
        let failure = library.create(&options(json!({"host": "a"}))).unwrap_err();
        assert!(
            failure.message.starts_with("unknown field `host`"),
            "{failure}"
        );
    }
}

#[test]
fn several_libraries_are_not_taken_for_one_another() {
    let (_dir, c) = compiled(&[]);
    let libraries = [
        bundled("script"),
        bundled("static"),
        Library::open(&c).unwrap(),
    ];
    let names = libraries
        .each_ref()
        .map(|library| library.manifest().name.as_str());
    assert_eq!(names, ["script", "static", "c"]);
}

#[test]
fn given_directories_come_before_what_is_linked_in_and_usual_ones_after() {
    let (dir, path) = copied("static");
    let dir = dir.path().to_owned();
    let mut given = Catalog::new(SearchPath {
        given: vec![dir.clone()],
        usual: vec![],
    });
    assert_eq!(given.find("static").unwrap().origin(), Origin::File(path));
    assert_eq!(given.find("script").unwrap().origin(), Origin::Linked);
    let mut usual = Catalog::new(SearchPath {
        given: vec![],
        usual: vec![dir],
    });
    assert_eq!(usual.find("static").unwrap().origin(), Origin::Linked);

    let (directory, path) = copied("misbehaving");
    let path_of_search = SearchPath {
        given: vec![],
        usual: vec!["/does/not/exist".into(), directory.path().into()],
    };
    let mut usual = Catalog::new(path_of_search);
    assert_eq!(
        usual.find("misbehaving").unwrap().origin(),
        Origin::File(path.clone())
    );
    // The catalog caches it.
    fs::remove_file(&path).unwrap();
    assert_eq!(
        usual.find("misbehaving").unwrap().origin(),
        Origin::File(path)
    );
}

#[test]
fn an_unknown_name_gives_the_searched_directories() {
    let path = SearchPath {
        given: vec!["/a".into()],
        usual: vec!["/b".into()],
    };
    let error = Catalog::new(path).find("aws-asg").unwrap_err();
    assert_eq!(
        error.to_string(),
        "no discovery plugin \"aws-asg\": linked in are file, script, static; no \
         libelasticrun_plugin_aws_asg.so and no elasticrun-plugin-aws-asg in /a, /b. Give its directory with \
         --plugin-dir"
    );
}

#[test]
fn an_unusable_plugin_is_not_skipped() {
    let (dir, path) = written("static", b"not a library");
    let mut catalog = Catalog::new(SearchPath {
        given: vec![dir.path().into()],
        usual: vec![],
    });
    assert!(matches!(
        catalog.find("static"),
        Err(Error::BadImage { .. })
    ));
    fs::remove_file(&path).unwrap();
    symlink("/does/not/exist", &path).unwrap();
    assert!(matches!(catalog.find("static"), Err(Error::Io { .. })));
}

#[test]
fn files_that_are_no_library_are_refused_before_they_are_loaded() {
    let image = fs::read(built().join(file_of("static"))).unwrap();
    let check = |content: &[u8], expected: &str| {
        let (_dir, path) = written("static", content);
        assert_eq!(refused(&path), expected);
    };
    check(b"", "not a dynamic library");
    check(b"#!/bin/sh\necho a\n", "not a dynamic library");
    for length in [10, 100, 4096, image.len() / 2] {
        check(
            &image[..length],
            "a part of the library is missing; was it being copied?",
        )
    }
    let mut other = image.clone();
    other[18] = 0xf3;
    check(
        &other,
        "a dynamic library for another machine (ELF machine 243)",
    );
    let mut object = image;
    object[16] = 1;
    check(&object, "an ELF file, but not a dynamic library");

    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join(file_of("static"));
    fs::create_dir(&path).unwrap();
    assert_eq!(refused(&path), "not a file");
    let pipe = dir.path().join(file_of("pipe"));
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert_eq!(refused(&pipe), "not a file");
    let missing = dir.path().join(file_of("missing"));
    assert_eq!(
        refused(&missing),
        "cannot be read: No such file or directory (os error 2)"
    );
    let odd = dir.path().join("plugin.so");
    assert_eq!(
        refused(&odd),
        "the file of a plugin is named libelasticrun_plugin_NAME.so"
    );
}

#[test]
fn world_writable_files_are_refused() {
    let (dir, path) = copied("static");
    chmod(&path, 0o666);
    assert_eq!(
        refused(&path),
        "everyone may write to it; try chmod o-w on it, or move the plugin"
    );
    chmod(&path, 0o644);
    chmod(dir.path(), 0o777);
    assert!(matches!(error_of(&path), Error::WorldWritable { path } if path == dir.path()));
    // In a sticky directory like /tmp, other users cannot replace the file.
    chmod(dir.path(), 0o1777);
    Library::open(&path).unwrap();
}

#[test]
fn a_file_that_is_overwritten_while_it_is_loaded_changes_nothing() {
    let (_dir, path) = copied("static");
    let library = Library::open(&path).unwrap();
    let mut one = instance(&library, json!({"hosts": "a"}));
    let length = fs::metadata(&path).unwrap().len() as usize;
    let mut file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all(&vec![0xcc; length]).unwrap();
    file.set_len(1000).unwrap();
    assert_eq!(one.poll(PLENTY).unwrap().hosts[0].id, "a");
    fs::remove_file(&path).unwrap();
    let mut other = instance(&library, json!({"hosts": "b"}));
    assert_eq!(other.poll(PLENTY).unwrap().hosts[0].id, "b");
    drop(one);
    assert_eq!(
        library.create(&options(json!({}))).unwrap_err().kind,
        FailureKind::BadConfig
    );
}

#[test]
fn a_plugin_in_c_works_and_gets_its_buffers_back() {
    let (_dir, path) = compiled(&[]);
    let library = Library::open(&path).unwrap();
    assert_eq!(library.manifest().version, "0.1");
    let failure = library.create(&options(json!({}))).unwrap_err();
    assert_eq!(
        (failure.kind, failure.message.as_str()),
        (FailureKind::BadConfig, "no options")
    );
    let mut plugin = instance(&library, json!({"a": "b"}));
    for _ in 0..3 {
        let snapshot = plugin.poll(Duration::from_millis(1500)).unwrap();
        assert!(!snapshot.complete);
        assert_eq!(snapshot.hosts[0].labels["deadline"], "1500");
        assert_eq!(snapshot.hosts[0].labels["made"], "0");
    }
}

#[test]
fn a_later_minor_version_is_understood() {
    let (_dir, path) = compiled(&["LATER", "MINOR=7", "SIZE=sizeof(struct later)", "FLAGS=7"]);
    let library = Library::open(&path).unwrap();
    assert_eq!(
        instance(&library, json!({"a": 1}))
            .poll(PLENTY)
            .unwrap()
            .hosts[0]
            .id,
        "c-1"
    );
}

#[test]
fn a_table_of_the_first_form_still_loads() {
    let (_dir, path) = compiled(&["MINOR=0", "SIZE=72", "FLAGS=3"]);
    let library = Library::open(&path).unwrap();
    let mut plugin = instance(&library, json!({"a": 1}));
    assert_eq!(plugin.poll(PLENTY).unwrap().hosts[0].id, "c-1");
    // Version 1.0 did not define the flag, and the bytes after the table are not part of it.
    assert!(!plugin.watches());
    plugin.command(&Command::SelfTest, PLENTY).unwrap();
}

#[test]
fn a_plugin_in_c_pushes_and_takes_commands() {
    let (_dir, path) = compiled(&["FLAGS=7"]);
    let library = Library::open(&path).unwrap();
    let mut plugin = instance(&library, json!({"a": 1}));
    assert!(plugin.watches());
    let (sender, signals) = std::sync::mpsc::channel();
    plugin
        .watch(Box::new(move || sender.send(()).unwrap()))
        .unwrap();
    let drained = Command::Drained { host: "i-1".into() };
    plugin.command(&drained, PLENTY).unwrap();
    signals.try_recv().unwrap();
    let failure = plugin.command(&Command::SelfTest, PLENTY).unwrap_err();
    assert_eq!(failure.message, r#"{"command":"self-test"}"#);
}

#[test]
fn a_table_that_is_not_ours_is_refused() {
    let check = |define: &str, expected: &str| {
        let (_dir, path) = compiled(&[define]);
        assert_eq!(refused(&path), expected, "{define}");
    };
    check(
        "MAGIC={'E'}",
        "not a plugin: what it exports does not begin with ERUNPLUG",
    );
    check(
        "MAJOR=2",
        "built for version 2.1 of the plugin interface, this is 1.1; build it with a matching SDK",
    );
    check(
        "SIZE=16",
        "its table has 16 bytes, of which 72 are needed; build it with a matching SDK",
    );
    check(
        "FLAGS=ELASTICRUN_PLUGIN_WATCH",
        "it does not say that it can be polled (flags 0x2), which every plugin must",
    );
    check("FREE=NULL", "its table has no free");
    check("NO_WATCH", "its table has no watch");
    check(
        "BAD_MANIFEST",
        "its manifest is not understood: EOF while parsing a value at line 1 column 9",
    );
    check(
        "NAME=\"d-e\"",
        "the plugin in it is named \"d-e\"; name the file libelasticrun_plugin_d_e.so, or elasticrun-plugin-d-e if it \
         is a program",
    );
    check(
        "SYMBOL=other",
        "not a plugin: it does not export elasticrun_plugin_c; a plugin in Rust needs export_plugin! \
         and crate-type = [\"cdylib\"]",
    );
    let (_dir, path) = compiled(&["UNDEFINED"]);
    let message = refused(&path);
    assert!(message.starts_with("cannot be loaded: "), "{message}");
    assert!(
        message.contains("nobody_has_this") && !message.contains("/proc/"),
        "{message}"
    );
}

#[test]
fn answers_that_break_a_rule_are_refused() {
    let poll = |defines: &[&str]| {
        let (_dir, path) = compiled(defines);
        let library = Library::open(&path).unwrap();
        let failure = instance(&library, json!({"a": "b"}))
            .poll(PLENTY)
            .unwrap_err();
        (failure.kind, failure.message)
    };
    let bad = |message: &str| (FailureKind::BadAnswer, message.to_owned());
    assert_eq!(
        poll(&["LARGE"]),
        bad("the plugin's answer has 4194305 bytes; at most 4 MiB are allowed")
    );
    assert_eq!(poll(&["BAD_TEXT"]), bad("the plugin's answer is not UTF-8"));
    assert_eq!(
        poll(&["NO_DATA"]),
        bad("the plugin's answer has a length but no data")
    );
    let (kind, message) = poll(&["SILENT"]);
    assert_eq!(kind, FailureKind::BadAnswer);
    assert!(
        message.starts_with("the plugin's answer is not a snapshot: EOF"),
        "{message}"
    );
    assert_eq!(
        poll(&["SILENT", "CODE=ELASTICRUN_AUTH"]),
        (
            FailureKind::Auth,
            "the plugin gave code 4 and no message".into()
        )
    );
    assert_eq!(poll(&["SILENT", "CODE=77"]).0, FailureKind::Retryable);
}

#[test]
fn panics_stay_in_the_plugin() {
    let library = bundled("misbehaving");
    let failure = library
        .create(&options(json!({"create": "panic"})))
        .unwrap_err();
    assert_eq!(failure.kind, FailureKind::Panicked);
    assert_eq!(failure.message, "panicked: told to panic");
    for mode in ["panic", "panic_twice"] {
        let mut plugin = instance(&library, json!({"poll": mode, "drop": mode}));
        assert_eq!(plugin.poll(PLENTY).unwrap_err().kind, FailureKind::Panicked);
        let again = plugin.poll(PLENTY).unwrap_err();
        assert_eq!(
            again.message,
            "it panicked before and can only be destroyed"
        );
        drop(plugin);
    }
    assert_eq!(
        instance(&library, json!({})).poll(PLENTY).unwrap().hosts[0].id,
        "fine"
    );
}

#[test]
fn kinds_of_failure_cross() {
    let library = bundled("misbehaving");
    for (mode, kind) in [
        ("retryable", FailureKind::Retryable),
        ("auth", FailureKind::Auth),
        ("throttled", FailureKind::Throttled),
        ("unknown_group", FailureKind::UnknownGroup),
        ("huge", FailureKind::BadAnswer),
        ("repeated", FailureKind::BadAnswer),
    ] {
        let failure = instance(&library, json!({"poll": mode}))
            .poll(PLENTY)
            .unwrap_err();
        assert_eq!(failure.kind, kind, "{mode}");
        let pause = (mode == "throttled").then_some(Duration::from_secs(600));
        assert_eq!(failure.retry_after, pause);
    }
}
