//! How an agent detects the ends of real worker processes.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use std::{
    io::{Read, Write},
    os::fd::AsFd,
    os::unix::process::ExitStatusExt,
    sync::mpsc::{Receiver, channel},
    time::Duration,
};

use common::Worker;
use elasticrun_shm::{
    liveness::{self, LivenessLock},
    liveness_watch::{LivenessEnd, LivenessWatch},
    page::{AgentPage, Phase, WorkerPage},
    pidfd::Pidfd,
};

/// A limit for the slowest machine. It is reached only if a death is not detected.
const SOON: Duration = Duration::from_secs(30);

/// The entry point of worker processes; as a test it does nothing.
#[test]
fn worker_process() {
    let Some((role, mut socket, fds)) = common::role() else {
        return;
    };
    let page = WorkerPage::open(&fds[0]).unwrap();
    liveness::announce_exit(&page);
    let (send, held) = channel();
    let (finish, finished) = channel::<()>();
    let thread = std::thread::spawn({
        let page = page.clone();
        let role = role.clone();
        move || {
            let alive = LivenessLock::hold(&page).unwrap();
            send.send(()).unwrap();
            if role == "panic" {
                let _ = finished.recv();
                panic!("as planned");
            }
            let _ = finished.recv();
            if role == "release" {
                alive.release().unwrap();
            }
        }
    });
    held.recv().unwrap();
    page.set_phase(Phase::Training);
    socket.write_all(b"h").unwrap();
    socket.read_exact(&mut [0]).unwrap();
    match role.as_str() {
        "wait" => {
            let _ = socket.read(&mut [0]);
        }
        "exit" => std::process::exit(7),
        // SAFETY: ends the process without running any handler.
        "sudden" => unsafe { libc::_exit(8) },
        "release" => {
            drop(finish);
            thread.join().unwrap();
            page.set_phase(Phase::Finished);
            let _ = socket.read(&mut [0]);
        }
        "panic" => {
            drop(finish);
            thread.join().unwrap_err();
            let _ = socket.read(&mut [0]);
        }
        "fork" => {
            // SAFETY: the child only exits, in the orderly way that runs handlers, and the parent waits for it.
            unsafe {
                let child = libc::fork();
                if child == 0 {
                    libc::exit(0);
                }
                assert_eq!(libc::waitpid(child, std::ptr::null_mut(), 0), child);
            }
            socket.write_all(b"c").unwrap();
            let _ = socket.read(&mut [0]);
        }
        other => panic!("no role {other}"),
    }
}

struct Watched {
    worker: Worker,
    page: AgentPage,
    pidfd: Pidfd,
    ended: Receiver<LivenessEnd>,
    _watch: LivenessWatch,
}

fn start(role: &str) -> Watched {
    let page = AgentPage::create().unwrap();
    let (send, ended) = channel();
    let watch = LivenessWatch::start(&page, move |how| send.send(how).unwrap()).unwrap();
    let mut worker = Worker::start("worker_process", role, &[page.as_fd()]);
    assert_eq!(worker.recv_byte(), b'h');
    let pidfd = Pidfd::open(worker.process.id()).unwrap();
    assert!(ended.try_recv().is_err(), "it lives");
    assert_eq!(page.phase(), Phase::Training);
    Watched {
        worker,
        page,
        pidfd,
        ended,
        _watch: watch,
    }
}

#[test]
fn a_kill_is_a_sudden_death() {
    let watched = start("wait");
    watched.pidfd.kill(libc::SIGKILL).unwrap();
    assert_eq!(
        watched.ended.recv_timeout(SOON).unwrap(),
        LivenessEnd::Died { exiting: None }
    );
    assert!(watched.pidfd.wait(SOON).unwrap());
    let status = watched.pidfd.reap().unwrap().unwrap();
    assert_eq!(status.signal(), Some(libc::SIGKILL));
}

#[test]
fn an_orderly_exit_reports_its_phase() {
    let mut watched = start("exit");
    watched.worker.send_byte(b'g');
    assert_eq!(
        watched.ended.recv_timeout(SOON).unwrap(),
        LivenessEnd::Died {
            exiting: Some(Phase::Training)
        }
    );
    assert!(watched.pidfd.wait(SOON).unwrap());
    assert_eq!(watched.pidfd.reap().unwrap().unwrap().code(), Some(7));
}

#[test]
fn an_exit_without_handlers_is_a_sudden_death() {
    let mut watched = start("sudden");
    watched.worker.send_byte(b'g');
    assert_eq!(
        watched.ended.recv_timeout(SOON).unwrap(),
        LivenessEnd::Died { exiting: None }
    );
    assert!(watched.pidfd.wait(SOON).unwrap());
    assert_eq!(watched.pidfd.reap().unwrap().unwrap().code(), Some(8));
}

#[test]
fn a_release_is_no_death() {
    let mut watched = start("release");
    watched.worker.send_byte(b'g');
    assert_eq!(
        watched.ended.recv_timeout(SOON).unwrap(),
        LivenessEnd::Released
    );
    assert!(!watched.pidfd.wait(Duration::ZERO).unwrap());
}

#[test]
fn the_end_of_the_holding_thread_alone_is_seen_though_the_process_lives() {
    let mut watched = start("panic");
    watched.worker.send_byte(b'g');
    assert_eq!(
        watched.ended.recv_timeout(SOON).unwrap(),
        LivenessEnd::Died { exiting: None }
    );
    assert!(!watched.pidfd.wait(Duration::ZERO).unwrap());
}

#[test]
fn the_exit_of_a_forked_child_is_nothing() {
    let mut watched = start("fork");
    watched.worker.send_byte(b'g');
    assert_eq!(watched.worker.recv_byte(), b'c');
    assert!(watched.ended.try_recv().is_err());
    assert_eq!(watched.page.phase(), Phase::Training);
    watched.pidfd.kill(libc::SIGKILL).unwrap();
    assert_eq!(
        watched.ended.recv_timeout(SOON).unwrap(),
        LivenessEnd::Died { exiting: None }
    );
}

#[test]
fn a_watch_can_be_cancelled_at_any_moment_and_started_again() {
    let page = AgentPage::create().unwrap();
    let watch = |page: &AgentPage| LivenessWatch::start(page, |_| panic!("nothing ended")).unwrap();
    for _ in 0..200 {
        watch(&page).cancel();
    }
    let worker = WorkerPage::open(&page).unwrap();
    let (end, finished) = channel::<()>();
    let (send, held) = channel();
    let thread = std::thread::spawn(move || {
        let _alive = LivenessLock::hold(&worker).unwrap();
        send.send(()).unwrap();
        let _ = finished.recv();
    });
    held.recv().unwrap();
    // An odd number of cancels leaves the waiters bit cleared, without which the kernel would not wake the last watch.
    for _ in 0..201 {
        watch(&page).cancel();
    }
    let (send, ended) = channel();
    let last = LivenessWatch::start(&page, move |how| send.send(how).unwrap()).unwrap();
    drop(end);
    thread.join().unwrap();
    assert_eq!(
        ended.recv_timeout(SOON).unwrap(),
        LivenessEnd::Died { exiting: None }
    );
    drop(last);
    // A watch that starts after the death detects it too.
    let (send, ended) = channel();
    let _late = LivenessWatch::start(&page, move |how| send.send(how).unwrap()).unwrap();
    assert_eq!(
        ended.recv_timeout(SOON).unwrap(),
        LivenessEnd::Died { exiting: None }
    );
}

#[test]
fn a_released_thread_can_end_without_a_trace() {
    let page = AgentPage::create().unwrap();
    let worker = WorkerPage::open(&page).unwrap();
    std::thread::spawn(move || LivenessLock::hold(&worker).unwrap().release().unwrap())
        .join()
        .unwrap();
    let (send, ended) = channel();
    let _watch = LivenessWatch::start(&page, move |how| send.send(how).unwrap()).unwrap();
    assert_eq!(ended.recv_timeout(SOON).unwrap(), LivenessEnd::Released);
}
