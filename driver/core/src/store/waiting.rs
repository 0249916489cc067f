//! Operations that wait for keys: how they begin, and how they are answered.

use elasticrun_protocol::store::{Blob, Namespace, Op, Refused, Request, Value};

use super::{
    Command, Store, answer,
    contents::Condition,
    large::Reader,
    waits::{Wait, Wanted},
};
use crate::Time;

impl Store {
    pub(super) fn wait(
        &mut self,
        now: Time,
        reader: Reader,
        request: Request,
        out: &mut Vec<Command>,
    ) -> Result<Option<Value>, Refused> {
        let (keys, wanted) = match request.op {
            Op::Get { key } => (vec![key], Wanted::One),
            Op::MultiGet { keys } => (keys, Wanted::All),
            Op::Wait { keys } => (keys, Wanted::Presence),
            Op::QueuePop { key, .. } => (vec![key], Wanted::Element),
            // Other operations never wait.
            _ => return Ok(None),
        };
        let Reader { client, space, .. } = reader;
        let wait = Wait {
            client,
            number: request.number,
            space,
            reads_staged: reader.reads_staged,
            round: match request.namespace {
                Namespace::Round { round, .. } => Some(round),
                Namespace::Job => None,
            },
            keys,
            wanted,
            until: now + request.timeout,
            arrival: self.waits.next_arrival(),
            watched: 0,
        };
        if self.first_missing(&wait).is_some() {
            if request.timeout.is_zero() {
                let condition = wanted.condition();
                return Err(self.contents.timed_out(condition, space, &wait.keys));
            }
            if self.waits.of(client) >= self.limits.waits {
                let limit = self.limits.waits as u64;
                return Err(Refused::TooManyWaits { limit });
            }
            let bytes: usize = wait.keys.iter().map(String::len).sum();
            if self.bytes() + bytes > self.limits.bytes {
                return Err(self.limits.full("", 0));
            }
        }
        self.settle(wait, out);
        Ok(None)
    }

    /// Answers the requests whose last missing key has arrived. A new element wakes those first that wait for its key, then
    /// the one that takes it.
    pub(super) fn wake(&mut self, out: &mut Vec<Command>) {
        for (space, key, created) in self.contents.take_fresh() {
            let mut watched = (space, key, Condition::Either);
            let mut woken = self.waits.take_watchers(&watched);
            watched.2 = created;
            if created == Condition::Value {
                woken.extend(self.waits.take_watchers(&watched));
            }
            for wait in woken {
                self.settle(wait, out);
            }
            while created == Condition::Element && self.contents.first(space, &watched.1).is_some()
            {
                let Some(wait) = self.waits.take_first_watcher(&watched) else {
                    break;
                };
                self.settle(wait, out);
            }
        }
    }

    /// Answers a request, unless a key is missing.
    fn settle(&mut self, mut wait: Wait, out: &mut Vec<Command>) {
        match self.first_missing(&wait) {
            Some(missing) => {
                wait.watched = missing;
                self.waits.add(wait);
            }
            None => {
                let result = self.collect(&wait);
                out.push(answer(wait.client, wait.number, result));
            }
        }
    }

    /// The index of a missing key of a wait, searched from the key that it watches.
    fn first_missing(&self, wait: &Wait) -> Option<usize> {
        let condition = wait.wanted.condition();
        let is_missing =
            |at: &usize| !(self.contents).meets(condition, wait.space, &wait.keys[*at]);
        let mut rest = wait.watched..wait.keys.len();
        // Earlier keys existed when they were checked, but may have been deleted since.
        rest.find(is_missing)
            .or_else(|| (0..wait.watched).find(is_missing))
    }

    /// The answer to a wait, whose keys are all present.
    fn collect(&mut self, wait: &Wait) -> Result<Value, Refused> {
        let reader = Reader {
            client: wait.client,
            space: wait.space,
            reads_staged: wait.reads_staged,
        };
        let value = |key: &String| self.contents.value(wait.space, key);
        let values: Vec<_> = wait.keys.iter().filter_map(value).collect();
        let bytes = |blob: Option<Blob>| Value::Bytes(blob.unwrap_or_default());
        match wait.wanted {
            Wanted::Presence => Ok(Value::Done),
            Wanted::One => self.give(reader, &values, |mut blobs| bytes(blobs.pop())),
            Wanted::All => self.give(reader, &values, Value::Many),
            Wanted::Element => self.pop(reader, &wait.keys[0], bytes),
        }
    }
}
