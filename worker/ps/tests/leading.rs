//! Threads that wait for answers and read them by themselves, beside receiving threads and each other: all nodes of a job in one
//! process.

#![allow(clippy::unwrap_used, reason = "a helper of a test is a test")]

use std::{
    net::{SocketAddr, TcpListener},
    sync::{
        Arc, Mutex,
        mpsc::{Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use elasticrun_ps::{
    Answer, Array, Error, KvPairs, KvServer, KvWorker, Options, Postoffice, Refusal, RequestMeta,
    RequestOptions, Role, SummingHandler,
};

/// Far longer than what is waited for, and shorter than the request timeout.
const LIMIT: Duration = Duration::from_secs(30);

struct Job {
    scheduler: Postoffice,
    servers: Vec<Postoffice>,
    workers: Vec<Postoffice>,
}

impl Job {
    fn start(servers: u32, workers: u32, change: fn(&mut Options)) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap();
        let address: SocketAddr = port.local_addr().unwrap();
        drop(port);
        let start = |role| {
            let mut options = Options::new(role, address, servers, workers);
            options.request_timeout = Duration::from_secs(100);
            change(&mut options);
            thread::spawn(move || Postoffice::start(options).unwrap())
        };
        let scheduler = start(Role::Scheduler);
        let servers: Vec<_> = (0..servers).map(|_| start(Role::Server)).collect();
        let workers: Vec<_> = (0..workers).map(|_| start(Role::Worker)).collect();
        let mut job = Self {
            scheduler: scheduler.join().unwrap(),
            servers: (servers.into_iter().map(|each| each.join().unwrap())).collect(),
            workers: (workers.into_iter().map(|each| each.join().unwrap())).collect(),
        };
        job.servers.sort_by_key(Postoffice::my_rank);
        job
    }

    fn finish(self) {
        let nodes = (self.servers.into_iter()).chain(self.workers);
        let ends: Vec<_> = nodes
            .chain([self.scheduler])
            .map(|node| thread::spawn(move || node.finalize().unwrap()))
            .collect();
        ends.into_iter().for_each(|end| end.join().unwrap());
    }
}

/// A server that hands its requests to the test.
fn held(server: &Postoffice) -> (KvServer<f32>, std::sync::mpsc::Receiver<RequestMeta>) {
    let (send, requests) = channel();
    let send: Mutex<Sender<RequestMeta>> = Mutex::new(send);
    let handler = move |meta: &RequestMeta, _: KvPairs<'_, f32>, _: &KvServer<f32>| {
        send.lock().unwrap().send(meta.clone()).unwrap();
    };
    (KvServer::new(server, 0, handler).unwrap(), requests)
}

/// Keys of the first and of the second server.
const FIRST: u64 = 1;
const SECOND: u64 = u64::MAX - 1;

/// A waits for the first server and reads its connection. B waits for both servers, so it reads that of the second one only. The
/// answer that B still needs is read by A, which has to wake it.
#[test]
fn a_leader_is_woken_when_another_thread_reads_its_answer() {
    let job = Job::start(2, 1, |_| {});
    let (first, of_first) = held(&job.servers[0]);
    let (second, of_second) = held(&job.servers[1]);
    let start = |customer, keys: Vec<u64>| {
        let kv = KvWorker::<f32>::new(&job.workers[0], 0, customer).unwrap();
        thread::spawn(move || {
            let pushed = kv.push(keys.clone(), vec![1.0; keys.len()]).unwrap();
            let start = Instant::now();
            kv.customer().wait(pushed, LIMIT).unwrap();
            start.elapsed()
        })
    };
    let a = start(0, vec![FIRST]);
    let of_a = of_first.recv_timeout(LIMIT).unwrap();
    // A is about to read: that it does is not needed for the result, only for what is tested.
    thread::sleep(Duration::from_millis(100));
    let b = start(1, vec![FIRST, SECOND]);
    let of_b = of_first.recv_timeout(LIMIT).unwrap();
    second.respond(&of_second.recv_timeout(LIMIT).unwrap(), Answer::default());
    thread::sleep(Duration::from_millis(100));
    first.respond(&of_b, Answer::default());
    assert!(b.join().unwrap() < LIMIT / 2);
    first.respond(&of_a, Answer::default());
    a.join().unwrap();
    job.finish();
}

/// The same if the request fails: the other server never answers.
#[test]
fn a_refusal_ends_a_wait_that_reads_another_connection() {
    let job = Job::start(2, 1, |_| {});
    let (first, of_first) = held(&job.servers[0]);
    let (_second, _of_second) = held(&job.servers[1]);
    let kv = KvWorker::<f32>::new(&job.workers[0], 0, 0).unwrap();
    let pushed = kv.push([FIRST, SECOND], [1.0, 1.0]).unwrap();
    let waiting = thread::spawn(move || kv.customer().wait(pushed, LIMIT));
    let request = of_first.recv_timeout(LIMIT).unwrap();
    first.refuse(&request, &Refusal::Handler("no".to_owned()));
    let error = waiting.join().unwrap().unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    job.finish();
}

/// A leader's time is over though nobody answers.
#[test]
fn a_leader_stops_in_time() {
    let job = Job::start(1, 1, |_| {});
    let (server, requests) = held(&job.servers[0]);
    let kv = KvWorker::<f32>::new(&job.workers[0], 0, 0).unwrap();
    let pushed = kv.push([FIRST], [1.0]).unwrap();
    let error = kv.customer().wait(pushed, Duration::from_millis(200));
    assert!(matches!(error, Err(Error::TimedOut { .. })), "{error:?}");
    server.respond(&requests.recv_timeout(LIMIT).unwrap(), Answer::default());
    job.finish();
}

/// Between waits that end without listening, requests with callbacks, for which nobody waits, and others that are only looked at.
#[test]
fn answers_for_which_nobody_waits_are_read() {
    let job = Job::start(1, 1, |_| {});
    KvServer::<f32>::new(&job.servers[0], 0, SummingHandler::default()).unwrap();
    let kv = KvWorker::<f32>::new(&job.workers[0], 0, 0).unwrap();
    let (send, called) = channel();
    for round in 0..200 {
        for _ in 0..3 {
            let pushed = kv.push([FIRST], [1.0]).unwrap();
            kv.wait(pushed).unwrap();
        }
        let send = send.clone();
        let options = RequestOptions {
            callback: Some(Box::new(move |result| send.send(result).unwrap())),
            ..RequestOptions::default()
        };
        kv.push_with([FIRST], [1.0], options).unwrap();
        called.recv_timeout(LIMIT).unwrap().unwrap();
        let pushed = kv.push([FIRST], [1.0]).unwrap();
        let start = Instant::now();
        while !kv.customer().is_done(pushed) {
            assert!(start.elapsed() < LIMIT, "round {round}");
            thread::yield_now();
        }
    }
    job.finish();
}

/// A callback that a leader calls ends the node, which waits for the receiving threads.
#[test]
fn a_callback_may_end_the_node() {
    let job = Job::start(1, 1, |_| {});
    let (server, requests) = held(&job.servers[0]);
    let kv = KvWorker::<f32>::new(&job.workers[0], 0, 0).unwrap();
    let other = KvWorker::<f32>::new(&job.workers[0], 0, 1).unwrap();
    let postoffice = job.workers[0].clone();
    let options = RequestOptions {
        callback: Some(Box::new(move |_| postoffice.finalize_async())),
        ..RequestOptions::default()
    };
    other.push_with([FIRST], [1.0], options).unwrap();
    let first = requests.recv_timeout(LIMIT).unwrap();
    let pushed = kv.push([FIRST], [1.0]).unwrap();
    let (send, ended) = channel();
    let waiting = thread::spawn(move || send.send(kv.customer().wait(pushed, LIMIT)).unwrap());
    requests.recv_timeout(LIMIT).unwrap();
    thread::sleep(Duration::from_millis(100));
    server.respond(&first, Answer::default());
    assert!(ended.recv_timeout(LIMIT / 2).unwrap().is_err());
    waiting.join().unwrap();
}

fn many_threads(change: fn(&mut Options)) {
    let job = Job::start(2, 1, change);
    for server in &job.servers {
        KvServer::<f32>::new(server, 0, SummingHandler::default()).unwrap();
    }
    let count = 6;
    let rounds = 150;
    let worker = &job.workers[0];
    let called = Arc::new(Mutex::new(0));
    thread::scope(|scope| {
        for customer in 0..count {
            let called = Arc::clone(&called);
            scope.spawn(move || {
                let kv = KvWorker::<f32>::new(worker, 0, customer).unwrap();
                // Small and larger than the receive buffer.
                let small = Array::from([FIRST, SECOND - u64::from(customer) - 1]);
                let large: Array<u64> = (0..20_000)
                    .map(|key| (1 << 40) * (key + 1) + 2 + u64::from(customer))
                    .collect::<Vec<_>>()
                    .into();
                let values = Array::from(vec![1.0; large.len()]);
                for round in 0..rounds {
                    let called = Arc::clone(&called);
                    let options = RequestOptions {
                        callback: Some(Box::new(move |result| {
                            result.unwrap();
                            *called.lock().unwrap() += 1;
                        })),
                        ..RequestOptions::default()
                    };
                    let first = kv.push_with(&small, [1.0, 1.0], options).unwrap();
                    let pull = (round % 10 == 0).then(|| kv.push_pull(&large, &values).unwrap());
                    kv.wait(first).unwrap();
                    if let Some(pull) = pull {
                        let expected = (round / 10 + 1) as f32;
                        assert!(
                            pull.wait()
                                .unwrap()
                                .values
                                .iter()
                                .all(|&sum| sum == expected)
                        );
                    }
                    let found = kv.pull(&small, 1).unwrap().wait().unwrap().values[1];
                    assert_eq!(found, (round + 1) as f32);
                }
            });
        }
    });
    // A callback may be called while its waiter goes on.
    let start = Instant::now();
    while *called.lock().unwrap() < count * rounds && start.elapsed() < LIMIT {
        thread::yield_now();
    }
    assert_eq!(*called.lock().unwrap(), count * rounds);
    let kv = KvWorker::<f32>::new(worker, 0, count).unwrap();
    let sum = kv.pull([FIRST], 1).unwrap().wait().unwrap().values[0];
    assert_eq!(sum, (count * rounds) as f32);
    drop(kv);
    job.finish();
}

#[test]
fn many_threads_wait_at_once() {
    many_threads(|_| {});
}

#[test]
fn many_threads_wait_at_once_with_drops() {
    many_threads(|options| {
        options.resend = Some(Duration::from_millis(50));
        options.drop_percent = 10;
    });
}

/// Ends a server while workers still dial it: it waits for none of them.
#[test]
fn a_node_ends_while_others_keep_their_connections() {
    for _ in 0..30 {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
        let address = port.unwrap();
        let start = |role| {
            let options = Options::new(role, address, 1, 2);
            thread::spawn(move || Postoffice::start_async(options))
        };
        let scheduler = start(Role::Scheduler);
        let workers = [start(Role::Worker), start(Role::Worker)];
        let server = start(Role::Server).join().unwrap().unwrap();
        let (send, ended) = channel();
        let ending = thread::spawn(move || {
            server.finalize_async();
            send.send(()).unwrap();
        });
        let ended = ended.recv_timeout(LIMIT);
        drop((scheduler, workers));
        ended.unwrap();
        ending.join().unwrap();
    }
}
