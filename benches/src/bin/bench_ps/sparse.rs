//! One value for a key: requests of many keys beside those of ps-lite, and pushes to optimizers.

use anyhow::Result;
use elasticrun_benches::figures::quantile;
use serde_json::{Map, Value, json};

use crate::{
    Options,
    figures::{beside, head},
    ours::OPTIMIZERS,
    pair::{Pair, Sample},
};

/// Requests of all keys of the server, and of a tenth of them.
const REQUESTS: [&str; 4] = ["sparse-push", "sparse-pull", "some-push", "some-pull"];

/// Nanoseconds for a key.
struct PerKey {
    wall: f64,
    cpu: f64,
}

/// Measures both, prints a table, and adds the figures to the JSON line.
pub(crate) fn compare(
    ours: &mut Pair,
    mut pslite: Option<&mut Pair>,
    options: &Options,
    json: &mut Map<String, Value>,
) -> Result<()> {
    println!(
        "{:28}{}{}",
        "one value for a key",
        head("ns/key", "ps-lite"),
        head("CPU ns", "ps-lite")
    );
    for &keys in &options.sparse {
        for operation in REQUESTS {
            let mut pairs = vec![&mut *ours];
            pairs.extend(pslite.as_deref_mut());
            let found = measure(&mut pairs, operation, keys, options)?;
            show(operation, keys, &found, json);
        }
        for optimizer in OPTIMIZERS {
            let operation = format!("{optimizer}-push");
            let found = measure(&mut [&mut *ours], &operation, keys, options)?;
            show(&operation, keys, &found, json);
        }
    }
    Ok(())
}

fn measure(
    pairs: &mut [&mut Pair],
    operation: &str,
    keys: usize,
    options: &Options,
) -> Result<Vec<PerKey>> {
    let mut samples = vec![Vec::new(); pairs.len()];
    for turn in 0..=options.samples {
        for (pair, samples) in pairs.iter_mut().zip(&mut samples) {
            // "some" reads and writes a tenth of the keys of a store.
            if turn == 0 && operation == "some-push" {
                pair.measure("sparse-push", keys * 10, 1, 1)?;
            }
            let sample = pair.measure(operation, keys, 1, options.sample_ms)?;
            if turn > 0 {
                samples.push(sample);
            }
        }
    }
    let median = |samples: &[Sample], seconds: &dyn Fn(&Sample) -> f64| {
        let per_key = |sample| seconds(sample) * 1e9 / (sample.count * keys) as f64;
        let mut values: Vec<f64> = samples.iter().map(per_key).collect();
        quantile(&mut values, 0.5).unwrap_or(f64::NAN)
    };
    let per_key = |samples: &Vec<Sample>| PerKey {
        wall: median(samples, &|sample| sample.seconds),
        cpu: median(samples, &|sample| sample.cpu_seconds),
    };
    Ok(samples.iter().map(per_key).collect())
}

/// The figures of ours, and those of ps-lite if it took part.
fn show(operation: &str, keys: usize, found: &[PerKey], json: &mut Map<String, Value>) {
    let [ours, peer @ ..] = found else {
        return;
    };
    let peer = peer.first();
    println!(
        "{:28}{}{}",
        format!("{operation} {keys}"),
        beside(ours.wall, peer.map(|peer| peer.wall), 2),
        beside(ours.cpu, peer.map(|peer| peer.cpu), 2),
    );
    for (key, found) in ["", "pslite_"].iter().zip(found) {
        let name = format!("{key}{}_{keys}", operation.replace('-', "_"));
        json.insert(format!("{name}_ns_per_key"), json!(found.wall));
        json.insert(format!("{name}_cpu_ns_per_key"), json!(found.cpu));
    }
}
