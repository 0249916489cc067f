//! Workers push and pull without a pause while servers join, leave and die. What they have pushed is known in the end.

use std::{
    collections::VecDeque,
    io::BufRead,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, channel},
    },
    thread,
    time::{Duration, Instant},
};

use elasticrun_ps::{
    Array, DType, ElasticApp, ElasticServer, Error, Expect, KvWorker, Options, Postoffice,
    RequestOptions, Role, WORKER_GROUP,
    dynamic::{self, Elements, MutElements},
};
use nix::sys::signal::{SigSet, Signal};

use crate::{ensure, scenarios::spread};

const KEYS: u64 = 2000;
/// Where each worker counts its steps.
const COUNTERS: u64 = u64::MAX - 1000;
/// An app with keys of different lengths.
const MIXED: u32 = 1;
/// Steps behind a line of the test until it is answered.
const MORE_STEPS: u64 = 100;

pub(crate) fn run() -> Result<(), Error> {
    // In all threads, so that the one that waits for it gets it.
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    (signals.thread_block()).map_err(|error| Error::Options(error.to_string()))?;
    let postoffice = Postoffice::start(Options::from_env()?)?;
    match postoffice.role() {
        Role::Scheduler => {}
        Role::Server => serve(&postoffice, signals)?,
        Role::Worker => work(&postoffice)?,
    }
    match postoffice.finalize() {
        // It was told to leave meanwhile.
        Err(_) if LEFT.load(Ordering::SeqCst) => Ok(()),
        ended => ended,
    }
}

static LEFT: AtomicBool = AtomicBool::new(false);

/// A server with other apps than the others.
pub(crate) fn other() -> Result<(), Error> {
    let postoffice = Postoffice::start(Options::from_env()?)?;
    ElasticServer::start(&postoffice, [ElasticApp::sums::<f32>(7)]).map(drop)
}

/// Pushes that are larger than what a connection may queue, through chains in both directions.
pub(crate) fn large() -> Result<(), Error> {
    const VALUES: usize = 10_000;
    let postoffice = Postoffice::start(Options::from_env()?)?;
    match postoffice.role() {
        Role::Scheduler => {}
        Role::Server => {
            ElasticServer::start(&postoffice, [ElasticApp::sums::<f64>(0)])?;
            println!("serving");
        }
        Role::Worker => {
            let kv = KvWorker::<f64>::new(&postoffice, 0, 0)?;
            let keys = Array::from(spread(200));
            let values = Array::from(vec![1.5f64; keys.len() * VALUES]);
            let pushes = (0..3).map(|_| kv.push(&keys, &values));
            let pushes: Vec<_> = pushes.collect::<Result<_, _>>()?;
            for pushed in pushes {
                kv.wait(pushed)?;
            }
            postoffice.barrier(WORKER_GROUP)?;
            let found = kv.pull(&keys, VALUES)?.wait()?.values;
            let sum = 4.5 * f64::from(postoffice.num_workers());
            ensure(found.iter().all(|value| *value == sum), || {
                "sums differ".to_owned()
            })?;
            println!("all sums");
        }
    }
    postoffice.finalize()
}

/// Serves until the job ends, or until it is told to leave.
fn serve(postoffice: &Postoffice, signals: SigSet) -> Result<(), Error> {
    let server = ElasticServer::start(
        postoffice,
        [ElasticApp::sums::<f64>(0), ElasticApp::sums::<i64>(MIXED)],
    )?;
    println!("serving {}", postoffice.my_rank());
    let postoffice = postoffice.clone();
    thread::spawn(move || {
        if signals.wait().is_err() {
            return;
        }
        let start = Instant::now();
        match server.drain(Duration::from_secs(50)) {
            Ok(()) => {
                println!("drained in {:?}", start.elapsed());
                LEFT.store(true, Ordering::SeqCst);
                postoffice.finalize_async();
            }
            Err(error) => println!("not drained: {error}"),
        }
    });
    Ok(())
}

/// What a worker pushes for a key in a step. Sums are exact.
fn value(rank: u64, step: u64, key: usize) -> f64 {
    (1 + rank + step % 7 + key as u64 % 3) as f64
}

fn is_touched(step: u64, key: usize) -> bool {
    key as u64 % 5 == step % 5 || key < 20
}

fn lines() -> Receiver<String> {
    let (send, lines) = channel();
    thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if send.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// The sum of what a worker has pushed in so many steps, for each key.
fn pushed(rank: u64, steps: u64) -> Vec<f64> {
    let mut sums = vec![0.0; KEYS as usize];
    for step in 0..steps {
        for (key, sum) in sums.iter_mut().enumerate() {
            if is_touched(step, key) {
                *sum += value(rank, step, key);
            }
        }
    }
    sums
}

/// The slowest requests.
#[derive(Default)]
struct Slowest(Duration, u64);

impl Slowest {
    fn note(&mut self, start: Instant, step: u64) {
        let took = start.elapsed();
        if took > self.0 {
            *self = Self(took, step);
        }
    }
}

fn mixed_len(position: usize) -> u32 {
    position as u32 % 4
}

fn push_mixed(kv: &KvWorker<i64>, keys: &Array<u64>) -> Result<(), Error> {
    let lens: Vec<u32> = (0..keys.len()).map(mixed_len).collect();
    let count: u32 = lens.iter().sum();
    let options = RequestOptions {
        lens: Some(lens.into()),
        ..RequestOptions::default()
    };
    let values: Vec<i64> = (0..i64::from(count)).collect();
    let pushed = kv.push_with(keys, values, options)?;
    kv.wait(pushed)
}

/// Each worker has pushed once in 50 steps.
fn check_mixed(kv: &KvWorker<i64>, keys: &Array<u64>, steps: &[f64]) -> Result<(), Error> {
    let pushes: i64 = steps.iter().map(|&steps| steps as i64 / 50).sum();
    let pull = kv.pull_with(keys, Expect::Unknown, Vec::new(), RequestOptions::default())?;
    let found = pull.wait()?;
    let values: Vec<i64> = (0..found.values.len() as i64)
        .map(|value| value * pushes)
        .collect();
    let lens: Vec<u32> = (0..keys.len()).map(mixed_len).collect();
    let equal = found.values == values && found.lens.as_deref() == Some(&lens[..]);
    ensure(equal, || "keys of different lengths differ".to_owned())
}

fn work(postoffice: &Postoffice) -> Result<(), Error> {
    let kv = KvWorker::<f64>::new(postoffice, 0, 0)?;
    let all = Array::from(spread(KEYS));
    let rank = u64::from(postoffice.my_rank());
    let mixed = KvWorker::<i64>::new(postoffice, MIXED, 0)?;
    let lines = lines();
    let mut in_flight = VecDeque::new();
    let (mut step, mut told) = (0, 0);
    let mut answer_at = None;
    let mut slowest = Slowest::default();
    loop {
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        for (index, &key) in all.iter().enumerate() {
            if is_touched(step, index) {
                keys.push(key);
                values.push(value(rank, step, index));
            }
        }
        let keys = Array::from(keys);
        let start = Instant::now();
        if step % 4 == 3 {
            let own = values.clone();
            let found = kv.push_pull(&keys, values)?.wait()?.values;
            slowest.note(start, step);
            let sees = found.iter().zip(&own).all(|(found, own)| found >= own);
            ensure(sees, || "a push-pull does not see its push".to_owned())?;
        } else {
            in_flight.push_back((kv.push(&keys, values)?, start));
            while in_flight.len() > 2 {
                if let Some((oldest, start)) = in_flight.pop_front() {
                    kv.wait(oldest)?;
                    slowest.note(start, step);
                }
            }
        }
        step += 1;
        if step % 50 == 0 {
            while let Some((oldest, start)) = in_flight.pop_front() {
                kv.wait(oldest)?;
                slowest.note(start, step);
            }
            // All that this worker has pushed was acknowledged, so a pull sees it.
            let start = Instant::now();
            let found = kv.pull(&all, 1)?.wait()?.values;
            slowest.note(start, step);
            let own = pushed(rank, step);
            let sees = found.iter().zip(&own).all(|(found, own)| found >= own);
            ensure(sees, || {
                "a pull does not see an acknowledged push".to_owned()
            })?;
            push_mixed(&mixed, &all)?;
            if step == 50 {
                println!("working");
            }
        }
        if answer_at == Some(step) {
            told += 1;
            println!("past {told}: slowest {:?} in step {}", slowest.0, slowest.1);
            slowest = Slowest::default();
            answer_at = None;
        }
        if answer_at.is_none() {
            match lines.try_recv().as_deref() {
                Ok("end") => break,
                Ok(_) => answer_at = Some(step + MORE_STEPS),
                Err(_) => {}
            }
        }
    }
    for (timestamp, _) in in_flight {
        kv.wait(timestamp)?;
    }
    let counted = kv.push([COUNTERS + rank], [step as f64])?;
    kv.wait(counted)?;
    postoffice.barrier(WORKER_GROUP)?;
    // A test may start more than the job began with.
    let all_workers = std::env::var("TEST_WORKERS").ok();
    let workers = all_workers.and_then(|count| count.parse().ok());
    let workers = workers.unwrap_or(u64::from(postoffice.num_workers()));
    let counters: Vec<u64> = (0..workers).map(|rank| COUNTERS + rank).collect();
    let steps = kv.pull(counters, 1)?.wait()?.values;
    let mut expected = vec![0.0; KEYS as usize];
    for (rank, &steps) in steps.iter().enumerate() {
        let sums = pushed(rank as u64, steps as u64);
        (expected.iter_mut().zip(sums)).for_each(|(all, own)| *all += own);
    }
    let found = kv.pull(&all, 1)?.wait()?.values;
    let equal = (found.iter().zip(&expected)).all(|(a, b)| a.to_bits() == b.to_bits());
    ensure(equal, || {
        let wrong = found.iter().zip(&expected).filter(|(a, b)| a != b);
        format!("{} of {KEYS} sums differ", wrong.count())
    })?;
    check_mixed(&mixed, &all, &steps)?;
    into_foreign_memory(postoffice, &all, &found)?;
    println!("equal after {steps:?} steps");
    Ok(())
}

/// A worker over memory of another owner, as other languages have it: pushes nothing but zeros and gets the same.
fn into_foreign_memory(
    postoffice: &Postoffice,
    keys: &Array<u64>,
    expected: &[f64],
) -> Result<(), Error> {
    let worker = dynamic::new_worker(postoffice, DType::F64, 0, 7)?;
    let limit = postoffice.options().request_timeout;
    let zeros = vec![0.0f64; keys.len()];
    let mut space = vec![1.0f64; keys.len()];
    let (first, count) = (zeros.as_ptr().cast(), zeros.len());
    // SAFETY: both vectors are aligned and long enough. One belongs to the request, and the other one is used by nothing else until
    // that is completed. If it is not, it stays until the process ends.
    let pull = unsafe {
        let given = Elements::new(first, count, zeros);
        let memory = MutElements::new(space.as_mut_ptr().cast(), space.len(), ());
        worker.push_pull(keys.clone(), given, Some(memory), RequestOptions::default())
    };
    if let Err(error) = pull.and_then(|pull| pull.wait_for(limit)) {
        std::mem::forget(space);
        return Err(error);
    }
    let equal = (space.iter().zip(expected)).all(|(a, b)| a.to_bits() == b.to_bits());
    ensure(equal, || "foreign memory has other sums".to_owned())
}
