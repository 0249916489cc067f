//! Output of workers: a closed console, files on a full disk, a lot of output, and complete output.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use elasticrun_process_tests::{Job, What, send_signal};
use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sys::signal::Signal,
};

use crate::support::at_step;

#[test]
fn lines_carry_their_rank_and_files_too() {
    let job = Job::new("-np 2 --prefix-output-with-timestamp");
    let flag = job.directory().join("out").display().to_string();
    let script = "echo to stdout $RANK; echo to stderr $RANK >&2; printf 'no end'";
    let ended = job
        .flag(["--output-filename", &flag])
        .command(["sh", "-c", script])
        .run();
    ended.expect(0, &["succeeded"]);
    for rank in 0..2 {
        let read = |name: &str| {
            fs::read_to_string(ended.path(&format!("out/rank.{rank:03}/{name}"))).unwrap()
        };
        assert_eq!(read("stdout"), format!("to stdout {rank}\nno end"));
        assert_eq!(read("stderr"), format!("to stderr {rank}\n"));
    }
    let line = ended
        .stdout
        .lines()
        .find(|line| line.ends_with("[1]<stdout>:to stdout 1"))
        .unwrap();
    assert!(line.contains('T') && line.contains('Z'), "a time: {line}");
    assert!(
        ended.stderr.contains("[0]<stderr>:to stderr 0"),
        "{}",
        ended.stderr
    );
}

#[test]
fn ten_megabytes_arrive_whole() {
    let ended = Job::new("-np 2 --no-prefix")
        .fault(at_step(1, 3, What::Print(100_000)))
        .plan(|plan| plan.steps = Some(30))
        .run();
    ended.expect(0, &["succeeded"]);
    assert_eq!(
        ended.stdout.lines().filter(|line| line.len() == 99).count(),
        100_000
    );
}

#[test]
fn a_console_that_is_closed_does_not_end_the_job() {
    let (reader, writer) = pipe();
    let job = Job::new("-np 2")
        .fault(at_step(1, 3, What::Print(20_000)))
        .stdout(File::from(writer));
    let mut job = job.start();
    let mut line = String::new();
    BufReader::with_capacity(64, File::from(reader))
        .read_line(&mut line)
        .unwrap();
    assert!(line.starts_with("[1]<stdout>:"), "{line}");
    job.wait_training(2, 100);
    job.finish();
    job.end().expect(0, &["succeeded"]);
}

#[test]
fn a_console_that_is_never_read_does_not_hold_up_training_nor_the_end() {
    let (reader, writer) = pipe();
    let job = Job::new("-np 2 --min-np 2 --max-np 4").discovered("localhost:2\n");
    let mut job = job
        .fault(at_step(1, 3, What::Print(20_000)))
        .stdout(File::from(writer))
        .start();
    // Rank 1 has printed more than the pipe holds.
    let before = job.wait_training(2, 4);
    job.set_hosts("localhost:4\n");
    // Messages of the driver do not wait behind the output of workers.
    job.wait_said("started with 4 workers");
    job.wait_training(4, before[0].step + 1);
    job.finish();
    // All processes but the driver have ended. It waits for the reader, unless the user ends that.
    job.wait_said("waiting for the reader of the output");
    send_signal(job.driver(), Signal::SIGINT);
    job.end().expect(0, &["succeeded"]);
    drop(reader);
}

#[test]
fn standard_error_that_is_never_read_holds_up_nobody() {
    let (reader, writer) = pipe();
    let flags = "-np 2 --min-np 2 --max-np 4 --log-level trace";
    let mut job = Job::new(flags)
        .discovered("localhost:2\n")
        .stderr(File::from(writer))
        .start();
    let before = job.wait_training(2, 200);
    job.set_hosts("localhost:4\n");
    job.wait_training(4, before[0].step + 200);
    job.finish();
    assert_eq!(job.end().code, 0);
    drop(reader);
}

#[test]
fn a_console_that_is_not_read_holds_up_its_printers_and_nobody_else() {
    let (reader, writer) = pipe();
    let job = Job::new("-np 2 --min-np 1")
        .command(["sh", "-c", "yes | head -c 300000; exit 0"])
        .stdout(File::from(writer));
    let job = job.start();
    let reader: OwnedFd = reader;
    let read = std::thread::spawn(move || {
        std::io::copy(&mut File::from(reader), &mut std::io::sink()).unwrap()
    });
    job.end().expect(0, &["succeeded"]);
    assert!(read.join().unwrap() > 600_000);
}

/// A pipe whose ends no child inherits by accident.
pub(crate) fn pipe() -> (OwnedFd, OwnedFd) {
    nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).unwrap()
}

/// A small file system, unmounted when the value is dropped.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn mount(path: &Path, size: &str) -> Self {
        fs::create_dir(path).unwrap();
        let options = format!("size={size}");
        mount(
            Some("none"),
            path,
            Some("tmpfs"),
            MsFlags::empty(),
            Some(options.as_str()),
        )
        .unwrap();
        Self(path.to_owned())
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}

#[test]
fn a_full_disk_costs_the_file_and_not_the_job() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!(
            "skipped a_full_disk_costs_the_file_and_not_the_job: it mounts a file system and is not root"
        );
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let disk = Tmpfs::mount(&place.path().join("disk"), "64k");
    let flag = disk.0.join("out").display().to_string();
    let job = Job::new("-np 2")
        .flag(["--output-filename", &flag])
        .fault(at_step(1, 3, What::Print(5_000)));
    let ended = job.plan(|plan| plan.steps = Some(30)).run();
    ended.expect(0, &["succeeded"]);
    let said: Vec<_> = ended
        .stderr
        .lines()
        .filter(|line| line.contains("No space left on device"))
        .collect();
    assert_eq!(said.len(), 1, "{}", ended.stderr);
    assert!(said[0].contains("rank.001/stdout"), "{}", said[0]);
    assert_eq!(
        ended.stdout.lines().filter(|line| line.len() > 99).count(),
        5_000,
        "the console has all lines"
    );
}

#[test]
fn a_directory_that_cannot_be_made() {
    let ended = Job::new("-np 1 --output-filename /proc/nope").run();
    ended.expect(2, &["--output-filename", "/proc/nope"]);
    assert!(ended.events.is_empty());
}

#[test]
fn each_line_of_the_driver_is_an_event_if_asked_for() {
    let flags = "-np 2 --min-np 1 -H localhost:1,127.0.0.1:1 --log-format json --blacklist forever";
    let mut job = Job::new(flags).fault(at_step(1, 3, What::Exit(3))).start();
    job.wait_training(1, 4);
    job.finish();
    let ended = job.end();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let events: Vec<serde_json::Value> = ended
        .stderr
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    let named = |name: &str| events.iter().find(|event| event["event"] == name);
    let first = named("round_started").unwrap();
    assert_eq!(
        (&first["size"], &first["cause"]),
        (&2.into(), &"first".into())
    );
    let failed = named("worker_failed").unwrap();
    assert_eq!(
        (&failed["rank"], &failed["round"]),
        (&1.into(), &first["round"])
    );
    assert!(
        failed["host"].is_string() && failed["run"] == first["run"],
        "{failed}"
    );
    let last = events.last().unwrap();
    assert_eq!(
        (&last["event"], &last["outcome"]),
        (&"job_ended".into(), &"succeeded".into())
    );
    assert_eq!(last["exit_code"], 0);
}
