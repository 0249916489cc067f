//! The streams of workers: every byte, at once, and on the same stream of the driver.

use std::{
    fs::{self, File},
    io::Read,
    thread,
};

use elasticrun_process_tests::{DIRECTORY, Job, send_signal};
use nix::sys::signal::Signal;

use crate::output::pipe;

/// Bytes of standard output in the test of a late reader.
const MANY: usize = 40_000_000;

#[test]
fn every_byte_comes_after_a_reader_that_begins_late() {
    let (reader, writer) = pipe();
    let job = Job::new("-np 1 --no-prefix --quiet").stdout(File::from(writer));
    let directory = job.directory();
    let out: Vec<u8> = (0..)
        .flat_map(|n| format!("{n}\n").into_bytes())
        .take(MANY)
        .collect();
    // It ends with a line feed: the rest of a line could come behind a line of the driver.
    let err: Vec<u8> = (0..=255).cycle().take(1_000_000).chain([b'\n']).collect();
    fs::write(directory.join("out"), &out).unwrap();
    fs::write(directory.join("err"), &err).unwrap();
    let files = directory.join("files").display().to_string();
    let script = format!("cd ${DIRECTORY}; cat err >&2; cat out");
    let mut job = job
        .flag(["--output-filename", &files])
        .command(["sh", "-c", &script])
        .start();
    // Nothing is read before the worker and the agent have ended.
    let (tag, driver) = (job.tag().clone(), job.driver());
    job.wait_for("only the driver is left", |_| {
        let left = tag.processes();
        let said = fs::metadata(format!("{files}/rank.000/stdout"));
        let is_written = said.is_ok_and(|file| file.len() == MANY as u64);
        (is_written && left.iter().all(|(pid, _)| *pid == driver)).then_some(())
    });
    job.wait_said("waiting for the reader of the output");
    let console = thread::spawn(move || {
        let mut all = Vec::new();
        File::from(reader).read_to_end(&mut all).unwrap();
        all
    });
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    assert!(console.join().unwrap() == out, "the console differs");
    let read = |name: &str| fs::read(ended.path(name)).unwrap();
    assert!(read("files/rank.000/stdout") == out, "the file differs");
    assert!(read("files/rank.000/stderr") == err, "the file differs");
    assert!(read("stderr").starts_with(&err), "stderr differs");
}

#[test]
fn a_signal_ends_the_wait_for_a_reader_that_takes_nothing() {
    let (reader, writer) = pipe();
    let mut job = Job::new("-np 1")
        .command(["sh", "-c", "head -c 1000000 /dev/zero"])
        .stdout(File::from(writer))
        .start();
    job.wait_said("waiting for the reader of the output");
    send_signal(job.driver(), Signal::SIGINT);
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    assert!(
        ended.stderr.contains("bytes of output were not written"),
        "{}",
        ended.stderr
    );
    drop(reader);
}

#[test]
fn a_progress_bar_is_shown_before_its_newline() {
    // The worker goes on when the test has seen what it wrote.
    let wait = |file: &str| format!("until [ -e ${DIRECTORY}/{file} ]; do sleep 0.01; done");
    let script = format!(
        "printf '\\rstep 1'; {}; printf '\\rstep 2'; {}; printf '\\nname? '; {}",
        wait("one"),
        wait("two"),
        wait("name"),
    );
    let mut job = Job::new("-np 1").command(["sh", "-c", &script]).start();
    let stdout = job.path("stdout");
    for (file, text) in [("one", "step 1"), ("two", "step 2"), ("name", "name? ")] {
        job.wait_for("the driver shows what has no newline", |_| {
            fs::read_to_string(&stdout)
                .unwrap()
                .contains(text)
                .then_some(())
        });
        job.touch(file);
    }
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    let prefix = "[0]<stdout>:";
    let lines = format!("{prefix}\r{prefix}step 1\r{prefix}step 2\n{prefix}name? \n");
    assert_eq!(ended.stdout, lines);
}

#[test]
fn what_workers_say_on_stderr_is_on_stderr() {
    let script = "echo to stdout; echo to stderr >&2";
    let run = |flags: &str| Job::new(flags).command(["sh", "-c", script]).run();
    let ended = run("-np 1");
    ended.expect(0, &["succeeded"]);
    assert_eq!(ended.stdout, "[0]<stdout>:to stdout\n");
    let line = "[0]<stderr>:to stderr";
    assert!(ended.stderr.lines().any(|l| l == line), "{}", ended.stderr);
    let ended = run("-np 1 --no-prefix");
    assert_eq!(ended.stdout, "to stdout\n");
    assert!(
        ended.stderr.lines().any(|l| l == "to stderr"),
        "{}",
        ended.stderr
    );
    // There, standard error has events only.
    let ended = run("-np 1 --log-format json");
    assert!(ended.stdout.contains(line), "{}", ended.stdout);
    assert!(!ended.stderr.contains("to stderr"), "{}", ended.stderr);
}

#[test]
fn a_line_of_the_driver_begins_a_line_if_a_worker_has_left_one_open() {
    let wait = format!("until [ -e ${DIRECTORY}/seen ]; do sleep 0.01; done");
    let script = format!("printf 'name? ' >&2; {wait}");
    let mut job = Job::new("-np 1").command(["sh", "-c", &script]).start();
    job.wait_said("[0]<stderr>:name? ");
    job.touch("seen");
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    assert!(
        ended.stderr.contains("[0]<stderr>:name? \n"),
        "{}",
        ended.stderr
    );
    assert!(
        ended.last_line().starts_with("elasticrun: "),
        "{}",
        ended.stderr
    );
}
