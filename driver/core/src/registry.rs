//! Registry: how the members of the last started round ended.
//!
//! A worker moves only from ready to one end state; a repeat changes nothing. After the first success no further round
//! is formed. A worker that was asked to stop counts neither as success nor as failure.

mod entry;

use std::collections::BTreeMap;

use elasticrun_protocol::{Generation, HostId, LocalRank, Process, Rank, Round};

use serde::{Deserialize, Serialize};

use crate::{
    journal::Changed,
    mutant::{Mutant, planted},
};

/// The state of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It trains, or returns to train.
    Ready,
    /// It returned from `run()` and has not ended yet.
    Finished,
    /// It ended with code 0.
    Successful,
    /// It ended by itself in another way.
    Failed,
    /// It was lost with its host or agent.
    LostWithHost,
    /// It was asked to stop because its failure domain failed.
    StoppedWithDomain,
    /// It was asked to stop for another reason.
    Stopped,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    generation: Generation,
    rank: Rank,
    state: State,
}

/// The members of the last started round on one host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfHost<'a>(Option<&'a BTreeMap<LocalRank, Member>>);

impl OfHost<'_> {
    /// The rank of a member; `None` for other processes.
    pub(crate) fn rank(&self, process: Process) -> Option<Rank> {
        let member = self.0?.get(&process.local_rank)?;
        (member.generation == process.generation).then_some(member.rank)
    }
}

/// The members of the last started round.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    round: Option<Round>,
    members: BTreeMap<HostId, BTreeMap<LocalRank, Member>>,
    /// The number of members on all hosts, as far as that is known. A later driver may not know all of them.
    size: u32,
    /// The number of members in each state, in the order of [`State`].
    counts: [u32; 7],
    /// A later round may train, of which no member is known.
    unnamed: bool,
    /// A later round has started, of which no member is known.
    is_past: bool,
    /// A member has finished: no further round follows this one.
    ending: bool,
    /// Hosts whose record has changed.
    changed: Changed<HostId>,
}

impl Registry {
    /// A round has started with these members.
    pub fn round_started(
        &mut self,
        round: Round,
        members: impl IntoIterator<Item = (HostId, Process, Rank)>,
    ) {
        let past = match planted(Mutant::PastMembersStay) {
            true => self.count(State::Failed),
            false => 0,
        };
        self.clear();
        self.round = Some(round);
        self.counts[State::Failed as usize] = past;
        self.add(members);
        self.size = self.counts[State::Ready as usize];
    }

    /// Adds members of the last started round that are not known yet.
    pub(crate) fn add(&mut self, members: impl IntoIterator<Item = (HostId, Process, Rank)>) {
        let mut members = members.into_iter().peekable();
        while let Some(first) = members.next() {
            let host = first.0.clone();
            let of_host = std::iter::from_fn(|| members.next_if(|next| next.0 == host));
            let slots = self.members.entry(host.clone()).or_default();
            let before = slots.len();
            for (_, process, rank) in std::iter::once(first).chain(of_host) {
                slots.entry(process.local_rank).or_insert(Member {
                    generation: process.generation,
                    rank,
                    state: State::Ready,
                });
            }
            let added = slots.len() - before;
            if added > 0 {
                self.counts[State::Ready as usize] += added as u32;
                self.changed.mark(&host);
            }
        }
    }

    /// The members on a host.
    pub(crate) fn of_host(&self, host: &HostId) -> OfHost<'_> {
        OfHost(self.members.get(host))
    }

    /// Learns the number of members on all hosts.
    pub(crate) fn expect(&mut self, size: u32) {
        self.size = self.size.max(size);
    }

    /// An agent has a commit of a round, which has started therefore.
    pub(crate) fn saw_commit(&mut self, round: Round) {
        self.is_past |= self.round.is_some_and(|last| last < round);
    }

    /// A later round may train, of which no member is known.
    pub(crate) fn suspect_another(&mut self) {
        self.unnamed = true;
    }

    /// Whether a later round may train, of which no member is known.
    pub(crate) fn suspects_another(&self) -> bool {
        self.unnamed
    }

    /// The number of members that neither records nor agents name.
    pub(crate) fn unknown(&self) -> u32 {
        self.size.saturating_sub(self.counts.iter().sum())
    }

    /// Whether all members are known, and each lives or ended with code 0.
    pub(crate) fn is_whole(&self) -> bool {
        self.alive() + self.successes() == self.total()
    }

    /// The number of members.
    fn total(&self) -> u32 {
        self.size.max(self.counts.iter().sum())
    }

    /// The members by host, in each state.
    pub(crate) fn processes(&self) -> BTreeMap<HostId, Vec<Process>> {
        self.select(|_| true)
    }

    /// The members that have neither ended nor been asked to stop, by host.
    pub(crate) fn living(&self) -> BTreeMap<HostId, Vec<Process>> {
        self.select(|state| matches!(state, State::Ready | State::Finished))
    }

    fn select(&self, wanted: impl Fn(State) -> bool) -> BTreeMap<HostId, Vec<Process>> {
        let of_host = |members: &BTreeMap<LocalRank, Member>| {
            let wanted = members.iter().filter(|(_, member)| wanted(member.state));
            let process = |(slot, member): (&LocalRank, &Member)| Process {
                local_rank: *slot,
                generation: member.generation,
            };
            wanted.map(process).collect::<Vec<_>>()
        };
        let hosts = self.members.iter();
        let hosts = hosts.map(|(host, members)| (host.clone(), of_host(members)));
        hosts.filter(|(_, members)| !members.is_empty()).collect()
    }

    /// Forgets the members.
    pub fn clear(&mut self) {
        let mut changed = std::mem::take(&mut self.changed);
        changed.mark_all(self.members.keys());
        *self = Self {
            changed,
            ..Self::default()
        };
    }

    /// Records a new state of a member. Returns whether it was a change.
    pub fn record(&mut self, host: &HostId, process: Process, state: State) -> bool {
        let Some(member) = self
            .members
            .get_mut(host)
            .and_then(|m| m.get_mut(&process.local_rank))
        else {
            return false;
        };
        let open = match member.state {
            State::Ready => true,
            State::Finished => state != State::Ready && state != State::Finished,
            // It was failing by itself when it was asked to stop.
            State::StoppedWithDomain if state == State::Failed => true,
            // Its end is not confirmed: it may train on if its host is only cut off.
            State::StoppedWithDomain | State::Stopped => state == State::LostWithHost,
            _ => false,
        };
        if member.generation != process.generation || !open {
            return false;
        }
        let finished = (member.state, state) == (State::Finished, State::Failed);
        let state = match () {
            () if finished && planted(Mutant::FailureAfterFinish) => State::Successful,
            () => state,
        };
        self.counts[member.state as usize] -= 1;
        self.counts[state as usize] += 1;
        member.state = state;
        self.ending |= matches!(state, State::Finished | State::Successful);
        self.changed.mark(host);
        true
    }

    /// Takes back that a member was lost with its host.
    pub fn returned(&mut self, host: &HostId, process: Process, state: State) {
        let members = self.members.get_mut(host);
        let Some(member) = members.and_then(|m| m.get_mut(&process.local_rank)) else {
            return;
        };
        if member.generation == process.generation && member.state == State::LostWithHost {
            self.counts[member.state as usize] -= 1;
            self.counts[state as usize] += 1;
            member.state = state;
            self.changed.mark(host);
        }
    }

    /// The state of a member; `None` for other processes.
    pub fn state(&self, host: &HostId, process: Process) -> Option<State> {
        let member = self.members.get(host)?.get(&process.local_rank)?;
        (member.generation == process.generation).then_some(member.state)
    }

    /// The rank and round of a member.
    pub fn rank(&self, host: &HostId, process: Process) -> Option<(Rank, Round)> {
        Some((self.of_host(host).rank(process)?, self.round?))
    }

    /// Members that have neither ended nor been asked to stop, by host.
    pub fn survivors(
        &self,
    ) -> impl Iterator<Item = (&HostId, impl Iterator<Item = (LocalRank, Rank)>)> {
        let lives = |member: &&Member| matches!(member.state, State::Ready | State::Finished);
        self.members.iter().map(move |(host, members)| {
            let living = members.iter().filter(move |(_, member)| lives(member));
            (host, living.map(|(slot, member)| (*slot, member.rank)))
        })
    }

    /// Slots of members that ended with code 0.
    pub fn successful(&self) -> impl Iterator<Item = (&HostId, LocalRank)> {
        let all = (self.members.iter()).flat_map(|(host, members)| {
            members
                .iter()
                .map(move |(slot, member)| (host, *slot, member))
        });
        all.filter(|(_, _, member)| member.state == State::Successful)
            .map(|(host, slot, _)| (host, slot))
    }

    /// The last started round.
    pub fn round(&self) -> Option<Round> {
        self.round
    }

    /// Whether a member has finished or succeeded, so that no further round is formed.
    pub fn is_ending(&self) -> bool {
        self.ending
    }

    /// Whether all members ended with code 0.
    pub fn all_successful(&self) -> bool {
        if planted(Mutant::FirstSuccessIsAll) {
            return self.successes() > 0;
        }
        self.round.is_some() && self.count(State::Successful) == self.total()
    }

    /// Whether every member has ended or was asked to stop.
    pub fn all_ended(&self) -> bool {
        self.round.is_some() && self.count(State::Ready) + self.count(State::Finished) == 0
    }

    /// Whether every member has ended or was asked to stop, and none has failed.
    pub(crate) fn is_well_or_lost(&self) -> bool {
        self.all_ended() && self.count(State::Failed) == 0
    }

    /// Whether every member failed by itself. A member that was stopped with its failure domain did not. Members of a later
    /// round that are not known may not have.
    pub fn all_failed_by_themselves(&self) -> bool {
        let failed = self.count(State::Failed);
        failed > 0 && failed == self.total() && !self.is_past
    }

    /// Whether members may train where the driver cannot observe them: some were lost with their hosts, and no other is
    /// known to have left the round. A member that was asked to stop may have done its part of the next step before it
    /// received that. Of a round of which no member is known, none is known to have left it.
    pub fn may_train_unseen(&self) -> bool {
        let lost = self.count(State::LostWithHost) + self.unknown();
        let told = self.count(State::Stopped) + self.count(State::StoppedWithDomain);
        self.unnamed || lost > 0 && lost + told == self.total()
    }

    /// The number of members that have neither ended nor been asked to stop.
    pub fn alive(&self) -> u32 {
        self.count(State::Ready) + self.count(State::Finished)
    }

    /// The number of members that ended with code 0.
    pub fn successes(&self) -> u32 {
        self.count(State::Successful)
    }

    fn count(&self, state: State) -> u32 {
        self.counts[state as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(slot: u32) -> Process {
        Process {
            local_rank: LocalRank(slot),
            generation: Generation(1),
        }
    }

    fn registry() -> (Registry, HostId) {
        let host = HostId::new("a");
        let mut registry = Registry::default();
        let members = [0, 1].map(|slot| (host.clone(), process(slot), Rank(slot)));
        registry.round_started(Round(1), members);
        (registry, host)
    }

    #[test]
    fn a_worker_moves_only_once() {
        let (mut registry, host) = registry();
        assert!(registry.record(&host, process(0), State::Failed));
        assert!(
            !registry.record(&host, process(0), State::Successful),
            "a repeat changes nothing"
        );
        assert!(!registry.all_failed_by_themselves());
        let mut stopped = registry.clone();
        assert!(stopped.record(&host, process(1), State::StoppedWithDomain));
        assert!(!stopped.all_failed_by_themselves());
        assert!(registry.record(&host, process(1), State::Failed));
        assert!(registry.all_failed_by_themselves());
    }

    #[test]
    fn who_is_told_to_stop_and_goes_with_its_host_may_train_unseen() {
        for told in [State::Stopped, State::StoppedWithDomain] {
            let (mut registry, host) = registry();
            for slot in [0, 1] {
                assert!(registry.record(&host, process(slot), told));
            }
            assert!(!registry.may_train_unseen(), "its agent ends it");
            assert!(registry.record(&host, process(0), State::LostWithHost));
            assert!(registry.may_train_unseen());
            assert!(!registry.record(&host, process(0), State::Failed));
        }
    }

    #[test]
    fn the_job_succeeds_when_all_members_do() {
        let (mut registry, host) = registry();
        registry.record(&host, process(1), State::Finished);
        assert!(registry.is_ending());
        registry.record(&host, process(1), State::Successful);
        assert!(!registry.all_successful());
        registry.record(&host, process(0), State::Successful);
        assert!(registry.all_successful());
    }

    #[test]
    fn another_start_of_the_slot_is_not_the_member() {
        let (mut registry, host) = registry();
        let other = Process {
            generation: Generation(2),
            ..process(0)
        };
        assert!(!registry.record(&host, other, State::Failed));
        assert_eq!(registry.rank(&host, other), None);
    }
}
