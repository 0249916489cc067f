//! Measures the redistribution of the rest of an epoch when the workers change: its time, the
//! number of rows that move, and the bytes of a worker's report at a commit.
//!
//! Each worker is at a random position in its share, with four row groups open. Then one in 200
//! workers leaves. The plan is compared with the lower bound of all even plans, and with a re-shard
//! by modulo, as most loaders do.
//!
//! `bench_repartition [--groups N,N,...] [--workers N,N,...] [--trials N]`

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Parser;
use elasticrun_core::random::Random;
use elasticrun_ledger::{
    DatasetId, EpochLayout, FormerMember, Ledger, Member, Owner, Share, Shuffle, Split, repartition,
};
use serde::Serialize;

/// Rows of a row group.
const ROWS: u32 = 4096;
/// Row groups that a worker has open: a shuffle over 16,384 rows.
const OPEN: usize = 4;

#[derive(Parser)]
struct Options {
    /// Row groups.
    #[arg(long, value_delimiter = ',', default_value = "10000,100000,1000000")]
    groups: Vec<u32>,
    /// Workers before the change.
    #[arg(long, value_delimiter = ',', default_value = "100,1000,10000")]
    workers: Vec<usize>,
    /// Plans of each size; the median counts.
    #[arg(long, default_value_t = 9)]
    trials: usize,
}

#[derive(Serialize)]
struct Figures {
    bench: &'static str,
    groups: u32,
    workers: usize,
    then: usize,
    line_ms: f64,
    repartition_ms: f64,
    ledger_bytes: usize,
    moved_rows: u64,
    bound_rows: u64,
    modulo_rows: u64,
    commit_bytes_median: usize,
    commit_bytes_most: usize,
}

fn main() -> Result<()> {
    let options = Options::parse();
    println!(
        "row groups  workers        line       plan     ledger  moved rows     bound  by modulo  bytes a commit"
    );
    for groups in &options.groups {
        for workers in &options.workers {
            let figures = measure(*groups, *workers, options.trials)?;
            println!(
                "{:>10} {:>8} {:>8.2} ms {:>7.2} ms {:>7} kB {:>11} {:>9} {:>10} {:>15}",
                figures.groups,
                figures.workers,
                figures.line_ms,
                figures.repartition_ms,
                figures.ledger_bytes / 1000,
                figures.moved_rows,
                figures.bound_rows,
                figures.modulo_rows,
                figures.commit_bytes_median,
            );
            println!("{}", serde_json::to_string(&figures)?);
        }
    }
    Ok(())
}

fn measure(groups: u32, workers: usize, trials: usize) -> Result<Figures> {
    let rows = vec![ROWS; groups as usize];
    let shuffle = Some(Shuffle { seed: 1, epoch: 0 });
    let (layout, line_time) = timed(trials, || EpochLayout::new(&rows, shuffle));
    let identity = DatasetId {
        rows: layout.rows(),
        groups,
        digest: 0,
    };
    let mut ledger = Ledger::new(identity, Some(1));
    let people: Vec<(Owner, u32)> = (0..workers as u64)
        .map(|id| {
            (
                Owner {
                    id: id + 1,
                    host: id / 8,
                    zone: id / 1024,
                },
                1,
            )
        })
        .collect();
    ledger.share_out(&layout, &people, Split::Rows);
    let mut random = Random::from_seed(2);
    let mut said = Vec::new();
    for rank in 0..workers {
        let share = work(&layout, &ledger.shares()[rank], &mut random);
        let mut bytes = Vec::new();
        share.encode(&mut bytes);
        said.push(bytes.len() + size_of::<u64>());
        ledger.record(rank, share)?;
    }
    said.sort_unstable();

    let gone = workers.div_ceil(200);
    let left = workers - gone;
    let former: Vec<FormerMember<'_>> = (ledger.shares().iter().zip(&people))
        .map(|(share, (owner, _))| FormerMember {
            share,
            host: owner.host,
            zone: owner.zone,
        })
        .collect();
    // Every 200th worker has left.
    let members: Vec<Member> = (people.iter().enumerate())
        .filter(|(rank, _)| rank % 200 != 7 % workers.min(200))
        .map(|(rank, (owner, weight))| Member {
            former: Some(rank),
            weight: *weight,
            host: owner.host,
            zone: owner.zone,
        })
        .collect();
    ensure!(members.len() == left, "{} workers are left", members.len());
    let (plan, plan_time) = timed(trials, || {
        repartition(&layout, &former, &members, Split::Rows)
    });
    let held: Vec<u64> = members
        .iter()
        .filter_map(|member| Some(former[member.former?].share.rows()))
        .collect();
    let bound = bound(ledger.left(), &held);
    ensure!(
        plan.moved == bound,
        "{} rows move where {bound} are enough",
        plan.moved
    );
    // By modulo, remaining row r moves from worker r % before to worker r % after.
    let stay = ledger.left() * left.min(workers) as u64 / lcm(workers as u64, left as u64);
    Ok(Figures {
        bench: "repartition",
        groups,
        workers,
        then: left,
        line_ms: line_time.as_secs_f64() * 1e3,
        repartition_ms: plan_time.as_secs_f64() * 1e3,
        ledger_bytes: ledger.encode().len(),
        moved_rows: plan.moved,
        bound_rows: bound,
        modulo_rows: ledger.left() - stay.min(ledger.left()),
        commit_bytes_median: said[workers / 2],
        commit_bytes_most: said[workers - 1],
    })
}

/// A random position in the share: the rows of the open row groups are processed in any proportion.
fn work(layout: &EpochLayout, share: &Share, random: &mut Random) -> Share {
    let done = random.below(share.rows() / 2 + 1);
    let rest = share.without_first(done);
    let mut opened = 0;
    let mut left = Vec::new();
    for piece in rest.clone().segments(layout).take(OPEN) {
        let range = piece.range();
        let len = range.end - range.start;
        opened += len;
        left.push(range.start + random.below(len)..range.end);
    }
    left.into_iter()
        .chain(rest.without_first(opened).ranges().iter().cloned())
        .collect()
}

/// The minimum number of rows that an even plan moves.
fn bound(total: u64, held: &[u64]) -> u64 {
    let (each, more) = (total / held.len() as u64, total % held.len() as u64);
    let orphans = total - held.iter().sum::<u64>();
    let surplus: u64 = held.iter().map(|rows| rows.saturating_sub(each)).sum();
    let keepers = held.iter().filter(|rows| **rows > each).count() as u64;
    orphans + surplus - more.min(keepers)
}

fn lcm(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a, b);
    while y > 0 {
        (x, y) = (y, x % y);
    }
    a / x * b
}

/// Runs `work` several times. Returns its result and the median time.
fn timed<T>(trials: usize, mut work: impl FnMut() -> T) -> (T, Duration) {
    let mut times = Vec::new();
    loop {
        let began = Instant::now();
        let result = work();
        times.push(began.elapsed());
        if times.len() >= trials.max(1) {
            times.sort_unstable();
            return (result, times[times.len() / 2]);
        }
    }
}
