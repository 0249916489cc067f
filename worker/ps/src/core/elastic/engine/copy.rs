//! The copy of a range: the tail sends it piece by piece, and pushes behind the pieces, to a learner.
//!
//! A push that touches keys which the learner has already is sent to it, restricted to these keys. Later keys come with
//! their piece. The last piece has the filter and the number of the last push. From then on the tail answers a push only when
//! the learner has it. Once the learner has taken the last piece, it has all that was ever acknowledged, and may be the tail.

use super::{
    Body, Command, Engine, EntryHead, EntryKind, Filter, Held, KeyRange, Load, Message, Mode,
    Mutant, NodeId, Op, Origin, PieceHead, Range, Report, State, planted,
};
use crate::core::elastic::message::PieceEnd;
use bytes::Bytes;
use std::{collections::VecDeque, sync::Arc};

/// Where a copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// Apps before this one are copied, and the keys of this one below `next`.
    Copying { app: usize, next: u64 },
    /// The last piece was sent.
    Sent,
    /// The learner has taken it, and the coordinator knows.
    InSync,
}

/// A learner of this tail.
#[derive(Debug)]
pub(super) struct Learner {
    pub(super) node: NodeId,
    join: u64,
    pub(super) stream: u64,
    /// The version of the map when the copy began.
    version: u64,
    progress: Progress,
    begun: bool,
}

impl Learner {
    /// Whether pushes are answered only when the learner has them.
    pub(super) fn is_waited_for(&self) -> bool {
        !matches!(self.progress, Progress::Copying { .. })
    }
}

impl Engine {
    /// Begins to copy a range to a learner.
    pub(super) fn attach(&mut self, first: u64, node: NodeId, join: u64, out: &mut Vec<Command>) {
        let (me, version) = (self.me, self.version());
        let Some(range) = self.ranges.get_mut(&first) else {
            return;
        };
        if !range.is_tail(me) || range.learner.is_some() {
            return;
        }
        self.streams += 1;
        range.learner = Some(Learner {
            node,
            join,
            stream: self.streams,
            version,
            progress: Progress::Copying {
                app: 0,
                next: first,
            },
            begun: false,
        });
        self.send_piece(first, out);
    }

    /// Sends the next piece.
    fn send_piece(&mut self, first: u64, out: &mut Vec<Command>) {
        let bytes = self.piece;
        let Some(range) = self.ranges.get_mut(&first) else {
            return;
        };
        let last = range.last;
        let Some(learner) = &mut range.learner else {
            return;
        };
        let Progress::Copying { mut app, mut next } = learner.progress else {
            return;
        };
        let mut head = PieceHead {
            first,
            last,
            version: learner.version,
            stream: learner.stream,
            begin: !learner.begun,
            app: 0,
            end: None,
        };
        learner.begun = true;
        let to = learner.node;
        while let Some((&number, store)) = self.stores.iter().nth(app) {
            let exported = store.export(KeyRange { first: next, last }, bytes);
            (app, next) = match exported.next {
                Some(next) => (app, next),
                None => (app + 1, first),
            };
            if exported.chunk.is_empty() {
                continue;
            }
            learner.progress = Progress::Copying { app, next };
            head.app = number;
            let chunk = exported.chunk;
            let message = Message::Piece { head, chunk };
            out.push(Command::Send { to, message });
            return;
        }
        learner.progress = Progress::Sent;
        head.end = Some(PieceEnd {
            index: range.index,
            filter: match planted(Mutant::FilterNotCopied) {
                true => Vec::new(),
                false => range.filter.words(),
            },
        });
        let chunk = Bytes::new();
        let message = Message::Piece { head, chunk };
        out.push(Command::Send { to, message });
    }

    /// The learner has taken a piece.
    pub(crate) fn piece_taken(
        &mut self,
        from: NodeId,
        first: u64,
        stream: u64,
        out: &mut Vec<Command>,
    ) {
        let Some(range) = self.ranges.get_mut(&first).filter(|_| !self.fenced) else {
            return;
        };
        let learner = range.learner.as_mut();
        let Some(learner) = learner.filter(|it| it.node == from && it.stream == stream) else {
            return;
        };
        match learner.progress {
            Progress::Copying { .. } => self.send_piece(first, out),
            Progress::Sent => {
                learner.progress = Progress::InSync;
                let join = learner.join;
                out.push(Command::Report(Report::InSync { first, join }));
            }
            Progress::InSync => {}
        }
    }

    /// Sends a push to the learner, restricted to the keys that it has.
    pub(super) fn pass_to_learner(
        &mut self,
        first: u64,
        origin: &Origin,
        body: Body<'_>,
        out: &mut Vec<Command>,
    ) {
        let Some(learner) = self.ranges.get(&first).and_then(|it| it.learner.as_ref()) else {
            return;
        };
        let Progress::Copying { app, next } = learner.progress else {
            return;
        };
        let Some(own) = self.stores.keys().position(|number| *number == origin.app) else {
            return;
        };
        let count = match own.cmp(&app) {
            std::cmp::Ordering::Less => body.keys.len(),
            std::cmp::Ordering::Equal => body.keys.partition_point(|&key| key < next),
            std::cmp::Ordering::Greater => 0,
        };
        if count == 0 || planted(Mutant::LearnerMissesPushes) {
            return;
        }
        let body = restricted(body, 0, count, self.stores[&origin.app].size());
        let head = EntryHead {
            first,
            mode: Mode::Learner(learner.stream),
            index: 0,
            kind: EntryKind::Half,
        };
        let op = Arc::new(Op::new(*origin, body));
        let message = Message::Entry { head, op };
        let to = learner.node;
        out.push(Command::Send { to, message });
    }

    /// The learner is gone: what waits for it is answered.
    pub(super) fn abort_learner(&mut self, first: u64, out: &mut Vec<Command>) {
        let Some(range) = self.ranges.get_mut(&first) else {
            return;
        };
        if range.learner.take().is_some() && range.is_tail(self.me) {
            self.answer_pending(first, out);
        }
    }

    /// This server is the tail, and nothing is behind it: what waits is answered.
    pub(super) fn answer_pending(&mut self, first: u64, out: &mut Vec<Command>) {
        let Some(range) = self.ranges.get_mut(&first) else {
            return;
        };
        let pending = std::mem::take(&mut range.pending);
        for pending in pending.iter().filter(|pending| !pending.kind.is_half()) {
            self.answer(&pending.op.origin, pending.op.body(), out);
        }
        if !pending.is_empty() {
            self.acknowledge(first, out);
        }
    }

    /// The connection to the learner is a new one. The copy begins anew, unless the coordinator may have made the learner the
    /// tail: then only what it has not acknowledged is sent again.
    pub(super) fn learner_reset(&mut self, first: u64, out: &mut Vec<Command>) {
        let Some(learner) = self.ranges.get(&first).and_then(|it| it.learner.as_ref()) else {
            return;
        };
        if learner.progress == Progress::InSync {
            return self.resend(first, out);
        }
        let (node, join) = (learner.node, learner.join);
        self.abort_learner(first, out);
        self.attach(first, node, join, out);
    }

    /// A piece of a range that this server learns.
    pub(crate) fn piece(
        &mut self,
        from: NodeId,
        head: PieceHead,
        chunk: &[u8],
        out: &mut Vec<Command>,
    ) {
        if self.fenced {
            return;
        }
        if self.must_wait(from, head.version) {
            let chunk = Bytes::copy_from_slice(chunk);
            let message = Message::Piece { head, chunk };
            return self.held.push(Held::Message { from, message });
        }
        let (first, stream) = (head.first, head.stream);
        if head.begin && !self.begin_learning(from, &head) {
            return;
        }
        let Some(range) = self.ranges.get_mut(&first) else {
            return;
        };
        let State::Learning {
            source,
            stream: current,
            complete,
            ..
        } = &mut range.state
        else {
            return;
        };
        if *source != from || *current != stream {
            return;
        }
        if let Some(end) = head.end {
            let Some(filter) = Filter::from_words(&end.filter) else {
                return out.push(Command::Diverged(
                    "a filter of no filter's words".to_owned(),
                ));
            };
            *complete = true;
            range.index = end.index;
            range.filter = filter;
        } else {
            let imported = match self.stores.get_mut(&head.app) {
                Some(store) => store.import(chunk).map_err(|error| error.to_string()),
                None => Err("it is not here".to_owned()),
            };
            if let Err(error) = imported {
                let text = format!("a piece of app {} does not fit: {error}", head.app);
                return out.push(Command::Diverged(text));
            }
        }
        let message = Message::PieceTaken { first, stream };
        out.push(Command::Send { to: from, message });
    }

    /// Makes room for a copy. `false` if this server has a part of the range as a member, or a later copy.
    fn begin_learning(&mut self, source: NodeId, head: &PieceHead) -> bool {
        let own = self.ranges.range(..=head.last);
        let overlaps: Vec<u64> = own
            .filter(|(_, range)| range.last >= head.first)
            .map(|(&first, _)| first)
            .collect();
        let keeps = |first: &u64| match self.ranges[first].state {
            State::Member => true,
            // The first piece of an earlier copy came late: of a former tail, or over a connection that broke meanwhile.
            State::Learning {
                source: current,
                version,
                stream,
                ..
            } => version > head.version || (current == source && stream >= head.stream),
        };
        if overlaps.iter().any(keeps) {
            return false;
        }
        for first in overlaps {
            self.forget(first);
        }
        let range = Range {
            last: head.last,
            chain: Vec::new(),
            changed: 0,
            index: 0,
            filter: Filter::default(),
            pending: VecDeque::new(),
            learner: None,
            state: State::Learning {
                source,
                version: head.version,
                stream: head.stream,
                complete: false,
            },
            stopped: false,
            load: Load::default(),
        };
        self.ranges.insert(head.first, range);
        true
    }

    /// Forgets a range and its values.
    pub(super) fn forget(&mut self, first: u64) {
        if let Some(range) = self.ranges.remove(&first) {
            let last = range.last;
            for store in self.stores.values_mut() {
                store.remove(KeyRange { first, last });
            }
        }
    }
}

/// The keys from `first` to before `end`, with their values. `size` is that of a value.
pub(super) fn restricted<'a>(body: Body<'a>, first: usize, end: usize, size: usize) -> Body<'a> {
    let lens = body.lens();
    let from = lens.total(0, first) * size;
    let to = from + lens.total(first, end) * size;
    Body {
        keys: &body.keys[first..end],
        lens: match body.lens {
            [] => &[],
            lens => &lens[first..end],
        },
        per_key: body.per_key,
        values: &body.values[from..to],
    }
}
