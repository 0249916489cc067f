//! Push, pull and push-pull of one key with many values: ours beside its peers, in turns.

use anyhow::Result;
use serde_json::{Map, Value};

use crate::{
    Options,
    figures::{Figures, beside, head},
    pair::{Pair, Sample},
};

/// A pair, and how tables and JSON call it.
pub(crate) struct Contender<'a> {
    name: &'static str,
    /// What its keys in the JSON line begin with.
    key: &'static str,
    /// Whether sums are measured too.
    sums: bool,
    pair: &'a mut Pair,
}

impl<'a> Contender<'a> {
    pub(crate) fn new(name: &'static str, key: &'static str, pair: &'a mut Pair) -> Self {
        Self {
            name,
            key,
            sums: false,
            pair,
        }
    }

    /// Has sums measured too.
    pub(crate) fn with_sums(self) -> Self {
        Self { sums: true, ..self }
    }
}

/// Requests in flight for messages of this size.
fn window(bytes: usize) -> usize {
    match bytes {
        ..=8192 => 64,
        8193..=262_144 => 16,
        _ => 4,
    }
}

/// Figures of a contender: values acknowledged, and added up.
#[derive(Clone, Copy, Default)]
struct Row {
    acknowledged: Figures,
    summed: Option<Figures>,
}

/// Measures all contenders, prints a table of the first one beside each of the others, and adds their figures to the JSON line.
pub(crate) fn compare(
    title: &str,
    contenders: &mut [Contender<'_>],
    options: &Options,
    json: &mut Map<String, Value>,
) -> Result<()> {
    let columns: String = ["GB/s", "CPU-s/GB", "us"]
        .map(|metric| head(metric, "peer"))
        .concat();
    println!("{title:28}{columns}");
    for &bytes in &options.sizes {
        let size = match bytes {
            ..1_048_576 => format!("{}kib", bytes >> 10),
            _ => format!("{}mib", bytes >> 20),
        };
        for operation in ["push", "pull", "pushpull"] {
            let rows = measure(contenders, operation, bytes, options)?;
            for (contender, row) in contenders.iter().zip(&rows) {
                let key = contender.key;
                let case = format!("{operation}_{size}");
                row.acknowledged.insert(&format!("{key}{case}"), json);
                if let Some(summed) = &row.summed {
                    summed.insert(&format!("{key}sum_{case}"), json);
                }
            }
            let peers: Vec<&str> = contenders.iter().map(|each| each.name).skip(1).collect();
            print_rows(&format!("{operation} {size}"), &rows, &peers);
        }
    }
    Ok(())
}

fn measure(
    contenders: &mut [Contender<'_>],
    operation: &str,
    bytes: usize,
    options: &Options,
) -> Result<Vec<Row>> {
    let mut cases = Vec::new();
    for (index, contender) in contenders.iter().enumerate() {
        cases.push((index, false));
        cases.extend(contender.sums.then_some((index, true)));
    }
    let mut rows = vec![Row::default(); contenders.len()];
    for (window, latency) in [(window(bytes), false), (1, true)] {
        let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); cases.len()];
        for turn in 0..=options.samples {
            for (&(index, sum), samples) in cases.iter().zip(&mut samples) {
                let command = match sum {
                    true => &format!("sum-{operation}"),
                    false => operation,
                };
                let pair = &mut contenders[index].pair;
                let sample = pair.measure(command, bytes, window, options.sample_ms)?;
                // The first one warms up.
                if turn > 0 {
                    samples.push(sample);
                }
            }
        }
        for (&(index, sum), samples) in cases.iter().zip(&samples) {
            let found = Figures::new(samples, bytes);
            let row = &mut rows[index];
            let figures = match sum {
                true => row.summed.get_or_insert_default(),
                false => &mut row.acknowledged,
            };
            match latency {
                true => figures.us = found.us,
                false => *figures = found,
            }
        }
    }
    Ok(rows)
}

fn print_rows(case: &str, rows: &[Row], peers: &[&str]) {
    let Some((ours, others)) = rows.split_first() else {
        return;
    };
    let print = |name: &str, ours: &Figures, peer: Option<Figures>| {
        println!(
            "{name:28}{}{}{}",
            beside(ours.gb_per_s, peer.map(|peer| peer.gb_per_s), 3),
            beside(ours.cpu_s_per_gb, peer.map(|peer| peer.cpu_s_per_gb), 3),
            beside(ours.us, peer.map(|peer| peer.us), 1),
        );
    };
    if others.is_empty() {
        print(case, &ours.acknowledged, None);
    }
    for (other, peer) in others.iter().zip(peers) {
        let name = format!("{case} / {peer}");
        print(&name, &ours.acknowledged, Some(other.acknowledged));
    }
    let Some(summed) = &ours.summed else {
        return;
    };
    for (other, peer) in others.iter().zip(peers) {
        // A peer that does not add up only acknowledges.
        let beside = other.summed.unwrap_or(other.acknowledged);
        print(&format!("sum {case} / {peer}"), summed, Some(beside));
    }
}
