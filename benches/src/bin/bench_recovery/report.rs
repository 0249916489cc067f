//! Results: a table for people, one line of JSON for programs.

use elasticrun_benches::figures::{millis, print, print_head, quantile, round};
use serde::Serialize;

use crate::{Mode, Trial, flags};

/// All times, by mode.
pub(crate) struct Report {
    ranks: u32,
    wait: Times,
    burn: Times,
    rss: Times,
    gloo: Vec<f64>,
}

/// Times of one mode, in milliseconds, from the kill to an event of the last survivor.
#[derive(Default)]
struct Times {
    /// It left the round.
    left: Vec<f64>,
    /// It began to train.
    begun: Vec<f64>,
    /// It committed a step.
    committed: Vec<f64>,
    /// Reported by the driver: from the report of the death to the start of the round.
    formed: Vec<f64>,
}

/// The last line of the output.
#[derive(Serialize)]
struct JsonReport {
    bench: &'static str,
    ranks: u32,
    trials: Option<usize>,
    median_ms: Option<f64>,
    p99_ms: Option<f64>,
    max_ms: Option<f64>,
    burn_median_ms: Option<f64>,
    burn_p99_ms: Option<f64>,
    burn_max_ms: Option<f64>,
    rss_1gib_median_ms: Option<f64>,
    rss_1gib_p99_ms: Option<f64>,
    rss_1gib_max_ms: Option<f64>,
    gloo_median_ms: Option<f64>,
    ratio_to_gloo: Option<f64>,
}

impl Report {
    pub(crate) fn new(ranks: u32) -> Self {
        let command = flags(ranks).join(" ");
        println!("elasticrun {command} WORKER");
        println!("state 1 MiB, one allreduce of 4 KiB and one commit a step; times in ms\n");
        print_head();
        Self {
            ranks,
            wait: Times::default(),
            burn: Times::default(),
            rss: Times::default(),
            gloo: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, mode: Mode, trials: &[Trial], formed: &[f64]) {
        let times = self.times_mut(mode);
        times.formed.extend(formed);
        times
            .left
            .extend(trials.iter().map(|trial| millis(trial.left)));
        times
            .begun
            .extend(trials.iter().map(|trial| millis(trial.begun)));
        times
            .committed
            .extend(trials.iter().map(|trial| millis(trial.committed)));
    }

    pub(crate) fn add_gloo(&mut self, time: std::time::Duration) {
        self.gloo.push(time.as_secs_f64() * 1e3);
    }

    pub(crate) fn print_mode(&mut self, mode: Mode) {
        let name = match mode {
            Mode::Wait => "steps that wait 1 ms",
            Mode::Burn => "steps that burn 1 ms",
            Mode::Rss => "wait 1 ms, victim of 1 GiB",
        };
        let times = self.times_mut(mode);
        print(name, &mut times.committed);
        print("  last survivor knows", &mut times.left);
        print("  last survivor trains", &mut times.begun);
        print("  in the driver, to the start", &mut times.formed);
        if mode == Mode::Wait && !self.gloo.is_empty() {
            let name = format!("gloo destroy + init, {} survivors", self.ranks - 1);
            print(&name, &mut self.gloo);
        }
    }

    pub(crate) fn finish(mut self) {
        let trials = [&self.wait, &self.burn, &self.rss]
            .map(|times| times.left.len())
            .into_iter()
            .max();
        let (median, gloo) = (
            quantile(&mut self.wait.committed, 0.5),
            quantile(&mut self.gloo, 0.5),
        );
        let ratio = median.zip(gloo).map(|(ours, theirs)| round(ours / theirs));
        let report = JsonReport {
            bench: "recovery",
            ranks: self.ranks,
            trials,
            median_ms: median,
            p99_ms: quantile(&mut self.wait.committed, 0.99),
            max_ms: quantile(&mut self.wait.committed, 1.0),
            burn_median_ms: quantile(&mut self.burn.committed, 0.5),
            burn_p99_ms: quantile(&mut self.burn.committed, 0.99),
            burn_max_ms: quantile(&mut self.burn.committed, 1.0),
            rss_1gib_median_ms: quantile(&mut self.rss.committed, 0.5),
            rss_1gib_p99_ms: quantile(&mut self.rss.committed, 0.99),
            rss_1gib_max_ms: quantile(&mut self.rss.committed, 1.0),
            gloo_median_ms: gloo,
            ratio_to_gloo: ratio,
        };
        println!("\n{}", serde_json::to_string(&report).unwrap_or_default());
    }

    fn times_mut(&mut self, mode: Mode) -> &mut Times {
        match mode {
            Mode::Wait => &mut self.wait,
            Mode::Burn => &mut self.burn,
            Mode::Rss => &mut self.rss,
        }
    }
}
