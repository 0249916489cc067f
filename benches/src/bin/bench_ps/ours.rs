//! The nodes of ours.

use std::{
    collections::VecDeque,
    io::stdin,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use elasticrun_benches::figures::quantile;
use elasticrun_ps::{
    Answer, Array, Expect, Expected, Handler, KvPairs, KvServer, KvWorker, Optimizer,
    OptimizingHandler, Options, Postoffice, Pull, RequestMeta, RequestOptions, Role, SparseStore,
    SummingHandler, Timestamp,
};

/// The cmd of requests that are added up.
const SUM: i32 = 1;

/// The optimizers, whose cmds follow.
pub(crate) const OPTIMIZERS: [&str; 4] = ["sgd", "momentum", "adagrad", "adam"];

/// Adds up, optimizes, or only acknowledges.
struct Bench {
    sum: SummingHandler<f32>,
    optimizers: Vec<OptimizingHandler<f32>>,
    zeros: Array<f32>,
}

impl Bench {
    fn new() -> Result<Self> {
        let optimizers = [
            Optimizer::sgd(0.01),
            Optimizer::momentum(0.01, 0.9),
            Optimizer::adagrad(0.01),
            Optimizer::adam(0.01),
        ];
        let optimizers = optimizers
            .into_iter()
            .map(|optimizer| OptimizingHandler::new(SparseStore::default(), optimizer));
        Ok(Self {
            sum: SummingHandler::default(),
            optimizers: optimizers.collect::<Result<_, _>>()?,
            zeros: vec![0.0; 4 << 20].into(),
        })
    }
}

impl Handler<f32> for Bench {
    fn handle(&self, meta: &RequestMeta, pairs: KvPairs<'_, f32>, server: &KvServer<f32>) {
        if meta.cmd() == SUM {
            return self.sum.handle(meta, pairs, server);
        }
        let optimizer = usize::try_from(meta.cmd() - SUM - 1).ok();
        if let Some(handler) = optimizer.and_then(|index| self.optimizers.get(index)) {
            return handler.handle(meta, pairs, server);
        }
        let mut answer = Answer::default();
        if let (true, Expected::Known(lens)) = (meta.is_pull(), pairs.expected) {
            answer.values = self.zeros.slice(0..lens.total(0, pairs.keys.len()));
        }
        server.respond(meta, answer);
    }
}

pub(crate) fn run() -> Result<()> {
    let postoffice = Postoffice::start_async(Options::from_env()?)?;
    if postoffice.role() == Role::Worker {
        return work(&postoffice);
    }
    if postoffice.role() == Role::Server {
        KvServer::<f32>::new(&postoffice, 0, Bench::new()?)?;
    }
    // Until it is killed.
    for line in stdin().lines() {
        line?;
    }
    Ok(())
}

enum InFlight {
    Push(Timestamp),
    Pull(Pull<f32>),
}

fn work(postoffice: &Postoffice) -> Result<()> {
    let kv = KvWorker::<f32>::new(postoffice, 0, 0)?;
    println!("ready");
    for line in stdin().lines() {
        let line = line?;
        let mut words = line.split(' ');
        let mut word = || words.next().context("four words");
        let (operation, size) = (word()?, word()?.parse::<usize>()?);
        let (window, millis) = (word()?.parse::<usize>()?, word()?.parse()?);
        let (count, seconds, median) =
            measure(&kv, operation, size, window, Duration::from_millis(millis))?;
        println!("{count} {seconds} {median}");
    }
    Ok(())
}

/// So many keys that are all in the store after the first push, or of which it has ten times as many.
fn sparse_keys(size: usize, some: bool) -> Vec<u64> {
    let mut state = 7u64;
    let mut key = 1 << 32;
    let keys = (0..size).map(|_| {
        state = (state.wrapping_mul(6_364_136_223_846_793_005)).wrapping_add(1);
        key += if some {
            3 * (1 + (state >> 33) % 19)
        } else {
            3
        };
        key
    });
    keys.collect()
}

fn measure(
    kv: &KvWorker<f32>,
    operation: &str,
    size: usize,
    window: usize,
    limit: Duration,
) -> Result<(usize, f64, f64)> {
    let (kind, operation) = operation.split_once('-').unwrap_or(("", operation));
    let optimizer = OPTIMIZERS.iter().position(|name| *name == kind);
    let sparse = matches!(kind, "sparse" | "some") || optimizer.is_some();
    let keys: Array<u64> = match sparse {
        true => sparse_keys(size, kind == "some").into(),
        // A key for each size: a key has a fixed number of values.
        false => vec![size as u64].into(),
    };
    let count = if sparse { size } else { size / 4 };
    let values = Array::from(vec![1.0f32; count]);
    let cmd = match optimizer {
        Some(index) => SUM + 1 + index as i32,
        None if sparse || kind == "sum" => SUM,
        None => 0,
    };
    let options = || RequestOptions {
        cmd,
        ..RequestOptions::default()
    };
    let mut memory: Vec<Vec<f32>> = Vec::new();
    let mut in_flight: VecDeque<(Instant, InFlight)> = VecDeque::new();
    let mut times = Vec::new();
    let start = Instant::now();
    let mut finish =
        |in_flight: &mut VecDeque<(Instant, InFlight)>, memory: &mut Vec<Vec<f32>>| -> Result<()> {
            let Some((begun, request)) = in_flight.pop_front() else {
                return Ok(());
            };
            match request {
                InFlight::Push(timestamp) => kv.wait(timestamp)?,
                InFlight::Pull(pull) => memory.push(pull.wait()?.values),
            }
            times.push(begun.elapsed().as_secs_f64() * 1e6);
            Ok(())
        };
    let mut begun = 0;
    while begun < window || start.elapsed() < limit {
        if in_flight.len() == window {
            finish(&mut in_flight, &mut memory)?;
        }
        let now = Instant::now();
        let buffer = memory.pop().unwrap_or_default();
        let request = match operation {
            "push" => InFlight::Push(kv.push_with(&keys, &values, options())?),
            "pull" => {
                let expect = Expect::PerKey(count / keys.len());
                InFlight::Pull(kv.pull_with(&keys, expect, buffer, options())?)
            }
            _ => InFlight::Pull(kv.push_pull_with(&keys, &values, buffer, options())?),
        };
        in_flight.push_back((now, request));
        begun += 1;
    }
    while !in_flight.is_empty() {
        finish(&mut in_flight, &mut memory)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    let median = quantile(&mut times, 0.5).unwrap_or(0.0);
    Ok((begun, seconds, median))
}
