//! Figures: a table for people, one line of JSON for programs.

use elasticrun_benches::figures::{at, millis, print, print_head, round};
use serde::Serialize;

use crate::{Mode, Trial, flags};

/// All times, by what was measured.
pub(crate) struct Report {
    ranks: u32,
    wait: Times,
    burn: Times,
    rss: Times,
    gloo: Vec<f64>,
}

/// Times of one mode, in milliseconds: from the kill to the last survivor's
#[derive(Default)]
struct Times {
    /// leaving the round,
    left: Vec<f64>,
    /// beginning to train,
    begun: Vec<f64>,
    /// commit.
    committed: Vec<f64>,
    /// As the driver says: from the report of the death to the start of the round.
    formed: Vec<f64>,
}

/// The last line.
#[derive(Serialize)]
struct Line {
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
        let times = self.of(mode);
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
        let times = self.of(mode);
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
        let (median, gloo) = (at(&mut self.wait.committed, 0.5), at(&mut self.gloo, 0.5));
        let ratio = median.zip(gloo).map(|(ours, theirs)| round(ours / theirs));
        let line = Line {
            bench: "recovery",
            ranks: self.ranks,
            trials,
            median_ms: median,
            p99_ms: at(&mut self.wait.committed, 0.99),
            max_ms: at(&mut self.wait.committed, 1.0),
            burn_median_ms: at(&mut self.burn.committed, 0.5),
            burn_p99_ms: at(&mut self.burn.committed, 0.99),
            burn_max_ms: at(&mut self.burn.committed, 1.0),
            rss_1gib_median_ms: at(&mut self.rss.committed, 0.5),
            rss_1gib_p99_ms: at(&mut self.rss.committed, 0.99),
            rss_1gib_max_ms: at(&mut self.rss.committed, 1.0),
            gloo_median_ms: gloo,
            ratio_to_gloo: ratio,
        };
        println!("\n{}", serde_json::to_string(&line).unwrap_or_default());
    }

    fn of(&mut self, mode: Mode) -> &mut Times {
        match mode {
            Mode::Wait => &mut self.wait,
            Mode::Burn => &mut self.burn,
            Mode::Rss => &mut self.rss,
        }
    }
}
