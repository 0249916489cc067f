//! Ctrl-C: once ends the job in order, twice kills it at once. Other signals end it, or are not for the driver.

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
    wait_for_status(job.driver(), "SigCgt", Signal::SIGINT);
    send_signal(job.driver(), Signal::SIGINT);
    job.end().expect(130, &["stopped by signal 2"]);
}

#[test]
fn quit_ends_in_order() {
    let mut job = Job::new("-np 2").start();
    job.wait_training(2, 3);
    send_signal(job.driver(), Signal::SIGQUIT);
    job.end().expect(131, &["stopped by signal 3"]);
}

#[test]
fn a_job_under_nohup_outlives_a_hangup() {
    let mut job = Job::new("-np 2").before(["nohup"]).start();
    let before = job.wait_training(2, 3);
    wait_for_status(job.driver(), "SigIgn", Signal::SIGHUP);
    send_signal(job.driver(), Signal::SIGHUP);
    job.wait_training(2, before[0].step + 100);
    job.finish();
    job.end().expect(0, &["succeeded"]);
}

#[test]
fn a_signal_of_slurm_does_not_end_the_driver() {
    let mut job = Job::new("-np 2").start();
    let before = job.wait_training(2, 3);
    for signal in [Signal::SIGUSR1, Signal::SIGUSR2] {
        send_signal(job.driver(), signal);
        job.wait_said(&format!("signal {} is ignored", signal as i32));
    }
    job.wait_training(2, before[0].step + 100);
    job.finish();
    job.end().expect(0, &["succeeded"]);
}

/// Waits until a signal is in a set of a process: `SigCgt` has those that it handles, `SigIgn` those that it ignores.
fn wait_for_status(pid: u32, set: &str, signal: Signal) {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let signals = status
            .lines()
            .find_map(|line| line.strip_prefix(set)?.strip_prefix(':'))
            .unwrap()
            .trim();
        if u64::from_str_radix(signals, 16).unwrap() & (1 << (signal as u32 - 1)) != 0 {
            return;
        }
        assert!(Instant::now() < deadline, "{signal} is never in {set}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
