//! Reports to the user: a progress line, each decision, and a summary at the end.

mod decision;
mod events;
mod repeats;
mod spinner;
mod summary;
mod terminal;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use elasticrun_core::{Decision, Job, results::Outcome};
use elasticrun_protocol::HostId;

use elasticrun_plugin_sdk::text::one_line;
use tracing::Level;

use crate::journal::Notice;

pub(crate) use decision::{count, signal_text};
pub(crate) use events::Event;
use repeats::Repeats;
pub(crate) use summary::outcome as outcome_lines;
use summary::{RoundRow, Rounds};
pub(crate) use terminal::Terminal;

/// Prints what the driver reports.
#[derive(Debug)]
pub(crate) struct Reporter {
    terminal: Terminal,
    quiet: bool,
    run_id: String,
    began: Instant,
    rounds: Rounds,
    repeats: Repeats,
    commits: BTreeMap<HostId, u64>,
    /// Time and total commits of the last measurement.
    last: (Instant, u64),
    /// Commits per second of all workers.
    rate: f64,
}

impl Reporter {
    /// A reporter that writes to this terminal.
    pub(crate) fn new(terminal: Terminal, quiet: bool, run_id: String) -> Self {
        let now = Instant::now();
        Self {
            terminal,
            quiet,
            run_id,
            began: now,
            rounds: Rounds::default(),
            repeats: Repeats::default(),
            commits: BTreeMap::new(),
            last: (now, 0),
            rate: 0.0,
        }
    }

    /// Reports a decision of the job.
    pub(crate) fn report(&mut self, decision: &Decision) {
        if let Decision::RoundStarted {
            round,
            size,
            survivors,
            base,
            cause,
            took,
            ..
        } = decision
        {
            self.rounds.push(RoundRow {
                round: round.0,
                size: *size,
                survivors: *survivors,
                base: *base,
                cause: cause.to_string(),
                took: *took,
                started_at: self.began.elapsed(),
            });
        }
        match decision {
            Decision::GroupStarted {
                round,
                size,
                cause,
                took,
            } => self.rounds.push(RoundRow {
                round: round.0,
                size: *size,
                survivors: 0,
                base: None,
                cause: cause.to_string(),
                took: *took,
                started_at: self.began.elapsed(),
            }),
            // Until now only processes were started, and no round.
            Decision::Attached => self.rounds.clear(),
            _ => {}
        }
        let first = self.rounds.len() <= 1;
        let is_shown = !self.quiet || decision::is_warning(decision);
        let line = decision::line(decision, first);
        if self.terminal.is_json() {
            if is_shown {
                self.emit(Event::from_decision(decision), line.as_deref());
            }
        } else {
            if let Some(line) = line.filter(|_| is_shown) {
                self.line(decision, &line);
            }
            decision::log(decision);
        }
    }

    /// Prints the line of a decision, unless it is one of many that say the same.
    fn line(&mut self, decision: &Decision, line: &str) {
        let now = self.began.elapsed();
        let repeat = decision::repeat(decision);
        if repeat.is_none_or(|repeat| self.repeats.shows(now, repeat, line)) {
            self.terminal.line(line);
        }
    }

    fn emit(&self, mut event: Event, message: Option<&str>) {
        event
            .fields
            .insert("run".into(), self.run_id.clone().into());
        self.terminal.event(&event, message);
    }

    /// Prints a warning.
    pub(crate) fn warn(&self, text: &str) {
        if self.terminal.is_json() {
            self.emit(Event::message(Level::WARN), Some(text));
        } else {
            self.terminal.line(text);
        }
    }

    /// Reports that the journal cannot be written, or is written again.
    pub(crate) fn journal(&self, notice: &Notice) {
        let (event, text) = match notice {
            Notice::Failed(why) => (
                Event::journal_failed(why),
                format!(
                    "the journal cannot be written, and the job goes on without it: {}",
                    one_line(why)
                ),
            ),
            Notice::Works => (
                Event::journal_works(),
                "the journal is written again".to_owned(),
            ),
            Notice::Standbys(standbys) => (
                Event::standbys_changed(standbys),
                match standbys.is_empty() {
                    true => "no standby driver is left".to_owned(),
                    false => format!("standby drivers: {}", one_line(&standbys.join(", "))),
                },
            ),
            Notice::Replaced(by) => (
                Event::driver_deposed(by.as_deref()),
                format!(
                    "another driver{} continues this run, and this one ends",
                    by.as_ref()
                        .map_or(String::new(), |by| format!(" at {}", one_line(by)))
                ),
            ),
        };
        if self.terminal.is_json() {
            self.emit(event, Some(&text));
        } else {
            self.terminal.line(&text);
        }
    }

    /// Reports that a signal of the user ends the job.
    pub(crate) fn stopping(&self, signal: i32) {
        if !self.quiet {
            self.terminal.line(&format!(
                "stopping ({}); once more kills all workers at once",
                decision::signal_text(signal)
            ));
        }
    }

    /// Tells that the job ends once its journal has the outcome, for which it waits this long at most.
    pub(crate) fn waits_for_journal(&self, limit: Duration) {
        self.warn(&format!(
            "the job ends when its journal has recorded that, in {} s at most; a signal ends the wait",
            limit.as_secs()
        ));
    }

    /// Records the commits that the workers of a host have made so far.
    pub(crate) fn commits(&mut self, host: &HostId, commits: u64) {
        self.commits.insert(host.clone(), commits);
    }

    /// Updates the rate and the progress line, and prints how often lines were repeated. Once per heartbeat interval.
    pub(crate) fn on_heartbeat(&mut self, job: &Job) {
        for line in self.repeats.due(self.began.elapsed()) {
            self.terminal.line(&line);
        }
        let (total, now) = (self.commits.values().sum::<u64>(), Instant::now());
        let elapsed = now.duration_since(self.last.0);
        if elapsed >= Duration::from_millis(500) {
            self.rate = total.saturating_sub(self.last.1) as f64 / elapsed.as_secs_f64();
            self.last = (now, total);
        }
        self.progress(job);
    }

    /// Updates the progress line. Cost: O(hosts), if there is one.
    pub(crate) fn progress(&self, job: &Job) {
        if self.quiet || !self.terminal.shows_progress() {
            return;
        }
        let census = job.fleet().census();
        let hosts = job
            .fleet()
            .hosts()
            .filter(|(_, host)| host.live().next().is_some())
            .count();
        let round = (self.rounds.current())
            .map_or("no round yet".to_owned(), |round| format!("round {round}"));
        let hosts = decision::count(hosts, "host");
        let mut line = format!("{round} · {} training on {hosts}", census.training);
        for (count, state) in [(census.waiting, "waiting"), (census.starting, "starting")] {
            if count > 0 {
                line += &format!(" · {count} {state}");
            }
        }
        if self.last.1 > 0 {
            line += &format!(
                " · {:.0} commits/s",
                self.rate / f64::from(census.training.max(1) as u32)
            );
        }
        self.terminal.progress(&line);
    }

    /// Prints the summary: rounds with causes and recovery times, then the outcome as the last line.
    pub(crate) fn finish(&mut self, outcome: &Outcome, exit_code: u8, job: &Job) {
        if self.terminal.is_json() {
            let failure = job.results().named_failure();
            let failure = failure.filter(|_| *outcome != Outcome::Succeeded);
            let event = Event::from_outcome(outcome, failure, exit_code);
            let lines = summary::outcome(outcome, job);
            return self.emit(event, lines.last().map(String::as_str));
        }
        for line in self.repeats.finish() {
            self.terminal.line(&line);
        }
        if !self.quiet {
            for line in summary::rounds(&self.rounds, self.began.elapsed()) {
                self.terminal.line(&line);
            }
        }
        for line in summary::outcome(outcome, job) {
            self.terminal.line(&line);
        }
    }
}
