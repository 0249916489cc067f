//! Drivers that die at any moment, with a journal that lags, and agents that come back or do not.
//!
//! Each seed is one schedule of failures and deaths. A failure prints its seed.

use std::collections::BTreeSet;

use elasticrun_core::{
    Decision, Settings,
    blacklist::Domain,
    random::Random,
    results::{Outcome, Reason},
};
use elasticrun_protocol::{AgentReport, CommitId, Round, control::Exit};

use crate::harness::{Harness, host, range, seconds};

const SEEDS: u64 = 2_000;

/// Actions of one schedule.
const ACTIONS: u64 = 25;

const HOSTS: [&str; 3] = ["a", "b", "c"];

struct Play {
    harness: Harness,
    random: Random,
    slots: u32,
    /// The last round that has started, under any driver.
    last: Round,
    /// The newest commit before the current action, of agents that are not lost by it.
    newest: Option<CommitId>,
    /// Hosts that are lost by the current action.
    lost: BTreeSet<&'static str>,
    /// Domains that are out, as far as no record of them was lost.
    out: BTreeSet<Domain>,
}

impl Play {
    fn new(seed: u64) -> Self {
        let mut random = Random::keyed(&[seed]);
        let slots = 1 + random.below(2) as u32;
        let np = slots * HOSTS.len() as u32;
        let settings = Settings {
            cooldown: range(5, 60),
            ..Settings::elastic(np, 1, Some(np))
        };
        let mut play = Self {
            harness: Harness::new(settings),
            random,
            slots,
            last: Round(0),
            newest: None,
            lost: BTreeSet::new(),
            out: BTreeSet::new(),
        };
        play.list();
        play.check();
        play
    }

    fn list(&mut self) {
        let list: Vec<_> = HOSTS.iter().map(|name| host(name, self.slots)).collect();
        self.harness.list(&list);
    }

    fn any_host(&mut self) -> &'static str {
        HOSTS[self.random.below(HOSTS.len() as u64) as usize]
    }

    fn act(&mut self) {
        match self.random.below(10) {
            0..=2 => self.harness.commit(),
            3 => self.kill(),
            4 => {
                let name = self.any_host();
                if self.harness.is_connected(name) {
                    self.loses(name);
                    self.harness.lose(name);
                }
            }
            5 | 6 => {
                let wait = seconds(self.random.below(8));
                self.harness.pass(wait);
            }
            _ => self.driver_dies(),
        }
    }

    fn kill(&mut self) {
        let name = self.any_host();
        let slot = self.random.below(self.slots.into()) as u32;
        if self.harness.is_connected(name) && self.harness.has_worker(name, slot) {
            self.harness.kill(name, slot);
        }
    }

    fn driver_dies(&mut self) {
        let lost = self.random.below(4).saturating_sub(1);
        self.harness.driver_dies(lost as usize);
        if lost > 0 {
            self.out.clear();
        }
        let mut names = HOSTS.to_vec();
        if self.random.below(4) == 0 {
            self.list();
        }
        while !names.is_empty() {
            let name = names.remove(self.random.below(names.len() as u64) as usize);
            match self.random.below(8) {
                0 => {
                    self.loses(name);
                    self.harness.lose_silently(name);
                }
                1 => self.returns_without_a_worker(name, true),
                2 => self.returns_without_a_worker(name, false),
                _ if self.harness.has_agent(name) => self.harness.comes_back_with_workers(name),
                _ => {}
            }
            if self.random.below(3) == 0 {
                self.harness.pass(seconds(self.random.below(3)));
            }
            if self.random.below(10) == 0 {
                break;
            }
        }
        // Agents that are not back by now are those of hosts that are gone.
        for name in names {
            self.loses(name);
            self.harness.lose_silently(name);
        }
        self.list();
    }

    /// The commits of a host are lost.
    fn loses(&mut self, name: &'static str) {
        self.lost.insert(name);
        self.newest = self.harness.newest_commit(&self.lost).min(self.newest);
    }

    /// A worker has died while there was no driver. Its agent says so, unless the report was acknowledged and its record lost.
    fn returns_without_a_worker(&mut self, name: &str, says: bool) {
        let slot = self.random.below(self.slots.into()) as u32;
        if !self.harness.has_agent(name) {
            return;
        }
        if !self.harness.has_worker(name, slot) {
            return self.harness.comes_back_with_workers(name);
        }
        let process = self.harness.forgets(name, slot);
        let report = AgentReport::Exited {
            process,
            exit: Exit::Signal(9),
            tail: Vec::new(),
            stopped: false,
        };
        let reports = if says { vec![report] } else { Vec::new() };
        self.harness.comes_back_and_says(name, reports);
    }

    /// Checks what must hold after each action.
    fn check(&mut self) {
        for note in std::mem::take(&mut self.harness.notes) {
            match note {
                Decision::Blacklisted { domain, .. } => {
                    self.out.insert(domain);
                }
                Decision::CooldownOver { domain } => {
                    self.out.remove(&domain);
                }
                Decision::RoundStarted { round, .. } => {
                    assert!(round > self.last, "S3: {round} after {}", self.last);
                    self.last = round;
                    assert!(self.harness.base() >= self.newest, "R12: {:?}", self.newest);
                }
                _ => {}
            }
        }
        self.harness.assert_members_train();
    }

    /// Whether a member of the last started round is on a host or slot that is out.
    fn uses_what_is_out(&self) -> bool {
        let out = |(name, slot): &(String, u32)| {
            let domain = |domain: &Domain| match domain {
                Domain::Host(host) => host.as_str() == name,
                Domain::Slot(host, out) => host.as_str() == name && out.0 == *slot,
            };
            self.out.iter().any(domain)
        };
        self.harness.members().iter().any(out)
    }

    fn run(&mut self) {
        for _ in 0..ACTIONS {
            self.lost.clear();
            self.newest = self.harness.newest_commit(&self.lost);
            let started = self.last;
            self.act();
            self.check();
            if self.last > started {
                assert!(!self.uses_what_is_out(), "R5: {:?}", self.out);
            }
            if self.harness.outcome.is_some() {
                break;
            }
        }
        self.end();
    }

    /// The faults stop: the job trains with all slots, or has ended for a reason.
    fn end(&mut self) {
        self.newest = None;
        for _ in 0..20 {
            self.list();
            self.harness.pass(seconds(60));
        }
        self.check();
        match &self.harness.outcome {
            None => {
                assert!(self.harness.trains(), "R9");
                assert_eq!(self.harness.size(), self.harness.job.settings().np, "R9");
            }
            Some(Outcome::NoStateLeft) => {}
            Some(Outcome::WorkerFailed(Reason::AllFailed | Reason::FailsEverywhere)) => {}
            Some(Outcome::WorkerFailed(Reason::AllHostsOut)) => {}
            Some(outcome) => panic!("R9: {outcome:?}"),
        }
    }
}

fn play(seed: u64) {
    Play::new(seed).run();
}

#[test]
fn drivers_die_at_any_moment() {
    for seed in 0..SEEDS {
        let played = std::panic::catch_unwind(|| play(seed));
        assert!(played.is_ok(), "seed {seed}");
    }
}

/// The first seed of which the schedule breaks a rule with this mistake.
#[cfg(feature = "mutants")]
fn found(mistake: elasticrun_core::mutant::Mutant) -> Option<u64> {
    use elasticrun_core::mutant::plant;
    (0..SEEDS).find(|seed| {
        plant(Some(mistake));
        let played = std::panic::catch_unwind(|| play(*seed));
        plant(None);
        played.is_err()
    })
}

#[cfg(feature = "mutants")]
#[test]
fn each_mistake_of_a_later_driver_is_found() {
    use elasticrun_core::mutant::Mutant;
    let mistakes = [
        Mutant::RoundReused,
        Mutant::PartialRoundAdopted,
        Mutant::BlacklistForgotten,
        Mutant::StartsBeforeAdoption,
    ];
    for mistake in mistakes {
        let seed = found(mistake).unwrap_or_else(|| panic!("{mistake:?} is not found"));
        println!("{mistake:?}: seed {seed}");
    }
}
