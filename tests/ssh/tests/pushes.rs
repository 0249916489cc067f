//! Jobs that copy the binary to their hosts: `--push-binary`.

// Tests and their helpers may panic.
#![allow(clippy::unwrap_used)]

use std::{
    fs::{self, DirEntry},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use elasticrun_process_tests::{Job, binaries};
use elasticrun_ssh_tests::Net;

/// Makes a net of one host with a home directory of its own, or skips the test with the reason.
fn net(test: &str) -> Option<(Net, PathBuf)> {
    let mut net = match Net::new(1) {
        Ok(net) => net,
        Err(why) => {
            eprintln!("skipped {test}: {why}");
            return None;
        }
    };
    let home = net.directory().join("home");
    fs::create_dir(&home).unwrap();
    net.serve(0, &format!("SetEnv HOME={}", home.display()));
    Some((net, home))
}

/// A job whose calls of ssh are counted in a file, before `body` runs in their place.
fn job(net: &Net, body: &str) -> Job {
    let calls = net.directory().join("calls");
    net.job("-np 2 --push-binary")
        .flag(["-H", "10.77.0.11:2"])
        .ssh(&format!("echo call >>'{}'\n{body}", calls.display()))
        .plan(|plan| plan.steps = Some(5))
}

fn calls(net: &Net) -> usize {
    let calls = fs::read_to_string(net.directory().join("calls")).unwrap();
    calls.lines().count()
}

/// The files in the directory of pushed binaries.
fn pushed(home: &Path) -> Vec<DirEntry> {
    let directory = home.join(".cache/elasticrun/bin");
    fs::read_dir(directory).unwrap().flatten().collect()
}

fn assert_is_this_binary(path: &Path) {
    let same = fs::read(path).unwrap() == fs::read(binaries::elasticrun()).unwrap();
    assert!(same, "the pushed file is this binary");
}

#[test]
fn ssh_the_binary_is_pushed_once() {
    let Some((net, home)) = net("ssh_the_binary_is_pushed_once") else {
        return;
    };
    let mut found = Vec::new();
    // An attempt to run it, the push, and the agent; then the agent alone.
    for expected in [3, 4] {
        job(&net, r#"exec /usr/bin/ssh "$@""#)
            .run()
            .expect(0, &["succeeded"]);
        assert_eq!(calls(&net), expected);
        let pushed = pushed(&home);
        assert_eq!(pushed.len(), 1, "{pushed:?}");
        found.push((pushed[0].path(), pushed[0].metadata().unwrap().ino()));
    }
    assert_eq!(found[0], found[1], "the binary is not copied again");
    assert_is_this_binary(&found[0].0);
}

#[test]
fn ssh_a_push_that_broke_off_is_made_again() {
    let Some((net, home)) = net("ssh_a_push_that_broke_off_is_made_again") else {
        return;
    };
    let cut = r#"case "$*" in *mktemp*) head -c 1000000 | /usr/bin/ssh "$@"; exit;; esac
        exec /usr/bin/ssh "$@""#;
    let ended = job(&net, cut).run();
    ended.expect(
        1,
        &[
            "10.77.0.11",
            "cannot copy the binary there: only 1000000 of",
        ],
    );
    let left = pushed(&home);
    assert!(left.is_empty(), "{left:?}");
    job(&net, r#"exec /usr/bin/ssh "$@""#)
        .run()
        .expect(0, &["succeeded"]);
    let pushed = pushed(&home);
    assert_eq!(pushed.len(), 1, "{pushed:?}");
    assert_is_this_binary(&pushed[0].path());
}
