//! Measures how soon a driver hears of a worker's death: from SIGKILL to the report in the driver's hands.
//!
//! `cargo run -p elasticrun-agent --example latency -- [KILLS] [WORKERS] [MEGABYTES]`; build the examples before. It kills
//! one of the workers of a round, again and again; the victim has so many megabytes resident. The agent's own
//! share, from the first sign of the death to report and abort done, is in its log.

#![expect(clippy::unwrap_used, reason = "a tool for the bench")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::Instant;

use common::{Driver, kill, left_of, process, worker};
use elasticrun_protocol::{Generation, LocalRank, Process, Report};

fn argument(place: usize, default: u32) -> u32 {
    let text = std::env::args().nth(place);
    text.map_or(default, |text| text.parse().unwrap())
}

/// The worker of a slot.
fn pid_of(run_id: &str, slot: u32) -> u32 {
    let mark = format!("\0LOCAL_RANK={slot}\0");
    let is = |pid: &u32| {
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
        String::from_utf8_lossy(&environ).contains(&mark)
    };
    left_of(run_id).into_iter().find(is).unwrap()
}

fn summary(name: &str, mut micros: Vec<u64>) {
    micros.sort_unstable();
    let at = |share: usize| micros[(micros.len() - 1) * share / 100];
    println!(
        "{name}: median {} us, p90 {} us, p99 {} us, max {} us",
        at(50),
        at(90),
        at(99),
        at(100)
    );
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let (kills, size, ballast) = (argument(1, 200), argument(2, 8), argument(3, 0));
    let words = [
        format!("ballast={ballast}"),
        "attach".into(),
        "rounds".into(),
    ];
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let driver = Driver::new(worker(&words)).await;
    let (agent, mut control, mut lines) = driver.with_agent().await;
    let mut members: Vec<_> = (0..size).map(|slot| process(slot, 1)).collect();
    for slot in 0..size {
        control.spawn_of(slot, 1, size).await;
    }
    control.all_wait(size as usize).await;
    let (mut heard, mut gone) = (Vec::new(), Vec::new());
    for round in 1..=u64::from(kills) {
        control.start(round, &members, None, None).await;
        // All train: who dies earlier is the driver's business.
        let mut training = 0;
        while training < size as usize {
            let text = lines.next().await.unwrap().text;
            training += text.matches(&format!("start round={round} ")).count();
        }
        let slot = (round % u64::from(size)) as u32;
        let victim = pid_of(&driver.run_id, slot);
        let begun = Instant::now();
        kill(victim, libc::SIGKILL);
        let report = control.report().await.unwrap();
        heard.push(begun.elapsed().as_micros() as u64);
        assert!(matches!(report, Report::Lost { .. }), "{report:?}");
        let report = control.report().await.unwrap();
        gone.push(begun.elapsed().as_micros() as u64);
        assert!(matches!(report, Report::Exited { .. }), "{report:?}");
        let next = Process {
            local_rank: LocalRank(slot),
            generation: Generation(members[slot as usize].generation.0 + 1),
        };
        members[slot as usize] = next;
        control.spawn_of(slot, next.generation.0, size).await;
        control.all_wait(1).await;
    }
    println!("{kills} kills of 1 of {size} workers with {ballast} MB resident");
    summary("SIGKILL to Lost at the driver", heard);
    summary("SIGKILL to Exited at the driver", gone);
    agent.signal(libc::SIGTERM);
    let (_, log) = agent.end().await;
    let field = |name: &str| {
        let numbers = log.lines().filter_map(|line| {
            let (_, rest) = line.split_once(name)?;
            let digits = rest.chars().take_while(char::is_ascii_digit);
            digits.collect::<String>().parse().ok()
        });
        numbers.collect::<Vec<_>>()
    };
    summary("agent: sign of death to its loop", field("woken="));
    summary(
        "agent: sign of death to report written and round aborted",
        field("micros="),
    );
}
