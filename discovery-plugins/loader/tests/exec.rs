//! Executable plugins, in a shell and in Python, and their kinds of failure.

#![allow(clippy::unwrap_used)]

mod common;

use std::{fs, path::PathBuf, time::Duration};

use common::*;
use elasticrun_plugin_loader::{
    Catalog, Command, Error, Failure, FailureKind, Live, SearchPath, Spec,
};
use tempfile::TempDir;

/// A plugin in a shell, as in docs/design/plugin-frames.md.
const SHELL: &str = r#"#!/bin/sh
say() {
    printf '%s\n%s' "${#1}" "$1" >&3
}
say '{"hello": {"frames": 1, "manifest": {"name": "shell", "version": "1"}}}'
while read -r length <&3 && read -r call <&3; do
    id=${call#*\"id\":}
    id=${id%%[,\}]*}
    case $call in
    '{"call":"poll",'*) say "{\"answer\": $id, \"snapshot\": {\"hosts\": [{\"id\": \"sh-1\"}]}}" ;;
    '{"call":"destroy",'*) say "{\"answer\": $id}"; exit 0 ;;
    *) say "{\"answer\": $id}" ;;
    esac
done
"#;

/// A plugin in Python. Its options select the failure.
const PYTHON: &str = r#"#!/usr/bin/env python3
import json, os

stream = os.fdopen(3, "rb", buffering=0)

def say(body):
    data = json.dumps(body).encode()
    os.write(3, b"%d\n" % len(data) + data)

def calls():
    while head := stream.readline():
        yield json.loads(stream.read(int(head)))

say({"hello": {"frames": 1, "watches": True, "commands": True, "manifest": {
    "name": "python", "version": "1", "environment": ["CARGO_PKG_NAME"]}}})
config = {}
for call in calls():
    answer = {"answer": call["id"]}
    if call["call"] == "create":
        config = call["config"]
        if config.get("row") == "10":
            answer |= {"error": "bad-config", "message": "row: the hall has rows 0 to 9"}
    elif call["call"] == "watch":
        say({"log": "info", "text": "watching"})
        say({"changed": True})
    elif call["call"] == "command":
        answer |= {"error": "throttled", "message": call["command"]["command"], "retry_after_ms": 7}
    elif call["call"] == "poll":
        match config.get("poll"):
            case "text":
                os.write(3, b"hosts are a and b\n")
            case "large":
                os.write(3, b"67108864\n")
            case "utf8":
                os.write(3, b"2\n\xff\xfe")
            case "json":
                os.write(3, b"2\n17")
            case "chatty":
                for _ in range(1000):
                    say({"answer": 999})
                    say({"changed": True})
                    say({"new": "thing"})
                answer["snapshot"] = {"hosts": []}
            case "exit":
                raise SystemExit(3)
            case "raise":
                raise ValueError("no such rack")
            case "empty":
                pass
            case "unknown":
                answer |= {"error": "odd", "message": "odd"}
            case _:
                host = os.environ.get("CARGO_PKG_NAME", "none")
                answer["snapshot"] = {"hosts": [{"id": host}], "new": 1}
    say(answer)
    if call["call"] == "destroy":
        break
"#;

fn written_as(name: &str, content: &str) -> (TempDir, PathBuf) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join(name);
    fs::write(&path, content).unwrap();
    chmod(&path, 0o755);
    (dir, path)
}

fn catalog(dir: &TempDir) -> Catalog {
    Catalog::new(SearchPath {
        given: vec![dir.path().into()],
        usual: vec![],
    })
}

fn started(spec: &str) -> Result<Live, Failure> {
    let spec: Spec = spec.parse().unwrap();
    let (plugin, options) = Catalog::default().source(&spec).unwrap();
    plugin.start(&options, PLENTY, Box::new(|| ()))
}

#[test]
fn a_shell_is_enough() {
    let (dir, path) = written_as("elasticrun-plugin-shell", SHELL);
    let plugin = catalog(&dir).find("shell").unwrap();
    assert_eq!(plugin.manifest().version, "1");
    let mut live = plugin
        .start(&options(serde_json::json!({})), PLENTY, Box::new(|| ()))
        .unwrap();
    for _ in 0..3 {
        assert_eq!(live.poll(PLENTY).unwrap().hosts[0].id, "sh-1");
    }
    assert!(live.end());
    let mut live = started(&format!("exec:path={}", path.display())).unwrap();
    assert_eq!(live.poll(PLENTY).unwrap().hosts[0].id, "sh-1");
}

#[test]
fn a_program_supports_all_that_a_library_does() {
    let (_dir, path) = written_as("rack.py", PYTHON);
    let spec = format!("exec:path={}", path.display());
    let mut live = started(&spec).unwrap();
    let snapshot = live.poll(PLENTY).unwrap();
    assert_eq!(snapshot.hosts[0].id, "elasticrun-plugin-loader");
    let failure = live.command(&Command::SelfTest, PLENTY).unwrap_err();
    assert_eq!(
        (failure.kind, failure.message.as_str(), failure.retry_after),
        (
            FailureKind::Throttled,
            "self-test",
            Some(Duration::from_millis(7))
        )
    );
    assert!(live.end());
    let failure = started(&format!("{spec},row=10")).unwrap_err();
    assert_eq!(failure.kind, FailureKind::BadConfig);
    assert_eq!(failure.message, "row: the hall has rows 0 to 9");
}

#[test]
fn each_mistake_of_a_program_is_reported() {
    let (_dir, path) = written_as("rack.py", PYTHON);
    let broke = "the plugin's process broke the rules and was killed: ";
    for (mode, kind, expected) in [
        (
            "text",
            FailureKind::BadAnswer,
            format!("{broke}\"hosts are a and b\" where the length of a frame was expected"),
        ),
        (
            "large",
            FailureKind::BadAnswer,
            format!("{broke}a frame of 67108864 bytes; at most 4 MiB are allowed"),
        ),
        (
            "utf8",
            FailureKind::BadAnswer,
            format!("{broke}a frame that is not UTF-8"),
        ),
        (
            "json",
            FailureKind::BadAnswer,
            format!("{broke}a frame that is not understood: "),
        ),
        (
            "exit",
            FailureKind::Died,
            "the plugin exited with code 3, which nobody asked for".into(),
        ),
        (
            "raise",
            FailureKind::Died,
            "the plugin exited with code 1, which nobody asked for: ValueError: no such rack"
                .into(),
        ),
        (
            "empty",
            FailureKind::BadAnswer,
            "the plugin's answer to a poll has no snapshot".into(),
        ),
        ("unknown", FailureKind::Retryable, "odd".into()),
    ] {
        let mut live = started(&format!("exec:path={},poll={mode}", path.display())).unwrap();
        let failure = live.poll(PLENTY).unwrap_err();
        assert_eq!(failure.kind, kind, "{mode}");
        assert!(failure.message.starts_with(&expected), "{failure}");
    }
}

#[test]
fn a_program_that_exits_while_its_child_holds_the_connection_is_gone_at_once() {
    let leaves_child = SHELL.replace(
        "'{\"call\":\"poll\",'*) say",
        "'{\"call\":\"poll\",'*) sleep 1000 & exit 3; say",
    );
    let (_dir, path) = written_as("leaves-child", &leaves_child);
    let mut live = started(&format!("exec:path={}", path.display())).unwrap();
    // A call that waits for its deadline gives another failure.
    let failure = live.poll(PLENTY).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Died);
    assert_eq!(
        failure.message,
        "the plugin exited with code 3, which nobody asked for"
    );
}

#[test]
fn unrequested_answers_and_unknown_frames_are_ignored() {
    let (_dir, path) = written_as("rack.py", PYTHON);
    let mut live = started(&format!("exec:path={},poll=chatty", path.display())).unwrap();
    for _ in 0..2 {
        assert_eq!(live.poll(PLENTY).unwrap().hosts, []);
    }
    assert!(live.end());
}

#[test]
fn a_program_that_is_no_plugin_is_refused() {
    let refused = |content: &str| {
        let (dir, path) = written_as("elasticrun-plugin-a", content);
        let message = catalog(&dir).find("a").unwrap_err().to_string();
        let prefix = format!("{}: no plugin that can be used: ", path.display());
        message.strip_prefix(&prefix).unwrap_or(&message).to_owned()
    };
    assert_eq!(
        refused("#!/bin/sh\necho localhost:2\nexit 0\n"),
        "the plugin exited with code 0, which nobody asked for"
    );
    assert_eq!(
        refused("#!/bin/sh\necho no such group >&2\nexit 4\n"),
        "the plugin exited with code 4, which nobody asked for: no such group"
    );
    let hello = |body: &str| {
        format!(
            "#!/bin/sh\nprintf '%s\\n%s' '{}' '{body}' >&3\ncat <&3\n",
            body.len()
        )
    };
    assert_eq!(
        refused(&hello(r#"{"refused": "no licence"}"#)),
        "no licence"
    );
    let future = r#"{"hello": {"frames": 2, "manifest": {"name": "a", "version": "1"}}}"#;
    assert!(refused(&hello(future)).ends_with("it speaks version 2 of the frames, this is 1"));
    let other = r#"{"hello": {"frames": 1, "manifest": {"name": "b", "version": "1"}}}"#;
    assert!(refused(&hello(other)).contains("the plugin in it is named \"b\""));
    assert!(refused("no interpreter\n").contains("exited with code 127"));

    let (dir, path) = written_as("elasticrun-plugin-a", SHELL);
    chmod(&path, 0o644);
    assert!(matches!(
        catalog(&dir).find("a"),
        Err(Error::NotExecutable { .. })
    ));
    chmod(&path, 0o777);
    assert!(matches!(
        catalog(&dir).find("a"),
        Err(Error::WorldWritable { .. })
    ));
    assert!(matches!(
        Catalog::default().source(&"exec".parse().unwrap()),
        Err(Error::NoProgram)
    ));
}
