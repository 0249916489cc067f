//! What boundaries and commits cost while nothing changes, alone in a world of one.
//!
//! `cargo run --release -p elasticrun-worker --example boundaries`

use std::time::{Duration, Instant};

use elasticrun_worker::{ElasticSampler, Error, run};

const CHECKS: u32 = 10_000_000;

fn main() -> Result<(), Error> {
    run(&mut (), |session, state| {
        let began = Instant::now();
        for _ in 0..CHECKS {
            session.check_host_updates(state)?;
        }
        report("check_host_updates", began.elapsed(), CHECKS);

        for (len, times) in [
            (16, 1_000_000),
            (1 << 10, 300_000),
            (1 << 18, 300),
            (1 << 24, 5),
        ] {
            let mut state = vec![1.0_f32; len];
            // Both buffers grow first.
            for _ in 0..2 {
                session.commit(&mut state)?;
            }
            let began = Instant::now();
            for _ in 0..times {
                session.commit(&mut state)?;
            }
            report(
                &format!("commit of {} KiB", len * 4 / 1024),
                began.elapsed(),
                times,
            );
        }

        let sampler = ElasticSampler::new(100_000_000, 1);
        let Some(batch) = sampler.next_batch(session.world(), 1_000_000) else {
            return Ok(());
        };
        let began = Instant::now();
        let sum = batch.indices().fold(0_u64, u64::wrapping_add);
        report("index of a sampler", began.elapsed(), batch.len() as u32);
        assert!(sum > 0);
        Ok::<_, Error>(())
    })
}

fn report(what: &str, took: Duration, times: u32) {
    println!(
        "{what}: {:.1} ns",
        took.as_secs_f64() * 1e9 / f64::from(times)
    );
}
