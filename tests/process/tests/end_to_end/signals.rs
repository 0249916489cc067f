//! Ctrl-C: once ends the job in order, twice kills it at once.

use std::time::{Duration, Instant};

use elasticrun_process_tests::{Job, send_signal};
use nix::sys::signal::Signal;

/// Less than the 5 s that a stopped worker gets to end by itself: a job that ends sooner did not wait for it.
const AT_ONCE: Duration = Duration::from_secs(4);

/// A worker that ignores SIGTERM and SIGINT.
const STUBBORN: &str = "trap '' TERM INT; echo ready; while :; do sleep 0.05; done";

#[test]
fn once() {
    let mut job = Job::new("-np 4 --min-np 2 -H localhost:2,127.0.0.1:2").start();
    job.wait_training(4, 3);
    let began = Instant::now();
    send_signal(job.driver(), Signal::SIGINT);
    let ended = job.end();
    ended.expect(130, &["stopped by signal 2"]);
    assert!(
        began.elapsed() < AT_ONCE,
        "workers that handle the stop end at once: {:?}",
        began.elapsed()
    );
}

#[test]
fn terminate() {
    let mut job = Job::new("-np 2").start();
    job.wait_training(2, 3);
    send_signal(job.driver(), Signal::SIGTERM);
    job.end().expect(143, &["stopped by signal 15"]);
}

#[test]
fn twice_kills_at_once() {
    let mut job = Job::new("-np 2").command(["sh", "-c", STUBBORN]).start();
    let stdout = job.path("stdout");
    job.wait_for("both workers run", |_| {
        let text = std::fs::read_to_string(&stdout).unwrap_or_default();
        (text.matches("ready").count() == 2).then_some(())
    });
    send_signal(job.driver(), Signal::SIGINT);
    job.wait_said("once more kills");
    let began = Instant::now();
    send_signal(job.driver(), Signal::SIGINT);
    job.end().expect(130, &["stopped by signal 2"]);
    assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
}

#[test]
fn before_anything_has_started() {
    let job = Job::new("-np 1 --min-np 1").script("sleep 1000").start();
    wait_for_handler(job.driver());
    send_signal(job.driver(), Signal::SIGINT);
    job.end().expect(130, &["stopped by signal 2"]);
}

/// Waits until a process handles SIGINT by itself.
fn wait_for_handler(pid: u32) {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let caught = status
            .lines()
            .find_map(|line| line.strip_prefix("SigCgt:"))
            .unwrap()
            .trim();
        if u64::from_str_radix(caught, 16).unwrap() & (1 << (Signal::SIGINT as u32 - 1)) != 0 {
            return;
        }
        assert!(Instant::now() < deadline, "it never handles SIGINT");
        std::thread::sleep(Duration::from_millis(2));
    }
}
