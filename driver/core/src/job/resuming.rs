//! A job of a later driver: what it continues with before any agent has come back.

use std::collections::BTreeSet;

use elasticrun_protocol::{DriverEpoch, Round};

use super::{Job, going_back::GoingBack, store_search::Stored, takeover::TakeOver};
use crate::{
    Settings, Time,
    hosts::HostRecord,
    journal::{ROUND_GAP, Saved},
    lineage::Lineage,
    mutant::{Mutant, planted},
    results::Results,
};

impl Job {
    /// The job of a later driver of a run. It knows the records of the earlier drivers and no agent. Its time begins anew.
    ///
    /// Agents come back with their workers within the take-over ([`Settings::take_over`]). `epoch` is greater than that of
    /// each earlier driver. `seed` determines its jitter.
    pub fn resume(
        settings: Settings,
        run_id: impl Into<String>,
        epoch: DriverEpoch,
        seed: u64,
        saved: Saved,
    ) -> Self {
        let mut job = Self::new(settings, run_id, epoch, seed);
        let now = Time::ZERO;
        let progress = saved.progress;
        // Drivers since the one of the record may have planned rounds, too.
        let drivers = epoch.0.saturating_sub(progress.epoch.0);
        let gap = match planted(Mutant::RoundReused) {
            true => 0,
            false => ROUND_GAP * drivers,
        };
        let used = Round(progress.planned.0 + gap);
        // This driver has planned none yet.
        let possible = Round(progress.planned.0 + ROUND_GAP * drivers.saturating_sub(1));
        job.rounds.skip_to(used);
        job.groups.skip_to(used);
        let unrecorded = progress.unrecorded;
        (job.budgets).restore(progress.started, progress.restarts, unrecorded);
        job.sdk_seen = progress.sdk_seen;
        if progress.rounds_lead {
            job.groups.give_way();
        }
        job.lineage = Lineage::restore(saved.bases);
        job.results = Results::restore(saved.failures);
        job.relapses = saved.relapses;
        let listed = saved.hosts.values().filter(|entry| entry.listed);
        let listed: Vec<_> = listed.map(HostRecord::restore).collect();
        if !listed.is_empty() {
            job.sources.restore(&listed);
            job.discovered = true;
        }
        job.stored = Stored::resume(epoch, saved.former);
        for entry in saved.hosts.into_values() {
            job.hosts.restore(now, entry);
        }
        if !planted(Mutant::BlacklistForgotten) {
            for entry in saved.domains.into_values() {
                job.blacklist.restore(now, entry);
            }
        }
        job.probing.continue_from(epoch);
        let mut absent = BTreeSet::new();
        for entry in saved.slots.values() {
            job.fleet.restore(entry);
            if entry.memory {
                job.memory_lost.insert(entry.host.clone());
            }
            if entry.agent {
                absent.insert(entry.host.clone());
            }
        }
        if let Some(round) = progress.round {
            let members = saved.members.into_values().collect();
            job.registry.restore(round, progress.ending, members);
            job.going_back = GoingBack::started(round, job.registry.processes());
            // Members that were lost with their host do not come back, and another agent may be launched there.
            for (host, mut members) in job.registry.survivors() {
                absent.extend(members.next().map(|_| host.clone()));
            }
        }
        if progress.unseen {
            job.registry.suspect_another();
        }
        // Groups have numbers of their own.
        let newest = (progress.round)
            .max(job.lineage.newest_round())
            .max(unrecorded);
        job.takeover = Some(TakeOver::new(
            now + job.settings.take_over(),
            newest.filter(|_| progress.rounds_lead),
            progress,
            possible,
            absent,
            saved.slots.values(),
            progress.epoch > DriverEpoch(0),
        ));
        job.recorded.progress = job.progress();
        job.recorded.relapses = job.relapses.clone();
        job.recorded.former = job.stored.former.clone();
        job
    }
}
