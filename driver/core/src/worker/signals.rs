//! What a worker knows of its rounds from its agent and from its own failed operations.
//!
//! Everything here only grows: a newer round takes the place of an older one, and nothing is taken back.

use std::collections::BTreeSet;

use elasticrun_protocol::Round;

use super::{Command, Ended, Event, RoundId, RoundStart};
use crate::mutant::{Mutant, planted};

/// What is known of the rounds.
#[derive(Clone, Debug, Default)]
pub(super) struct Signals {
    /// A round that has started and was not entered yet.
    start: Option<RoundStart>,
    /// The newest round that was started.
    newest: Option<RoundId>,
    /// The newest round that is over.
    aborted: Option<RoundId>,
    /// The newest round in which something was cut short.
    cut_short: Option<RoundId>,
    ended: Option<Ended>,
    /// Hosts of a round that do not answer, by their index in it.
    unreachable: Option<(RoundId, BTreeSet<u32>)>,
}

impl Signals {
    pub(super) fn step(&mut self, event: Event, out: &mut Vec<Command>) {
        match event {
            Event::Started(start) => {
                self.newest = self.newest.max(Some(start.id));
                self.start = Some(start);
            }
            // A round that never started here has nothing to end, and one that is over has ended.
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

    /// Why no further round will come, if so.
    pub(super) fn ended(&self) -> Option<&Ended> {
        self.ended.as_ref()
    }

    /// The round that waits to be entered, once, unless it is one that this process has left.
    pub(super) fn take_start(&mut self, left: Option<Round>) -> Option<RoundStart> {
        let start = self.start.take();
        start.filter(|start| Some(start.id.round) > left)
    }

    /// Whether a round is over.
    pub(super) fn is_aborted(&self, id: RoundId) -> bool {
        self.aborted >= Some(id)
    }

    /// Whether the newest round that was started is over, or no further one will come.
    pub(super) fn is_over(&self) -> bool {
        self.ended.is_some() || self.newest.is_none_or(|newest| self.is_aborted(newest))
    }

    /// Whether something of a round was cut short (W4).
    pub(super) fn is_cut_short(&self, id: RoundId) -> bool {
        self.cut_short >= Some(id)
    }

    /// The hosts of a round that did not answer, once.
    pub(super) fn take_unreachable(&mut self, round: Round) -> Vec<u32> {
        let known = self.unreachable.take();
        let of_round = known.filter(|(id, _)| id.round == round);
        let of_round = of_round.filter(|_| !planted(Mutant::UnreachableUntold));
        of_round.map_or_else(Vec::new, |(_, hosts)| hosts.into_iter().collect())
    }
}
