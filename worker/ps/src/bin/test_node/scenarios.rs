//! What ps-lite's own tests do, with their numbers.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use elasticrun_ps::{
    ALL_NODES, Array, Error, Expect, KvServer, KvWorker, Postoffice, RequestOptions, Role,
    SimpleApp, SummingHandler, WORKER_GROUP,
};

use crate::ensure;

/// Spreads keys over all servers.
pub(crate) fn spread(count: u64) -> Vec<u64> {
    let step = u64::MAX / count;
    (0..count).map(|index| index * step + index % 7).collect()
}

/// 50 pushes with at most 10 in flight, a pull, and 50 push-pulls. `own` is how many workers or customers push the same.
pub(crate) fn push_and_pull(kv: &KvWorker<f32>, keys: &[u64], scale: f32) -> Result<(), Error> {
    let keys = Array::from(keys);
    let values: Vec<f32> = (0..keys.len())
        .map(|index| (index % 100) as f32 * scale)
        .collect();
    let values = Array::from(values);
    let called = Arc::new(AtomicU64::new(0));
    let mut in_flight = VecDeque::new();
    for _ in 0..50 {
        let called = Arc::clone(&called);
        let options = RequestOptions {
            callback: Some(Box::new(move |result| {
                if result.is_ok() {
                    called.fetch_add(1, Ordering::SeqCst);
                }
            })),
            ..RequestOptions::default()
        };
        in_flight.push_back(kv.push_with(&keys, &values, options)?);
        if in_flight.len() == 10
            && let Some(oldest) = in_flight.pop_front()
        {
            kv.wait(oldest)?;
        }
    }
    for timestamp in in_flight {
        kv.wait(timestamp)?;
    }
    let pulled = kv.pull(&keys, 1)?.wait()?;
    ensure(pulled.values.len() == keys.len(), || {
        format!("{} values", pulled.values.len())
    })?;
    let mut memory = pulled.values;
    for _ in 0..50 {
        let pull = kv.push_pull_with(&keys, &values, memory, RequestOptions::default())?;
        memory = pull.wait()?.values;
    }
    let called = called.load(Ordering::SeqCst);
    ensure(called == 50, || format!("{called} callbacks for 50 pushes"))
}

/// The sum of the absolute errors of what the servers have, if `pushers` have pushed 100 times.
pub(crate) fn error_sum(kv: &KvWorker<f32>, keys: &[u64], total: f32) -> Result<f64, Error> {
    let pulled = kv.pull(keys, 1)?.wait()?;
    let expected = (0..keys.len()).map(|index| (index % 100) as f32 * total * 100.0);
    let errors = pulled.values.iter().zip(expected);
    Ok(errors
        .map(|(found, expected)| f64::from((found - expected).abs()))
        .sum())
}

fn serve(postoffice: &Postoffice) -> Result<(), Error> {
    if postoffice.role() == Role::Server {
        KvServer::<f32>::new(postoffice, 0, SummingHandler::default())?;
    }
    Ok(())
}

fn kv_with(postoffice: &Postoffice, count: u64) -> Result<(), Error> {
    serve(postoffice)?;
    if postoffice.role() == Role::Worker {
        let kv = KvWorker::<f32>::new(postoffice, 0, 0)?;
        let keys = spread(count);
        // Sums of halves are exact in f32 up to 2^23.
        push_and_pull(&kv, &keys, 0.5)?;
        postoffice.barrier(WORKER_GROUP)?;
        let workers = postoffice.num_workers() as f32;
        let error = error_sum(&kv, &keys, 0.5 * workers)?;
        println!("error {error}");
        ensure(error == 0.0, || format!("an error of {error}"))?;
    }
    postoffice.finalize()
}

/// ps-lite's test_kv_app: 10,000 keys.
pub(crate) fn kv(postoffice: &Postoffice) -> Result<(), Error> {
    kv_with(postoffice, 10_000)
}

/// Ten million keys, pushed once and pulled without saying how many values they have.
pub(crate) fn many_keys(postoffice: &Postoffice) -> Result<(), Error> {
    serve(postoffice)?;
    if postoffice.role() == Role::Worker {
        let kv = KvWorker::<f32>::new(postoffice, 0, 0)?;
        let keys = Array::from(spread(10_000_000));
        let values: Vec<f32> = (0..keys.len()).map(|index| (index % 100) as f32).collect();
        let pushed = kv.push(&keys, values)?;
        kv.wait(pushed)?;
        postoffice.barrier(WORKER_GROUP)?;
        let pull = kv.pull_with(
            &keys,
            Expect::Unknown,
            Vec::new(),
            RequestOptions::default(),
        )?;
        let values = pull.wait()?.values;
        let workers = postoffice.num_workers() as f32;
        let right = values
            .iter()
            .enumerate()
            .all(|(index, &found)| found == (index % 100) as f32 * workers);
        ensure(right && values.len() == keys.len(), || "a sum".to_owned())?;
        println!("error 0");
    }
    postoffice.finalize()
}

/// ps-lite's test_simple_app: 100 requests of the scheduler to all nodes.
pub(crate) fn simple(postoffice: &Postoffice) -> Result<(), Error> {
    let received = Arc::new(AtomicU64::new(0));
    let answered = Arc::new(AtomicU64::new(0));
    let (on_request, on_answer) = (Arc::clone(&received), Arc::clone(&answered));
    let app = SimpleApp::new(
        postoffice,
        0,
        Box::new(move |request, app| {
            if request.head == 1 && request.body == b"test" {
                on_request.fetch_add(1, Ordering::SeqCst);
            }
            app.respond(request, request.body.clone());
        }),
        Box::new(move |answer| {
            if answer.head == 1 && answer.body == b"test" {
                on_answer.fetch_add(1, Ordering::SeqCst);
            }
        }),
    )?;
    if postoffice.role() == Role::Scheduler {
        let mut requests = Vec::new();
        for _ in 0..100 {
            requests.push(app.request(1, "test", ALL_NODES)?);
        }
        for request in requests {
            app.wait(request)?;
        }
        println!("answered {}", answered.load(Ordering::SeqCst));
    }
    postoffice.finalize()?;
    println!("received {}", received.load(Ordering::SeqCst));
    Ok(())
}

/// ps-lite's test_kv_app_multi_workers: two customers in each worker process.
pub(crate) fn customers(postoffice: &Postoffice) -> Result<(), Error> {
    serve(postoffice)?;
    if postoffice.role() == Role::Worker {
        let threads: Vec<_> = (0..2)
            .map(|customer| {
                let postoffice = postoffice.clone();
                thread::spawn(move || {
                    let kv = KvWorker::<f32>::new(&postoffice, 0, customer)?;
                    push_and_pull(&kv, &spread(10_000), 0.5)
                })
            })
            .collect();
        for thread in threads {
            match thread.join() {
                Ok(result) => result?,
                Err(_) => return Err(Error::Options("a customer panicked".to_owned())),
            }
        }
        postoffice.barrier(WORKER_GROUP)?;
        let kv = KvWorker::<f32>::new(postoffice, 0, 2)?;
        let workers = postoffice.num_workers() as f32;
        let error = error_sum(&kv, &spread(10_000), 0.5 * 2.0 * workers)?;
        println!("error {error}");
        ensure(error == 0.0, || format!("an error of {error}"))?;
    }
    postoffice.finalize()
}
