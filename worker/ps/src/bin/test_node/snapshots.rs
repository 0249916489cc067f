//! Workers push, have snapshots taken and print what is there, as the test tells them line by line.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    io::BufRead,
};

use elasticrun_ps::{
    Array, ElasticApp, ElasticServer, Element, Error, Expect, Init, KvWorker, Optimizer, Options,
    Postoffice, RequestOptions, Role,
};

use crate::scenarios::spread;

const KEYS: u64 = 5000;
/// An app with an optimizer, whose state is saved with the weights.
const WEIGHTS: u32 = 1;

pub(crate) fn run() -> Result<(), Error> {
    let postoffice = Postoffice::start(Options::from_env()?)?;
    match postoffice.role() {
        Role::Scheduler => {}
        Role::Server => {
            let (init, optimizer) = (Init::uniform(-1.0, 1.0, 3), Optimizer::adam(0.1));
            let weights = ElasticApp::optimizing::<f32>(WEIGHTS, init, optimizer);
            let weights = weights.map_err(|error| Error::Options(error.to_string()))?;
            ElasticServer::start(&postoffice, [ElasticApp::sums::<f64>(0), weights])?;
            println!("serving {}", postoffice.my_rank());
        }
        Role::Worker => work(&postoffice)?,
    }
    postoffice.finalize()
}

fn work(postoffice: &Postoffice) -> Result<(), Error> {
    let sums = KvWorker::<f64>::new(postoffice, 0, 0)?;
    let weights = KvWorker::<f32>::new(postoffice, WEIGHTS, 0)?;
    let keys = Array::from(spread(KEYS));
    println!("working");
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let (word, number) = line.split_once(' ').unwrap_or((&line, "0"));
        let number: u64 = number.parse().unwrap_or(0);
        match word {
            "push" => {
                let values: Vec<f64> = (0..KEYS).map(|key| (key + number) as f64).collect();
                let pushed = sums.push(&keys, values)?;
                sums.wait(pushed)?;
                let gradient = |key: u64| (key % 7) as f32 - 3.0 + number as f32;
                let pushed = weights.push(&keys, (0..KEYS).map(gradient).collect::<Vec<_>>())?;
                weights.wait(pushed)?;
                println!("pushed {number}");
            }
            "save" => match postoffice.snapshot() {
                Ok(number) => println!("saved as {number}"),
                Err(error) => println!("not saved: {error}"),
            },
            "show" => {
                let found = values(&sums, &keys)?;
                let ends = (found.first(), found.last());
                let sums = hash(found.iter().map(|value| value.to_bits()));
                let found = values(&weights, &keys)?;
                let weights = hash(found.iter().map(|value| u64::from(value.to_bits())));
                println!("{ends:?}, sums {sums:x}, weights {weights:x}");
            }
            _ => break,
        }
    }
    Ok(())
}

/// The values of all keys; none if there are no such keys yet.
fn values<T: Element>(kv: &KvWorker<T>, keys: &Array<u64>) -> Result<Vec<T>, Error> {
    let pull = kv.pull_with(keys, Expect::Unknown, Vec::new(), RequestOptions::default())?;
    match pull.wait() {
        Ok(found) => Ok(found.values),
        Err(Error::Refused { .. }) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn hash(bits: impl Iterator<Item = u64>) -> u64 {
    let mut hasher = DefaultHasher::new();
    bits.for_each(|bits| bits.hash(&mut hasher));
    hasher.finish()
}
