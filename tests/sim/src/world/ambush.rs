//! Faults that follow right after a decision of the job or a report to it, when the effect is worst.

use std::{collections::BTreeSet, time::Duration};

use elasticrun_core::Decision;
use elasticrun_protocol::Round;

use super::{Ev, World, worker::Phase};
use crate::fault::Fault;

impl World {
    /// The driver learns that a round broke: another member may hang now, and die later.
    pub(super) fn round_broke(&mut self, round: Round) {
        let known = self.driver.last_broken.replace(round) == Some(round);
        if known || self.plan.late_deaths == 0 {
            return;
        }
        if self.lateness_rng.percent(self.plan.late_deaths) {
            let after = self.lateness_rng.millis(1_200, 4_000);
            self.strike(Fault::LateDeath { after });
        }
    }

    /// Injects a fault right after a decision of the job, when the effect is worst.
    pub(super) fn ambush(&mut self, decision: &Decision) {
        let starts = matches!(decision, Decision::RoundStarted { .. });
        if starts && self.plan.cuts > 0 && self.lateness_rng.percent(self.plan.cuts) {
            let heal = self.lateness_rng.millis(500, 2_500);
            let wait = self.lateness_rng.micros(0, 60_000);
            self.after(wait, Ev::Fault(Fault::CutMember { heal }));
        }
        if starts && self.plan.losses > 0 && self.lateness_rng.percent(self.plan.losses) {
            let back = self.lateness_rng.millis(100, 20_000);
            let wait = self.lateness_rng.millis(0, 2_000);
            self.after(wait, Ev::Fault(Fault::KillMembers { back }));
        }
        if starts && self.plan.partings > 0 && self.lateness_rng.percent(self.plan.partings) {
            self.parting();
        }
        if starts && !self.healed && self.plan.ambushes > 0 && self.lateness_rng.percent(10) {
            self.early_death();
        }
        let busy = matches!(
            decision,
            Decision::RoundPlanned { .. }
                | Decision::RoundStarted { .. }
                | Decision::Interrupting { .. }
                | Decision::RoundAborted { .. }
                | Decision::Finishing
                | Decision::GroupStarted { .. }
                | Decision::GroupEnded { .. }
        );
        if busy && !self.healed && !self.plan.ambushing_deaths.is_empty() {
            self.deadly_ambush();
        }
        if !busy || self.healed || self.plan.ambushes == 0 || !self.rng.percent(40) {
            return;
        }
        self.plan.ambushes -= 1;
        let fault = Fault::draw(&mut self.rng);
        let wait = self.rng.micros(0, 60_000);
        self.after(wait, Ev::Fault(fault));
    }

    /// The driver dies right after a decision, perhaps.
    fn deadly_ambush(&mut self) {
        if !self.lateness_rng.percent(25) {
            return;
        }
        let most = self.lateness_rng.pick(&[0, 5_000, 500_000]).unwrap_or(0);
        let wait = self.lateness_rng.micros(0, most);
        if let Some(death) = self.plan.ambushing_deaths.pop() {
            self.after(wait, Ev::Fault(death));
        }
    }

    /// A host that has the base of the round that has just started is cut off before the members elsewhere have read it.
    fn parting(&mut self) {
        let Some(round) = self.rounds.values().next_back() else {
            return;
        };
        let holds = |host: usize| {
            let mut keys = self.hosts[host].keys().into_iter();
            keys.any(|key| Some(key.commit) == round.base)
        };
        let hosts: BTreeSet<_> = round.seats.iter().map(|seat| seat.host).collect();
        let (with, without): (Vec<_>, Vec<_>) = hosts.into_iter().partition(|host| holds(*host));
        if without.is_empty() {
            return;
        }
        let heal = self.lateness_rng.millis(3_000, 20_000);
        for host in with {
            let wait = self.lateness_rng.micros(0, 10_000);
            self.after(wait, Ev::Fault(Fault::CutHost { host, heal }));
        }
    }

    /// A member of the round that has just started dies before all of its members know that it has.
    fn early_death(&mut self) {
        let seats = self.rounds.values().next_back().map(|round| &round.seats);
        let members: Vec<_> = (seats.into_iter().flatten())
            .map(|seat| (seat.host, seat.process))
            .collect();
        if let Some((host, process)) = self.lateness_rng.pick(&members) {
            let wait = self.lateness_rng.micros(0, 5_000);
            self.after(wait, Ev::Fault(Fault::KillProcess { host, process }));
        }
    }

    /// A member of the last round whose paths are well hangs now and is killed later.
    pub(super) fn late_death(&mut self, after: Duration) {
        let seats = self.rounds.values().next_back().map(|round| &round.seats);
        let well = |host: usize| !self.hosts[host].was_cut;
        let alive = |host: usize, process| {
            let worker = self.hosts[host].workers.get(&process);
            worker.is_some_and(|worker| worker.phase != Phase::Dead)
        };
        let members: Vec<_> = (seats.into_iter().flatten())
            .map(|seat| (seat.host, seat.process))
            .filter(|(host, process)| well(*host) && alive(*host, *process))
            .collect();
        if let Some((host, process)) = self.lateness_rng.pick(&members) {
            self.suspend(host, process);
            self.after(after, Ev::Fault(Fault::KillProcess { host, process }));
        }
    }
}
