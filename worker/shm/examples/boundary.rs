//! Prints what a boundary costs a worker while nothing is asked of it.
//!
//! `cargo run --release -p elasticrun-shm --example boundary`

use std::time::Instant;

use elasticrun_protocol::Round;
use elasticrun_shm::page::{AgentPage, AtBoundary, WorkerPage};

const CALLS: u32 = 10_000_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let agent = AgentPage::create()?;
    let worker = WorkerPage::open(&agent)?;
    let mut costs = Vec::new();
    for number in 1..=7 {
        let mut round = worker.enter(Round(number));
        let start = Instant::now();
        for _ in 0..CALLS {
            if round.boundary() != AtBoundary::Continue {
                return Err("nobody holds this round".into());
            }
        }
        costs.push(start.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS));
    }
    costs.sort_by(f64::total_cmp);
    println!("a boundary: {:.1} ns (median of {})", costs[3], costs.len());
    Ok(())
}
