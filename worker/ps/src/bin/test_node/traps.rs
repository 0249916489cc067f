//! Situations in which ps-lite hangs, crashes or loses something.

use std::{
    io::BufRead,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use elasticrun_ps::{
    ALL_NODES, Answer, Array, Error, Expect, Handler, KeyError, KvPairs, KvServer, KvWorker,
    NodeId, Options, Postoffice, Refusal, RequestMeta, RequestOptions, Role, SliceError,
    SummingHandler, WORKER_GROUP,
};

use crate::{ensure, scenarios::spread};

/// Waits until the test says so.
pub(crate) fn wait_for_line() {
    let _ = std::io::stdin().lock().lines().next();
}

/// Servers sum what is pushed, and each worker does this work.
fn with_sums(
    postoffice: &Postoffice,
    work: impl FnOnce(&KvWorker<f32>) -> Result<(), Error>,
) -> Result<(), Error> {
    match postoffice.role() {
        Role::Scheduler => {}
        Role::Server => {
            KvServer::<f32>::new(postoffice, 0, SummingHandler::default())?;
        }
        Role::Worker => work(&KvWorker::new(postoffice, 0, 0)?)?,
    }
    postoffice.finalize()
}

/// Workers push at once, without a barrier at the start. Servers register their handler only when the test says so.
pub(crate) fn first_millisecond() -> Result<(), Error> {
    let postoffice = Postoffice::start_async(Options::from_env()?)?;
    match postoffice.role() {
        Role::Scheduler => {}
        Role::Server => {
            println!("without a handler");
            wait_for_line();
            KvServer::<f32>::new(&postoffice, 0, SummingHandler::default())?;
        }
        Role::Worker => {
            let kv = KvWorker::<f32>::new(&postoffice, 0, 0)?;
            let keys = Array::from(spread(100));
            let pushed = kv.push(&keys, vec![1.0; 100])?;
            println!("pushed");
            kv.wait(pushed)?;
            postoffice.barrier(WORKER_GROUP)?;
            let values = kv.pull(&keys, 1)?.wait()?.values;
            let workers = postoffice.num_workers() as f32;
            ensure(values == vec![workers; 100], || format!("{values:?}"))?;
        }
    }
    postoffice.finalize()
}

/// One key, key 0, the largest key, all keys on one server, mixed lens, a pull of nothing, other types.
pub(crate) fn keys(postoffice: &Postoffice) -> Result<(), Error> {
    match postoffice.role() {
        Role::Scheduler => {}
        Role::Server => {
            KvServer::<f32>::new(postoffice, 0, SummingHandler::default())?;
            KvServer::<i64>::new(postoffice, 1, SummingHandler::default())?;
        }
        Role::Worker => {
            let kv = KvWorker::<f32>::new(postoffice, 0, 0)?;
            let all = [
                vec![0],
                vec![u64::MAX],
                vec![0, u64::MAX],
                vec![17],
                (100..1000).collect(),
                (u64::MAX - 500..=u64::MAX - 1).collect(),
            ];
            let mut pushes = std::collections::BTreeMap::<u64, f32>::new();
            for keys in &all {
                let pushed = kv.push(keys.clone(), vec![1.0; keys.len()])?;
                kv.wait(pushed)?;
                keys.iter()
                    .for_each(|key| *pushes.entry(*key).or_default() += 1.0);
            }
            postoffice.barrier(WORKER_GROUP)?;
            let keys: Vec<u64> = pushes.keys().copied().collect();
            let workers = postoffice.num_workers() as f32;
            let expected: Vec<f32> = pushes.values().map(|count| count * workers).collect();
            let found = kv.pull(keys, 1)?.wait()?.values;
            ensure(found == expected, || "the sums of single keys".to_owned())?;
            mixed_lens(postoffice)?;
        }
    }
    postoffice.finalize()
}

fn mixed_lens(postoffice: &Postoffice) -> Result<(), Error> {
    let kv = KvWorker::<i64>::new(postoffice, 1, 0)?;
    let keys = Array::from(spread(1000));
    let lens: Vec<u32> = (0..1000).map(|index| index % 5).collect();
    let lens = Array::from(lens);
    let count: u32 = lens.iter().sum();
    let values: Vec<i64> = (0..i64::from(count)).collect();
    let options = |lens: Option<&Array<u32>>| RequestOptions {
        lens: lens.cloned(),
        ..RequestOptions::default()
    };
    let pushed = kv.push_with(&keys, values.clone(), options(Some(&lens)))?;
    kv.wait(pushed)?;
    postoffice.barrier(WORKER_GROUP)?;
    let workers = i64::from(postoffice.num_workers());
    let expected: Vec<i64> = values.iter().map(|value| value * workers).collect();
    let unknown = kv
        .pull_with(&keys, Expect::Unknown, Vec::new(), options(None))?
        .wait()?;
    ensure(unknown.values == expected, || {
        "values of mixed lens".to_owned()
    })?;
    ensure(unknown.lens.as_deref() == Some(&*lens), || {
        "mixed lens".to_owned()
    })?;
    let known = kv
        .pull_with(&keys, Expect::Lens(lens), Vec::new(), options(None))?
        .wait()?;
    ensure(known.values == expected, || {
        "values of known lens".to_owned()
    })
}

/// Each mistake is an error with a name, and the next request works.
pub(crate) fn bad_input(postoffice: &Postoffice) -> Result<(), Error> {
    with_sums(postoffice, |kv| {
        let refused = |result: Result<_, Error>, fits: fn(&Error) -> bool| match result {
            Err(error) if fits(&error) => {
                println!("{error}");
                Ok(())
            }
            Err(error) => Err(error),
            Ok(()) => Err(Error::Options("wrong: it was accepted".to_owned())),
        };
        let push = |keys: &[u64], values: usize| kv.push(keys, vec![1.0; values]).map(drop);
        refused(push(&[2, 1], 2), |error| {
            matches!(error, Error::Keys(KeyError::Unsorted { .. }))
        })?;
        refused(push(&[2, 2], 2), |error| {
            matches!(error, Error::Keys(KeyError::Repeated { .. }))
        })?;
        refused(push(&[2, 3], 3), |error| {
            matches!(error, Error::Keys(KeyError::Uneven { .. }))
        })?;
        let none = kv.pull(Vec::new(), 1).map(drop);
        refused(none, |error| matches!(error, Error::Keys(KeyError::Empty)))?;
        let twice = KvWorker::<f32>::new(postoffice, 0, 0).map(drop);
        refused(twice, |error| matches!(error, Error::CustomerExists { .. }))?;
        let other = KvWorker::<i64>::new(postoffice, 0, 1)?;
        let pushed = other.push([1], [1])?;
        refused(other.wait(pushed), |error| {
            matches!(
                error,
                Error::Refused {
                    refusal: Refusal::TypeDiffers { .. },
                    ..
                }
            )
        })?;
        let unknown = kv.pull_with(
            [1u64 << 40],
            Expect::Unknown,
            Vec::new(),
            RequestOptions::default(),
        )?;
        refused(unknown.wait().map(drop), |error| {
            matches!(
                error,
                Error::Refused {
                    refusal: Refusal::BadRequest(_),
                    ..
                }
            )
        })?;
        let nobody = KvWorker::<f32>::new(postoffice, 9, 0)?;
        let pushed = nobody.push([1], [1.0])?;
        refused(nobody.wait(pushed), |error| {
            matches!(
                error,
                Error::Refused {
                    refusal: Refusal::NoHandler { app: 9, .. },
                    ..
                }
            )
        })?;
        kv.set_slicer(Arc::new(|keys, _| {
            vec![
                (NodeId::server(0), 0..keys.len()),
                (NodeId::server(1), 0..1),
            ]
        }));
        refused(push(&[1, 2], 2), |error| {
            matches!(error, Error::Slices(SliceError::Overlap { .. }))
        })?;
        // All on one server, by a slicer.
        kv.set_slicer(Arc::new(|keys, _| vec![(NodeId::server(1), 0..keys.len())]));
        let pushed = kv.push([5, u64::MAX], [1.0, 2.0])?;
        kv.wait(pushed)?;
        Ok(())
    })
}

/// Notes the order in which requests come.
#[derive(Default)]
struct Order(Mutex<Vec<i32>>);

impl Handler<f32> for Order {
    fn handle(&self, meta: &RequestMeta, _: KvPairs<'_, f32>, server: &KvServer<f32>) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(meta.cmd());
        // What the first request waits for: the others have been sent.
        if meta.cmd() == 0 {
            wait_for_line();
        }
        if meta.cmd() == 99 {
            let order = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            println!("order {order:?}");
        }
        server.respond(meta, elasticrun_ps::Answer::default());
    }
}

/// A worker sends more than a socket takes to a server that does not read. Later requests of higher priority overtake.
pub(crate) fn priority(postoffice: &Postoffice) -> Result<(), Error> {
    match postoffice.role() {
        Role::Scheduler => {}
        Role::Server => {
            KvServer::<f32>::new(postoffice, 0, Order::default())?;
        }
        Role::Worker => {
            let kv = KvWorker::<f32>::new(postoffice, 0, 0)?;
            let big = Array::from(vec![1.0f32; 8 << 20]);
            let push = |cmd, priority, values: &Array<f32>| {
                let options = RequestOptions {
                    cmd,
                    priority,
                    ..RequestOptions::default()
                };
                kv.push_with([1], values, options)
            };
            let small = Array::from(vec![1.0f32]);
            // The first keeps the server busy, and the second fills the socket.
            let mut pushed = vec![push(0, 0, &small)?, push(1, 0, &big)?];
            for (cmd, priority) in [(2, 0), (3, -1), (4, 5), (5, 0), (6, 5), (99, -9)] {
                pushed.push(push(cmd, priority, &small)?);
            }
            println!("sent");
            for timestamp in pushed {
                kv.wait(timestamp)?;
            }
        }
    }
    postoffice.finalize()
}

/// Workers push and pull until a node is lost, and say which.
pub(crate) fn until_lost(postoffice: &Postoffice) -> Result<(), Error> {
    println!("rank {} pid {}", postoffice.my_rank(), std::process::id());
    match postoffice.role() {
        Role::Server => {
            KvServer::<f32>::new(postoffice, 0, SummingHandler::default())?;
            postoffice.finalize()
        }
        Role::Scheduler => postoffice.finalize(),
        Role::Worker => {
            let kv = KvWorker::<f32>::new(postoffice, 0, 0)?;
            let keys = Array::from(spread(1000));
            let values = Array::from(vec![1.0; 1000]);
            let mut count = 0u64;
            loop {
                let once = || {
                    let pushed = kv.push(&keys, &values)?;
                    kv.wait(pushed)?;
                    kv.pull(&keys, 1)?.wait()
                };
                match once() {
                    Ok(_) => count += 1,
                    Err(error) => {
                        println!("lost: {error}");
                        let lost = matches!(error, Error::NodeLost { .. });
                        return ensure(lost, || format!("{error}"));
                    }
                }
                if count == 10 {
                    println!("working");
                }
            }
        }
    }
}

/// Workers push, and pull from all servers once the test says so.
pub(crate) fn asks_once(postoffice: &Postoffice) -> Result<(), Error> {
    println!("rank {}", postoffice.my_rank());
    with_sums(postoffice, |kv| {
        let keys = Array::from(spread(1000));
        kv.wait(kv.push(&keys, vec![1.0; 1000])?)?;
        println!("pushed");
        wait_for_line();
        kv.pull(&keys, 1)?.wait()?;
        Ok(())
    })
}

/// Workers push and pull until they are told to end, and go on after a node was lost and replaced.
pub(crate) fn replaced(postoffice: &Postoffice) -> Result<(), Error> {
    let (rank, recovery) = (postoffice.my_rank(), postoffice.is_recovery());
    println!("rank {rank} recovery {recovery}");
    with_sums(postoffice, |kv| {
        let keys = Array::from(spread(1000));
        let values = Array::from(vec![1.0; 1000]);
        let once = || {
            let pushed = kv.push(&keys, &values)?;
            kv.wait(pushed)?;
            let pulled = kv.pull(&keys, 1)?.wait()?.values;
            ensure(pulled.iter().all(|sum| *sum >= 1.0), || {
                "no sums".to_owned()
            })
        };
        let end = thread::spawn(|| std::io::stdin().lock().lines().next());
        let mut lost = false;
        let mut worked = false;
        while !end.is_finished() {
            match once() {
                Ok(()) if lost || !worked => {
                    println!("{}", if lost { "works again" } else { "working" });
                    (lost, worked) = (false, true);
                }
                Ok(()) => {}
                Err(error @ Error::NodeLost { .. }) if !lost => {
                    println!("lost: {error}");
                    lost = true;
                }
                Err(Error::NodeLost { .. }) => thread::sleep(Duration::from_millis(5)),
                Err(error) => return Err(error),
            }
        }
        let told = end.join().ok().flatten().and_then(Result::ok);
        ensure(told.as_deref() != Some("leave"), || "told to".to_owned())?;
        Ok(())
    })
}

/// A worker has no request in flight while its server is replaced. It is told all the same.
pub(crate) fn idle(postoffice: &Postoffice) -> Result<(), Error> {
    println!(
        "rank {} recovery {}",
        postoffice.my_rank(),
        postoffice.is_recovery()
    );
    with_sums(postoffice, |kv| {
        kv.wait(kv.push([1], vec![1.0])?)?;
        println!("pushed");
        wait_for_line();
        let told = match kv.pull([1], 1).and_then(elasticrun_ps::Pull::wait) {
            Err(Error::NodeLost { .. }) => "lost".to_owned(),
            other => format!("{other:?}"),
        };
        println!("told {told}");
        // It may have noticed the end of the server before it hears of the new one, of which it is told too.
        let found = loop {
            match kv.pull([1], 1).and_then(elasticrun_ps::Pull::wait) {
                Ok(pulled) => break pulled.values,
                Err(Error::NodeLost { .. }) => thread::sleep(Duration::from_millis(5)),
                Err(error) => return Err(error),
            }
        };
        ensure(found == [0.0], || format!("{found:?}"))?;
        Ok(())
    })
}

/// A server answers each pull with the number of the pull, all of them once the test says so.
pub(crate) fn late(postoffice: &Postoffice) -> Result<(), Error> {
    println!(
        "rank {} recovery {}",
        postoffice.my_rank(),
        postoffice.is_recovery()
    );
    match postoffice.role() {
        Role::Scheduler => {}
        Role::Server => {
            let asked = Arc::new(Mutex::new(Vec::new()));
            let keeps = asked.clone();
            let keep = move |meta: &RequestMeta, _: KvPairs<'_, f32>, _: &KvServer<f32>| {
                let mut asked = keeps.lock().unwrap_or_else(PoisonError::into_inner);
                asked.push(meta.clone());
                println!("asked {} at {}", asked.len(), meta.timestamp());
            };
            let server = KvServer::<f32>::new(postoffice, 0, keep)?;
            wait_for_line();
            let asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
            for (meta, number) in asked.iter().zip(1_u8..) {
                let values = Array::from(vec![f32::from(number)]);
                server.respond(meta, Answer { values, lens: None });
            }
        }
        Role::Worker => {
            let kv = KvWorker::<f32>::new(postoffice, 0, 0)?;
            let values = kv.pull([1], 1)?.wait()?.values;
            println!("got {values:?}");
        }
    }
    postoffice.finalize()
}

/// A barrier of all, which a node may not reach.
pub(crate) fn barrier(postoffice: &Postoffice) -> Result<(), Error> {
    println!("rank {} pid {}", postoffice.my_rank(), std::process::id());
    if postoffice.role() == Role::Worker && postoffice.my_rank() == 1 {
        // Until it is killed.
        wait_for_line();
    }
    postoffice.barrier(ALL_NODES)?;
    postoffice.finalize()
}
