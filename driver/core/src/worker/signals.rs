//! The knowledge of a worker about its rounds, from its agent and from its own failed operations.
//!
//! All of it only grows: a newer round replaces an older one, and nothing is revoked.

use std::collections::BTreeSet;

use elasticrun_protocol::Round;

use super::{Command, Ended, Event, RoundId, RoundStart};
use crate::mutant::{Mutant, planted};

/// The state of the rounds.
#[derive(Clone, Debug, Default)]
pub(super) struct Signals {
    /// A started round that was not entered yet.
    start: Option<RoundStart>,
    /// The newest started round.
    newest: Option<RoundId>,
    /// The newest round that is over.
    aborted: Option<RoundId>,
    /// The newest round in which an operation was cut short.
    cut_short: Option<RoundId>,
    ended: Option<Ended>,
    /// Hosts of a round that do not answer, by their index.
    unreachable: Option<(RoundId, BTreeSet<u32>)>,
}

impl Signals {
    pub(super) fn step(&mut self, event: Event, out: &mut Vec<Command>) {
        match event {
            Event::Started(start) => {
                self.newest = self.newest.max(Some(start.id));
                self.start = Some(start);
            }
            // A round that never started here has nothing to end, and an older round has ended already.
            Event::Aborted { round } => {
                if let Some(newest) = self.newest.filter(|newest| newest.round == round) {
                    self.abort(newest, out);
                }
            }
            Event::Ended(ended) => {
                let forgotten = planted(Mutant::StopInRoundForgotten) && !self.is_over();
                let ended = self.ended.get_or_insert(ended);
                out.push(Command::EndCalls(ended.clone()));
                if let Some(newest) = self.newest {
                    self.abort(newest, out);
                }
                if forgotten {
                    self.ended = None;
                }
            }
            Event::HostsUnreachable { hosts } => self.cannot_reach(hosts),
            Event::CutShort { id } => self.cut_short = self.cut_short.max(Some(id)),
        }
    }

    fn abort(&mut self, id: RoundId, out: &mut Vec<Command>) {
        self.aborted = self.aborted.max(Some(id));
        out.push(Command::EndRound(id));
    }

    fn cannot_reach(&mut self, hosts: Vec<u32>) {
        let Some(newest) = self.newest else {
            return;
        };
        match &mut self.unreachable {
            Some((id, known)) if *id == newest => known.extend(hosts),
            known => *known = Some((newest, hosts.into_iter().collect())),
        }
    }

    /// Why no further round will come; `None` while one may.
    pub(super) fn ended(&self) -> Option<&Ended> {
        self.ended.as_ref()
    }

    /// The round that can be entered, once, unless this process has left that round or a newer one.
    pub(super) fn take_start(&mut self, left: Option<Round>) -> Option<RoundStart> {
        let start = self.start.take();
        start.filter(|start| Some(start.id.round) > left)
    }

    /// Whether a round is over.
    pub(super) fn is_aborted(&self, id: RoundId) -> bool {
        self.aborted >= Some(id)
    }

    /// Whether the newest started round is over, or no further round will come.
    pub(super) fn is_over(&self) -> bool {
        self.ended.is_some() || self.newest.is_none_or(|newest| self.is_aborted(newest))
    }

    /// Whether an operation of a round was cut short (W4).
    pub(super) fn is_cut_short(&self, id: RoundId) -> bool {
        self.cut_short >= Some(id)
    }

    /// The hosts of a round that did not answer; each call clears them.
    pub(super) fn take_unreachable(&mut self, round: Round) -> Vec<u32> {
        let known = self.unreachable.take();
        let of_round = known.filter(|(id, _)| id.round == round);
        let of_round = of_round.filter(|_| !planted(Mutant::UnreachableUntold));
        of_round.map_or_else(Vec::new, |(_, hosts)| hosts.into_iter().collect())
    }
}
