//! `elasticrun plugin` and `elasticrun hosts`, with the real binary.

#![allow(clippy::unwrap_used)]

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

/// How long the kernel may take for processes that end with a command.
const PATIENCE: Duration = Duration::from_secs(30);

/// A command of the binary in this directory.
fn elasticrun(directory: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_elasticrun"));
    command
        .args(words)
        .current_dir(directory)
        .env_remove("ELASTICRUN_PLUGIN_PATH");
    command
}

fn run(directory: &Path, words: &[&str]) -> Output {
    elasticrun(directory, words).output().unwrap()
}

#[track_caller]
fn printed(directory: &Path, words: &[&str]) -> String {
    let output = run(directory, words);
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert!(output.status.success(), "{words:?}\n{stdout}{stderr}");
    stdout
}

#[track_caller]
fn refused(directory: &Path, words: &[&str]) -> String {
    let output = run(directory, words);
    assert_eq!(output.status.code(), Some(2), "{words:?}");
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!(line.lines().count(), 1, "{line}");
    line
}

/// Creates a project, builds it as in its README, tests it, and runs a job with it.
fn from_new_to_a_job(language: &str, sdk: &[&str], build: impl FnOnce(&Path) -> Option<Command>) {
    let dir = TempDir::new().unwrap();
    let dir = dir.path();
    let name = format!("my-{language}");
    let words = ["plugin", "new", &name, "--lang", language];
    printed(dir, &[&words[..], sdk].concat());
    let project = dir.join(&name);
    if let Some(mut build) = build(&project) {
        let output = build.current_dir(&project).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
    }
    let plugins = [
        "--plugin-dir",
        if language == "rust" {
            "target/debug"
        } else {
            "."
        },
    ];
    let spec = format!("{name}:count=2");
    let test = [&["plugin", "test", &spec, "--json"], &plugins[..]].concat();
    let report: Value = serde_json::from_str(&printed(&project, &test)).unwrap();
    assert_eq!(report["passed"], true, "{report}");
    assert_eq!(report["plugin"], *name);
    assert_eq!(report["checks"].as_array().unwrap().len(), 9);
    // The commands of its README are the ones above.
    let readme = fs::read_to_string(project.join("README.md")).unwrap();
    let line = format!("elasticrun plugin test {spec} --plugin-dir {}", plugins[1]);
    assert!(readme.contains(&line), "{readme}");
    let spec = format!("{name}:count=1");
    let job = [
        &plugins[..],
        &["--discovery", &spec, "-np", "2", "--slots", "2"],
        &["--launcher", "local", "--", "echo", "trained"],
    ]
    .concat();
    assert_eq!(printed(&project, &job).matches("trained").count(), 2);
    assert!(refused(dir, &words).contains("is there already"));
}

#[test]
fn a_new_plugin_in_rust_builds_and_keeps_the_rules() {
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../discovery-plugins/sdk");
    let sdk = sdk.canonicalize().unwrap().display().to_string();
    // Uses the dependencies and build outputs of this workspace.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("plugin-new");
    from_new_to_a_job("rust", &["--sdk", &sdk], |project| {
        fs::create_dir_all(&target).unwrap();
        std::os::unix::fs::symlink(&target, project.join("target")).unwrap();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--offline"]);
        cargo.env_remove("CARGO_TARGET_DIR");
        Some(cargo)
    });
}

#[test]
fn a_new_plugin_in_c_builds_and_keeps_the_rules() {
    from_new_to_a_job("c", &[], |_| Some(Command::new("make")));
}

#[test]
fn a_new_plugin_in_python_keeps_the_rules() {
    from_new_to_a_job("python", &[], |_| None);
}

#[test]
fn a_program_that_exec_names_keeps_the_rules() {
    let dir = TempDir::new().unwrap();
    let dir = dir.path();
    printed(dir, &["plugin", "new", "mine", "--lang", "python"]);
    let spec = "exec:path=mine/elasticrun-plugin-mine,count=2";
    let text = printed(dir, &["plugin", "test", spec]);
    assert!(text.ends_with("9 of 9 passed\n"), "{text}");
}

#[test]
fn a_project_is_refused_by_name() {
    let dir = TempDir::new().unwrap();
    let new = |words: &[&str]| refused(dir.path(), &[&["plugin", "new"], words].concat());
    assert!(new(&["My Plugin", "--lang", "c"]).contains("allowed are small letters"));
    assert!(new(&["a"]).contains("--lang"));
    assert!(new(&["a", "--lang", "cobol"]).contains("--lang"));
    assert!(new(&["a", "--lang", "c", "--sdk", "."]).contains("only together with --lang rust"));
    assert!(new(&["a", "--lang", "rust", "--sdk", "."]).contains("--sdk"));
    assert!(new(&["a", "--lang", "rust"]).contains("add --sdk DIR"));
    assert!(
        !dir.path().join("a").exists(),
        "nothing is left of a refusal"
    );
}

#[test]
fn plugins_are_listed_and_described() {
    let dir = TempDir::new().unwrap();
    let dir = dir.path();
    let list: Value = serde_json::from_str(&printed(dir, &["plugin", "list", "--json"])).unwrap();
    let names: Vec<_> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["file", "script", "static"]);
    fs::write(dir.join("libelasticrun_plugin_odd.so"), "no library").unwrap();
    let text = printed(dir, &["plugin", "list", "--plugin-dir", "."]);
    assert!(
        text.contains("odd              cannot be used: ./lib"),
        "{text}"
    );
    let message = refused(dir, &["plugin", "inspect", "odd", "--plugin-dir", "."]);
    assert_eq!(
        message.matches("not a dynamic library").count(),
        1,
        "{message}"
    );
    let script = dir.join("elasticrun-plugin-script-b");
    fs::write(&script, "#!/x/python\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let message = refused(dir, &["plugin", "inspect", "script-b", "--plugin-dir", "."]);
    assert!(
        message.contains("its first line names /x/python, which is not there"),
        "{message}"
    );
    let text = printed(dir, &["plugin", "inspect", "file"]);
    assert!(text.contains("changes are  pushed"), "{text}");
    assert!(
        text.contains("option       path             string   needed"),
        "{text}"
    );
    assert!(
        refused(dir, &["plugin", "inspect", "nobody"]).contains("no discovery plugin \"nobody\"")
    );
}

#[test]
fn a_plugin_that_breaks_a_rule_is_told_so() {
    let dir = TempDir::new().unwrap();
    let spec = "script:path=/bin/false";
    let output = run(dir.path(), &["plugin", "test", spec]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("FAIL  poll            poll failed: bad configuration"),
        "{text}"
    );
    assert!(text.contains("ok    bad-config"), "{text}");
}

#[test]
fn hosts_are_shown_with_what_would_become_of_them() {
    let dir = TempDir::new().unwrap();
    let dir = dir.path();
    fs::write(dir.join("list"), "b:2\n").unwrap();
    let words = ["hosts", "-H", "a:4", "--discovery", "file:path=list"];
    let text = printed(dir, &words);
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    assert_eq!(lines[..2], ["source fixed: 1 host", "source file: 1 host"]);
    assert!(lines[2].starts_with("a ") && lines[2].contains("4 slots (given)"));
    assert!(lines[3].ends_with("used     ready"), "{text}");
    let text = printed(dir, &["hosts", "-H", "a:1"]);
    assert!(text.contains("1 slot (given)"), "{text}");
    let failing = ["hosts", "--json", "--host-discovery-script", "/bin/false"];
    let output = run(dir, &failing);
    assert_eq!(output.status.code(), Some(5));
    let row: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(row["sources"][0]["kind"], "bad configuration");
    assert!(refused(dir, &["hosts"]).contains("expected a source of hosts"));
}

/// A plugin in Python with this value of the field `hosts`, and these statements before its first answer.
fn python_plugin(dir: &Path, statements: &str, hosts: &str) -> String {
    let path = dir.join("plugin.py");
    let text = format!(
        r#"#!/usr/bin/env python3
import json, os, subprocess
def say(body):
    data = json.dumps(body).encode()
    os.write(3, b"%d\n" % len(data) + data)
{statements}
say({{"hello": {{"frames": 1, "manifest": {{"name": "python", "version": "1"}}}}}})
stream = os.fdopen(3, "rb", buffering=0)
while head := stream.readline():
    call = json.loads(stream.read(int(head)))
    answer = {{"answer": call["id"]}}
    if call["call"] == "poll":
        answer["snapshot"] = {{"hosts": {hosts}}}
    say(answer)
    if call["call"] == "destroy":
        break
"#
    );
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    format!("exec:path={}", path.display())
}

/// Whether the process runs. A zombie has ended.
fn is_alive(process: &str) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = status.rsplit_once(") ").map(|(_, rest)| rest.as_bytes()[0]);
    state.is_some_and(|state| state != b'Z')
}

#[test]
fn what_a_plugin_started_ends_with_the_command() {
    let dir = TempDir::new().unwrap();
    let dir = dir.path();
    let start =
        "child = subprocess.Popen(['sleep', '1000'])\nopen('child', 'a').write(f'{child.pid}\\n')";
    let spec = python_plugin(dir, start, r#"[{"id": "a"}]"#);
    printed(dir, &["hosts", "--discovery", &spec]);
    let children = fs::read_to_string(dir.join("child")).unwrap();
    assert!(!children.is_empty());
    for child in children.lines() {
        let began = Instant::now();
        while is_alive(child) {
            assert!(began.elapsed() < PATIENCE, "{child} lives on");
            thread::yield_now();
        }
    }
}

#[test]
fn hosts_are_shown_without_control_characters() {
    let dir = TempDir::new().unwrap();
    let dir = dir.path();
    let forged = r#"[{"id": "a", "reason": "\x1b[31mforged\nelasticrun: succeeded\u202e"}]"#;
    let spec = python_plugin(dir, "", forged);
    let text = printed(dir, &["hosts", "--discovery", &spec]);
    assert!(
        text.ends_with("ready: [31mforged elasticrun: succeeded\n"),
        "{text}"
    );
    assert!(!text.contains(['\x1b', '\u{202e}']), "{text}");
}

#[test]
fn changes_are_shown_while_one_watches() {
    let dir = TempDir::new().unwrap();
    let dir = dir.path();
    fs::write(dir.join("list"), "a:2\n").unwrap();
    // Polls are rare, so a change was pushed.
    let words = [
        "hosts",
        "--watch",
        "--json",
        "--discovery",
        "file:path=list",
    ];
    let mut child = elasticrun(dir, &[&words[..], &["--discovery-interval", "1h"]].concat())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    assert_eq!(next()["hosts"][0]["id"], "a");
    fs::write(dir.join("new"), "b:2\n").unwrap();
    fs::rename(dir.join("new"), dir.join("list")).unwrap();
    assert_eq!(next()["hosts"][0]["id"], "b");
    fs::remove_file(dir.join("list")).unwrap();
    let row = next();
    assert_eq!(row["sources"][0]["kind"], "retryable");
    child.kill().unwrap();
    child.wait().unwrap();
}
