//! StoreRequests to the store: against an agent that the test plays, and as a single process.

mod common;

use std::{
    thread,
    time::{Duration, Instant},
};

use common::{Agent, EPOCH, start};
use elasticrun_protocol::{
    Round, ToWorker,
    control::StopReason,
    store::{Blob, FromClient, MAX_PIECE, Namespace, Op, Refused, StagedValue, Value},
};
use elasticrun_worker::{Error, Interrupt, Worker};

const FAILED: &str = "a worker of the round failed: return this error to run(), which continues from the newest commit";

/// Not a test: the worker process of the other tests.
#[test]
#[ignore = "run by the other tests"]
fn a_worker() {
    std::process::exit(common::scripted_worker());
}

fn get(key: &str) -> Op {
    Op::Get { key: key.into() }
}

#[test]
fn a_request_names_its_round_and_gets_its_answer() {
    let agent = Agent::new();
    let mut worker = agent.worker(0);
    start(&mut [&mut worker], 1, None);
    worker.next_line();
    worker.send_command("set a 1");
    let mut requests = agent.requests(worker.process);
    let request = requests.next_request();
    let round = Namespace::Round {
        epoch: EPOCH,
        round: Round(1),
    };
    let set = Op::Set {
        key: "a".into(),
        value: Blob(b"1".to_vec()),
    };
    assert_eq!(
        (request.number, request.namespace, request.op),
        (1, round, set)
    );
    requests.answer(1, Ok(Value::Done));
    assert_eq!(worker.next_line(), "set");
    worker.send_command("get b");
    let request = requests.next_request();
    assert_eq!((request.number, request.op), (2, get("b")));
    assert_eq!(request.timeout, Duration::from_secs(600));
    let full = Refused::Full {
        limit: 7,
        key: "b".to_owned(),
        length: 5,
    };
    requests.answer(2, Err(full.clone()));
    assert_eq!(worker.next_line(), full.to_string());
}

#[test]
fn an_agent_of_an_earlier_release_gets_only_operations_that_it_knows() {
    let agent = Agent::new();
    let mut worker = agent.worker(0);
    start(&mut [&mut worker], 1, None);
    worker.next_line();
    worker.send_command("push q 1");
    let mut requests = agent.requests_as(worker.process, ToWorker::StoreOpened);
    let peer = "agent of this host".to_owned();
    assert_eq!(
        worker.next_line(),
        Refused::Unsupported { peer }.to_string()
    );
    worker.send_command("set a 1");
    let number = requests.next_request().number;
    requests.answer(number, Ok(Value::Done));
    assert_eq!(worker.next_line(), "set");
}

/// The key, number, size and offset of a piece that a worker stages.
fn piece(op: Op) -> (String, u64, u64, u64) {
    match op {
        Op::Stage {
            staged,
            key,
            length,
            offset,
            ..
        } => (key, staged, length, offset),
        other => panic!("expected a piece, got {other:?}"),
    }
}

#[test]
fn a_large_value_that_is_lost_with_a_connection_is_sent_again() {
    let agent = Agent::new();
    let mut worker = agent.worker(0);
    start(&mut [&mut worker], 1, None);
    worker.next_line();
    let length = MAX_PIECE as u64 + 5;
    worker.send_command(&format!("fill a {length}"));
    let mut requests = agent.requests(worker.process);
    let staged = 1;
    for is_lost in [true, false] {
        let expected = |offset| ("a".to_owned(), staged, length, offset);
        let first = requests.next_request();
        assert_eq!(piece(first.op), expected(0));
        requests.answer(first.number, Ok(Value::Done));
        let second = requests.next_request();
        assert_eq!(piece(second.op), expected(MAX_PIECE as u64));
        let answer = match is_lost {
            true => Err(Refused::NotStaged { staged }),
            false => Ok(Value::Done),
        };
        requests.answer(second.number, answer);
    }
    let last = requests.next_request();
    let (key, value) = ("a".to_owned(), Blob::default());
    let large = Op::Large {
        op: Box::new(Op::Set { key, value }),
        staged: vec![StagedValue {
            index: 0,
            staged,
            length,
        }],
    };
    assert_eq!(last.op, large);
    requests.answer(last.number, Ok(Value::Done));
    assert_eq!(worker.next_line(), "set");
}

#[test]
fn a_large_answer_that_is_lost_with_a_connection_is_asked_for_again() {
    let agent = Agent::new();
    let mut worker = agent.worker(0);
    start(&mut [&mut worker], 1, None);
    worker.next_line();
    worker.send_command("get a");
    let mut requests = agent.requests(worker.process);
    for staged in [7, 8] {
        let request = requests.next_request();
        assert_eq!((request.op, request.reads_staged), (get("a"), true));
        let large = Value::Large {
            value: Box::new(Value::Bytes(Blob::default())),
            staged: vec![StagedValue {
                index: 0,
                staged,
                length: 4,
            }],
        };
        requests.answer(request.number, Ok(large));
        let request = requests.next_request();
        assert_eq!(request.op, Op::ReadStaged { staged, offset: 0 });
        let answer = match staged {
            7 => Err(Refused::NotStaged { staged }),
            _ => Ok(Value::Bytes(Blob(b"abcd".to_vec()))),
        };
        requests.answer(request.number, answer);
    }
    assert_eq!(worker.next_line(), "got abcd");
}

#[test]
fn an_abort_discards_what_is_staged() {
    let agent = Agent::new();
    let mut worker = agent.worker(0);
    start(&mut [&mut worker], 1, None);
    worker.next_line();
    worker.send_command(&format!("fill a {}", 2 * MAX_PIECE));
    let mut requests = agent.requests(worker.process);
    let first = requests.next_request();
    worker.abort(1);
    assert_eq!(worker.next_line(), FAILED);
    let discard = FromClient::Discard {
        uploads: vec![1],
        downloads: Vec::new(),
    };
    assert_eq!(requests.receive::<FromClient>(), discard);
    assert_eq!(piece(first.op).1, 1);
}

#[test]
fn an_abort_ends_a_wait_at_once_and_the_worker_comes_back() {
    let agent = Agent::new();
    let mut worker = agent.worker(0);
    start(&mut [&mut worker], 1, None);
    worker.next_line();
    worker.send_command("get never");
    let mut requests = agent.requests(worker.process);
    requests.next_request();
    worker.abort(1);
    assert_eq!(worker.next_line(), FAILED);
    assert_eq!(worker.join().0, Some(Round(1)));
    // In the next round it uses the same connection. A late answer is ignored.
    let base = worker.newest();
    start(&mut [&mut worker], 2, base);
    worker.next_line();
    worker.send_command("get b");
    requests.answer(1, Ok(Value::Bytes(Blob(b"late".to_vec()))));
    let request = requests.next_request();
    assert_eq!(request.number, 2);
    requests.answer(2, Ok(Value::Bytes(Blob(b"2".to_vec()))));
    assert_eq!(worker.next_line(), "got 2");
}

#[test]
fn r3_a_round_that_the_driver_has_left_is_over() {
    let agent = Agent::new();
    let mut worker = agent.worker(0);
    start(&mut [&mut worker], 1, None);
    worker.next_line();
    worker.send_command("get a");
    let mut requests = agent.requests(worker.process);
    requests.next_request();
    let current = Some(Round(2));
    let asked = Round(1);
    requests.answer(1, Err(Refused::StaleRound { asked, current }));
    assert_eq!(worker.next_line(), FAILED);
    // It received no abort.
    let (left, told, _) = worker.join();
    assert_eq!((left, told), (Some(Round(1)), false));
}

#[test]
fn a_stop_ends_a_wait() {
    let agent = Agent::new();
    let mut worker = agent.worker(0);
    start(&mut [&mut worker], 1, None);
    worker.next_line();
    worker.send_command("get never");
    let mut requests = agent.requests(worker.process);
    requests.next_request();
    let why = StopReason::Removed;
    worker.send(&ToWorker::Stop { why }, &[]);
    let removed = Error::Removed.to_string();
    assert_eq!(worker.next_line(), removed);
    assert_eq!(worker.join().0, Some(Round(1)));
    assert_eq!(worker.next_line(), format!("ended: {removed}"));
    assert!(worker.end().success());
}

#[test]
fn a_connection_that_ends_fails_its_requests_and_the_next_one_makes_another() {
    let agent = Agent::new();
    let mut worker = agent.worker(0);
    start(&mut [&mut worker], 1, None);
    worker.next_line();
    worker.send_command("get never");
    let mut requests = agent.requests(worker.process);
    requests.next_request();
    drop(requests);
    assert_eq!(
        worker.next_line(),
        "the store of the job cannot be reached: the agent of this host closed the connection"
    );
    worker.send_command("set a 1");
    let mut requests = agent.requests(worker.process);
    let number = requests.next_request().number;
    requests.answer(number, Ok(Value::Done));
    assert_eq!(worker.next_line(), "set");
}

#[test]
fn a_single_process_has_a_store_of_its_own() {
    let mut worker = Worker::attach().expect("a world of one");
    let job = worker.job_store();
    assert!(matches!(worker.store(), Err(Error::OutOfRound { .. })));
    let _group = worker.join(None).expect("a round").expect("in time");
    let store = worker.store().expect("in a round");

    store.set("a", b"1").unwrap();
    assert_eq!(store.get("a", Duration::ZERO).unwrap(), b"1");
    assert!(!job.check(&["a"]).unwrap(), "of the round only");
    assert_eq!(store.add("n", 2).unwrap() + store.add("n", 3).unwrap(), 7);
    assert_eq!(store.compare_set("c", b"x", b"1").unwrap(), None);
    assert_eq!(store.compare_set("c", b"", b"1").unwrap().unwrap(), b"1");
    store.append("c", b"2").unwrap();
    store.multi_set(&[("d", "3"), ("e", "4")]).unwrap();
    let values = store.multi_get(&["c", "d", "e"], Duration::ZERO).unwrap();
    assert_eq!(values, [&b"12"[..], b"3", b"4"]);
    assert_eq!(store.num_keys("").unwrap(), 5);
    assert!(store.delete("a").unwrap() && !store.delete("a").unwrap());
    assert_eq!(store.list_keys("").unwrap(), ["c", "d", "e", "n"]);
    store.queue_push("q", b"1").unwrap();
    store.queue_push("q", b"2").unwrap();
    assert_eq!(store.queue_len("q").unwrap(), 2);
    assert_eq!(store.queue_pop("q", Duration::ZERO).unwrap(), b"1");
    assert_eq!(store.queue_try_pop("q").unwrap().unwrap(), b"2");
    assert_eq!(store.queue_try_pop("q").unwrap(), None);

    let began = Instant::now();
    let short = Duration::from_millis(20);
    let late = store.wait(&["c", "x"], short).unwrap_err();
    assert!(began.elapsed() >= short);
    assert_eq!(late.to_string(), r#"nobody has set "x" in time"#);

    // Values that do not fit a message.
    let large: Vec<u8> = (0..3 * MAX_PIECE + 5).map(|n| n as u8).collect();
    store.set("large", &large).unwrap();
    store.append("large", &large).unwrap();
    let twice = [&large[..], &large].concat();
    let values = store.multi_get(&["d", "large"], Duration::ZERO).unwrap();
    assert_eq!(values, [b"3".to_vec(), twice.clone()]);
    let other = store.compare_set("large", &twice, &large).unwrap();
    assert_eq!(other.unwrap(), large);
    store.queue_push("q", &large).unwrap();
    assert_eq!(store.queue_pop("q", short).unwrap(), large);
    assert!(store.delete("large").unwrap());

    // Another thread waits; a call that is dropped does not.
    drop(store.start(get("x"), Duration::MAX).unwrap());
    let mut polled = store.start(get("x"), Duration::MAX).unwrap();
    assert!(polled.poll(Duration::ZERO).is_none());
    thread::scope(|scope| {
        let waits = scope.spawn(|| store.clone().get("x", Duration::from_secs(600)));
        store.set("x", b"5").unwrap();
        assert_eq!(waits.join().unwrap().unwrap(), b"5");
    });
    let value = polled.poll(Duration::ZERO).unwrap().unwrap();
    assert_eq!(value, Value::Bytes(Blob(b"5".to_vec())));

    // SAFETY: the child makes one call that takes no lock, and ends.
    match unsafe { nix::unistd::fork() }.unwrap() {
        nix::unistd::ForkResult::Child => {
            let forked = matches!(store.set("a", b""), Err(Error::Forked));
            // SAFETY: ends the process without running any handler.
            unsafe { nix::libc::_exit(i32::from(!forked)) }
        }
        nix::unistd::ForkResult::Parent { child } => {
            let ended = nix::sys::wait::waitpid(child, None).unwrap();
            assert_eq!(ended, nix::sys::wait::WaitStatus::Exited(child, 0));
        }
    }

    job.set("kept", b"1").unwrap();
    worker.leave(true);
    let _group = worker.join(None).expect("a round").expect("in time");
    let next = worker.store().expect("in a round");
    assert_eq!(next.num_keys("").unwrap(), 0);
    let old = store.set("a", b"").unwrap_err();
    assert_eq!(old.interrupt(), Some(Interrupt::WorkersFailed));
    assert_eq!(job.get("kept", Duration::ZERO).unwrap(), b"1");
}
