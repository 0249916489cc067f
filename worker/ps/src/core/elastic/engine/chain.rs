//! Pushes on their way through a chain, and acknowledgements on their way back.

use std::sync::Arc;

use super::{
    Body, Command, Engine, EntryHead, EntryKind, Held, Message, Mode, Mutant, NodeId, Op, Origin,
    Pending, State, planted, push,
};

impl Engine {
    /// The last push of a range was applied: it goes on to the successor or the learner, or is answered.
    pub(super) fn pass_on(
        &mut self,
        first: u64,
        kind: EntryKind,
        origin: &Origin,
        body: Body<'_>,
        op: Option<Arc<Op>>,
        out: &mut Vec<Command>,
    ) {
        let me = self.me;
        let range = self.ranges.get_mut(&first).expect("it was found just now");
        let index = range.index;
        let next = match (range.successor(me), &range.learner) {
            (Some(to), _) => Some((to, Mode::Chain(range.changed), false)),
            (None, Some(learner)) if learner.is_waited_for() => {
                Some((learner.node, Mode::Learner(learner.stream), true))
            }
            _ => None,
        };
        if let Some((to, mode, answer)) = next {
            let op = op.unwrap_or_else(|| Arc::new(Op::new(*origin, body)));
            let head = EntryHead {
                first,
                mode,
                index,
                kind,
            };
            let message = Message::Entry {
                head,
                op: Arc::clone(&op),
            };
            out.push(Command::Send { to, message });
            if answer && planted(Mutant::AcknowledgesBeforeLearner) {
                self.answer(origin, body, out);
                return;
            }
            range.pending.push_back(Pending {
                index,
                kind,
                answer: answer && !kind.is_half(),
                op,
            });
            return;
        }
        if !kind.is_repeated() {
            self.pass_to_learner(first, origin, body, out);
        }
        if !kind.is_half() {
            self.answer(origin, body, out);
        }
        self.acknowledge(first, out);
    }

    /// Tells the predecessor what is on this server and all behind.
    pub(super) fn acknowledge(&self, first: u64, out: &mut Vec<Command>) {
        let Some(range) = self.ranges.get(&first) else {
            return;
        };
        let Some(to) = range.predecessor(self.me) else {
            return;
        };
        let message = Message::Acknowledged {
            first,
            mode: Mode::Chain(range.changed),
            index: range.acknowledged(),
        };
        out.push(Command::Send { to, message });
    }

    /// Whether a message has to wait: for the map, or behind another one of its sender that waits.
    pub(super) fn must_wait(&self, from: NodeId, version: u64) -> bool {
        let waits =
            |held: &Held| matches!(held, Held::Message { from: other, .. } if *other == from);
        version > self.version() || self.held.iter().any(waits)
    }

    /// A push on its way through the chain, or for this server as a learner.
    pub(crate) fn entry(
        &mut self,
        from: NodeId,
        head: EntryHead,
        origin: &Origin,
        body: Body<'_>,
        op: Option<&Arc<Op>>,
        out: &mut Vec<Command>,
    ) {
        if self.fenced {
            return;
        }
        let version = match head.mode {
            Mode::Chain(version) => version,
            Mode::Learner(_) => 0,
        };
        if self.must_wait(from, version) {
            let op = op.map_or_else(|| Arc::new(Op::new(*origin, body)), Arc::clone);
            let message = Message::Entry { head, op };
            return self.held.push(Held::Message { from, message });
        }
        // The half of a push may be without keys: only its number counts.
        if !body.keys.is_empty()
            && let Err(refusal) = self.check(origin, body)
        {
            return out.push(Command::Diverged(refusal.to_string()));
        }
        let me = self.me;
        let Some(range) = self.ranges.get_mut(&head.first) else {
            return;
        };
        let current = match (head.mode, &range.state) {
            (Mode::Chain(_), State::Member) if planted(Mutant::OldForwardAccepted) => true,
            // Also if the range is stopped: the chain goes on until the next map, and the range may be resumed without one.
            (Mode::Chain(version), State::Member) => {
                version == range.changed && range.predecessor(me) == Some(from)
            }
            (
                Mode::Learner(number),
                State::Learning {
                    source,
                    stream,
                    complete,
                    ..
                },
            ) => *source == from && *stream == number && (head.index == 0) != *complete,
            _ => false,
        };
        if !current {
            return;
        }
        if head.index == 0 {
            if let Err(refusal) = push(&mut self.stores, origin, body) {
                out.push(Command::Diverged(refusal.to_string()));
            }
            return;
        }
        if head.index > range.index + 1 {
            let text = format!(
                "push {} of range {} came behind {}",
                head.index, head.first, range.index
            );
            return out.push(Command::Diverged(text));
        }
        if head.index <= range.index {
            return self.acknowledge_to(from, head, out);
        }
        if !head.kind.is_repeated()
            && !body.keys.is_empty()
            && let Err(refusal) = push(&mut self.stores, origin, body)
        {
            return out.push(Command::Diverged(refusal.to_string()));
        }
        range.filter.note(origin.identity, origin.floor);
        range.index += 1;
        match range.state {
            State::Member => self.pass_on(head.first, head.kind, origin, body, op.cloned(), out),
            State::Learning { .. } => self.acknowledge_to(from, head, out),
        }
    }

    pub(super) fn acknowledge_to(&self, to: NodeId, head: EntryHead, out: &mut Vec<Command>) {
        let Some(range) = self.ranges.get(&head.first) else {
            return;
        };
        let message = Message::Acknowledged {
            first: head.first,
            mode: head.mode,
            index: range.acknowledged(),
        };
        out.push(Command::Send { to, message });
    }

    /// The successor or the learner has all pushes up to this one.
    pub(crate) fn acknowledged(
        &mut self,
        from: NodeId,
        first: u64,
        mode: Mode,
        index: u64,
        out: &mut Vec<Command>,
    ) {
        if self.fenced {
            return;
        }
        let version = match mode {
            Mode::Chain(version) => version,
            Mode::Learner(_) => 0,
        };
        if self.must_wait(from, version) {
            let message = Message::Acknowledged { first, mode, index };
            return self.held.push(Held::Message { from, message });
        }
        let me = self.me;
        let Some(range) = self.ranges.get_mut(&first) else {
            return;
        };
        let current = match mode {
            Mode::Chain(version) => version == range.changed && range.successor(me) == Some(from),
            Mode::Learner(number) => {
                let learner = range.learner.as_ref();
                learner.is_some_and(|learner| learner.node == from && learner.stream == number)
            }
        };
        if !current {
            return;
        }
        let mut done = Vec::new();
        while let Some(pending) = range.pending.front()
            && pending.index <= index
        {
            done.extend(range.pending.pop_front());
        }
        for pending in done.iter().filter(|pending| pending.answer) {
            self.answer(&pending.op.origin, pending.op.body(), out);
        }
        if !done.is_empty() {
            self.acknowledge(first, out);
        }
    }

    /// The connection to another server is a new one: what was sent may be lost.
    pub(crate) fn link_reset(&mut self, peer: NodeId, out: &mut Vec<Command>) {
        let firsts: Vec<u64> = self.ranges.keys().copied().collect();
        for first in firsts {
            let range = &self.ranges[&first];
            if range.successor(self.me) == Some(peer) {
                self.resend(first, out);
            } else if range
                .learner
                .as_ref()
                .is_some_and(|learner| learner.node == peer)
            {
                self.learner_reset(first, out);
            }
        }
    }

    /// Sends all that is not acknowledged.
    pub(super) fn resend(&self, first: u64, out: &mut Vec<Command>) {
        let range = &self.ranges[&first];
        let (to, mode) = match (range.successor(self.me), &range.learner) {
            (Some(to), _) => (to, Mode::Chain(range.changed)),
            (None, Some(learner)) => (learner.node, Mode::Learner(learner.stream)),
            (None, None) => return,
        };
        if planted(Mutant::PendingNotResent) {
            return;
        }
        for pending in &range.pending {
            let head = EntryHead {
                first,
                mode,
                index: pending.index,
                kind: pending.kind,
            };
            let message = Message::Entry {
                head,
                op: Arc::clone(&pending.op),
            };
            out.push(Command::Send { to, message });
        }
    }
}
