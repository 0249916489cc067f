use std::{
    fs,
    io::Write as _,
    path::PathBuf,
    process::{Output, Stdio},
    time::{Duration, SystemTime},
};

use super::*;

/// A program that can be told from others by its length and its output.
const PROGRAM: &[u8] = b"#!/bin/sh\necho ran $1\n";

/// A host, whose commands run here with a home directory of its own.
struct Machine {
    home: tempfile::TempDir,
    image: Image,
}

impl Machine {
    fn new() -> Self {
        Self {
            home: tempfile::tempdir().unwrap(),
            image: Image::read(PROGRAM).unwrap(),
        }
    }

    fn sh(&self, script: &str, input: &[u8]) -> Output {
        let mut child = std::process::Command::new("sh")
            .args(["-c", script])
            .env("HOME", self.home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A command that does not read has closed its end.
        let _ = child.stdin.take().unwrap().write_all(input);
        child.wait_with_output().unwrap()
    }

    fn receive(&self, input: &[u8]) -> Result<(), String> {
        let output = self.sh(&Remote::new(&self.image).receive(), input);
        let stderr = String::from_utf8(output.stderr).unwrap();
        output.status.success().then_some(()).ok_or(stderr)
    }

    /// The output of the agent, or the exit code without one.
    fn run(&self) -> Result<String, i32> {
        let output = self.sh(&Remote::new(&self.image).run(), b"");
        match output.status.code().unwrap() {
            0 => Ok(String::from_utf8(output.stdout).unwrap()),
            code => Err(code),
        }
    }

    fn directory(&self) -> PathBuf {
        self.home.path().join(DIRECTORY)
    }

    /// A file of the directory that was last modified so many days ago.
    fn file(&self, name: &str, days: u64) {
        let file = File::create(self.directory().join(name)).unwrap();
        let age = Duration::from_secs(days * 86_400 + 3600);
        file.set_modified(SystemTime::now() - age).unwrap();
    }

    fn names(&self) -> Vec<String> {
        let files = fs::read_dir(self.directory()).unwrap().flatten();
        let mut names: Vec<_> = files
            .map(|file| file.file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn copy(&self) -> String {
        let version = env!("CARGO_PKG_VERSION");
        format!("elasticrun-{version}-{}", &self.image.sha256[..16])
    }
}

#[test]
fn a_push_that_broke_off_leaves_nothing_and_is_made_again() {
    let host = Machine::new();
    assert_eq!(host.run(), Err(NOT_THERE));
    let why = host.receive(&PROGRAM[..9]).unwrap_err();
    assert_eq!(why, "only 9 of 22 bytes arrived\n");
    assert_eq!(host.names(), [""; 0]);
    assert_eq!(host.run(), Err(NOT_THERE));
    host.receive(PROGRAM).unwrap();
    assert_eq!(host.run(), Ok("ran agent\n".into()));
    assert_eq!(host.names(), [host.copy()]);
}

#[test]
fn a_copy_that_differs_is_refused() {
    let host = Machine::new();
    let mut other = PROGRAM.to_vec();
    other[20] ^= 1;
    let why = host.receive(&other).unwrap_err();
    assert_eq!(why, "the copy differs from the original\n");
    assert_eq!(host.names(), [""; 0]);
}

#[test]
fn a_copy_that_is_there_is_not_sent_again() {
    let host = Machine::new();
    host.receive(PROGRAM).unwrap();
    // Whatever else comes is not read.
    host.receive(b"").unwrap();
    assert_eq!(host.run(), Ok("ran agent\n".into()));
}

#[test]
fn a_file_of_that_name_and_another_length_is_replaced() {
    let host = Machine::new();
    host.receive(PROGRAM).unwrap();
    fs::write(host.directory().join(host.copy()), &PROGRAM[..9]).unwrap();
    assert_eq!(host.run(), Err(NOT_THERE));
    host.receive(PROGRAM).unwrap();
    assert_eq!(host.run(), Ok("ran agent\n".into()));
}

#[test]
fn what_no_launch_uses_any_more_is_removed() {
    let host = Machine::new();
    fs::create_dir_all(host.directory()).unwrap();
    host.file("push.abcdef", 2);
    host.file("push.ghijkl", 0);
    host.file("elasticrun-0.0.1-0123456789abcdef", 31);
    host.file("elasticrun-0.0.2-0123456789abcdef", 20);
    host.receive(PROGRAM).unwrap();
    let left = [
        "elasticrun-0.0.2-0123456789abcdef".into(),
        host.copy(),
        "push.ghijkl".into(),
    ];
    assert_eq!(host.names(), left);
}

#[test]
fn a_launch_counts_as_a_use() {
    let host = Machine::new();
    host.receive(PROGRAM).unwrap();
    let copy = File::open(host.directory().join(host.copy())).unwrap();
    let modified = || copy.metadata().unwrap().modified().unwrap();
    copy.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    host.run().unwrap();
    assert!(modified() > SystemTime::UNIX_EPOCH);
}
