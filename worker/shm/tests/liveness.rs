//! How the ends of real worker processes look to their agent.

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
    alive::{self, Alive},
    death::{DeathWatch, Ended},
    page::{AgentPage, Phase, WorkerPage},
    pidfd::Pidfd,
};

/// Enough for the slowest machine; reached only when a death is not seen.
const SOON: Duration = Duration::from_secs(30);

/// The worker process: not a test of its own.
#[test]
fn worker_process() {
    let Some((part, mut socket, fds)) = common::part() else {
        return;
    };
    let page = WorkerPage::open(&fds[0]).unwrap();
    alive::announce_exit(&page);
    let (send, held) = channel();
    let (finish, told) = channel::<()>();
    let thread = std::thread::spawn({
        let page = page.clone();
        let part = part.clone();
        move || {
            let alive = Alive::hold(&page).unwrap();
            send.send(()).unwrap();
            if part == "panic" {
                let _ = told.recv();
                panic!("as planned");
            }
            let _ = told.recv();
            if part == "release" {
                alive.release().unwrap();
            }
        }
    });
    held.recv().unwrap();
    page.set_phase(Phase::Training);
    socket.write_all(b"h").unwrap();
    socket.read_exact(&mut [0]).unwrap();
    match part.as_str() {
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
        other => panic!("no part {other}"),
    }
}

struct Watched {
    worker: Worker,
    page: AgentPage,
    pidfd: Pidfd,
    ended: Receiver<Ended>,
    _watch: DeathWatch,
}

fn start(part: &str) -> Watched {
    let page = AgentPage::create().unwrap();
    let (send, ended) = channel();
    let watch = DeathWatch::start(&page, move |how| send.send(how).unwrap()).unwrap();
    let mut worker = Worker::start("worker_process", part, &[page.as_fd()]);
    assert_eq!(worker.heard(), b'h');
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
        Ended::Died { exiting: None }
    );
    assert!(watched.pidfd.wait(SOON).unwrap());
    let status = watched.pidfd.reap().unwrap().unwrap();
    assert_eq!(status.signal(), Some(libc::SIGKILL));
}

#[test]
fn an_orderly_exit_says_what_it_left() {
    let mut watched = start("exit");
    watched.worker.tell(b'g');
    assert_eq!(
        watched.ended.recv_timeout(SOON).unwrap(),
        Ended::Died {
            exiting: Some(Phase::Training)
        }
    );
    assert!(watched.pidfd.wait(SOON).unwrap());
    assert_eq!(watched.pidfd.reap().unwrap().unwrap().code(), Some(7));
}

#[test]
fn an_exit_without_handlers_is_a_sudden_death() {
    let mut watched = start("sudden");
    watched.worker.tell(b'g');
    assert_eq!(
        watched.ended.recv_timeout(SOON).unwrap(),
        Ended::Died { exiting: None }
    );
    assert!(watched.pidfd.wait(SOON).unwrap());
    assert_eq!(watched.pidfd.reap().unwrap().unwrap().code(), Some(8));
}

#[test]
fn a_release_is_no_death() {
    let mut watched = start("release");
    watched.worker.tell(b'g');
    assert_eq!(watched.ended.recv_timeout(SOON).unwrap(), Ended::Released);
    assert!(!watched.pidfd.wait(Duration::ZERO).unwrap());
}

#[test]
fn the_end_of_the_holding_thread_alone_is_seen_though_the_process_lives() {
    let mut watched = start("panic");
    watched.worker.tell(b'g');
    assert_eq!(
        watched.ended.recv_timeout(SOON).unwrap(),
        Ended::Died { exiting: None }
    );
    assert!(!watched.pidfd.wait(Duration::ZERO).unwrap());
}

#[test]
fn the_exit_of_a_forked_child_is_nothing() {
    let mut watched = start("fork");
    watched.worker.tell(b'g');
    assert_eq!(watched.worker.heard(), b'c');
    assert!(watched.ended.try_recv().is_err());
    assert_eq!(watched.page.phase(), Phase::Training);
    watched.pidfd.kill(libc::SIGKILL).unwrap();
    assert_eq!(
        watched.ended.recv_timeout(SOON).unwrap(),
        Ended::Died { exiting: None }
    );
}

#[test]
fn a_watch_can_be_cancelled_at_any_moment_and_started_again() {
    let page = AgentPage::create().unwrap();
    let watch = |page: &AgentPage| DeathWatch::start(page, |_| panic!("nothing ended")).unwrap();
    for _ in 0..200 {
        watch(&page).cancel();
    }
    let worker = WorkerPage::open(&page).unwrap();
    let (end, told) = channel::<()>();
    let (send, held) = channel();
    let thread = std::thread::spawn(move || {
        let _alive = Alive::hold(&worker).unwrap();
        send.send(()).unwrap();
        let _ = told.recv();
    });
    held.recv().unwrap();
    // An odd number leaves the bit without which the kernel would not wake the last watch.
    for _ in 0..201 {
        watch(&page).cancel();
    }
    let (send, ended) = channel();
    let last = DeathWatch::start(&page, move |how| send.send(how).unwrap()).unwrap();
    drop(end);
    thread.join().unwrap();
    assert_eq!(
        ended.recv_timeout(SOON).unwrap(),
        Ended::Died { exiting: None }
    );
    drop(last);
    // A watch that starts after the death sees it too.
    let (send, ended) = channel();
    let _late = DeathWatch::start(&page, move |how| send.send(how).unwrap()).unwrap();
    assert_eq!(
        ended.recv_timeout(SOON).unwrap(),
        Ended::Died { exiting: None }
    );
}

#[test]
fn a_released_thread_can_end_without_a_trace() {
    let page = AgentPage::create().unwrap();
    let worker = WorkerPage::open(&page).unwrap();
    std::thread::spawn(move || Alive::hold(&worker).unwrap().release().unwrap())
        .join()
        .unwrap();
    let (send, ended) = channel();
    let _watch = DeathWatch::start(&page, move |how| send.send(how).unwrap()).unwrap();
    assert_eq!(ended.recv_timeout(SOON).unwrap(), Ended::Released);
}
