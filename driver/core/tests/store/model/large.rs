//! What the model does with values that do not fit a message.

use std::rc::Rc;

use elasticrun_protocol::store::{Blob, Op, Refused, StagedValue, Value};

use super::{
    LIMITS,
    state::{Model, Shared, Upload, refused},
};

impl Model {
    pub(super) fn transfers_of(&self, who: u32) -> usize {
        let uploads = self.uploads.keys().filter(|(at, _)| *at == who);
        let downloads = self.downloads.keys().filter(|(at, _)| *at == who);
        uploads.count() + downloads.count()
    }

    /// Which of these values an answer has no room for.
    pub(super) fn plan(&self, who: u32, values: &[Shared]) -> Result<Vec<bool>, Refused> {
        let mut sum = 0;
        let staged = values.iter().map(|value| {
            let fits = sum + value.len() <= LIMITS.answer;
            sum += if fits { value.len() } else { 0 };
            !fits
        });
        let staged: Vec<_> = staged.collect();
        let count = staged.iter().filter(|staged| **staged).count();
        if count > 0 && self.transfers_of(who) + count > LIMITS.transfers {
            return Err(Refused::TooManyTransfers { limit: 3 });
        }
        Ok(staged)
    }

    pub(super) fn give(
        &mut self,
        (who, of_job): (u32, bool),
        values: &[Shared],
        answer: impl FnOnce(Vec<Blob>) -> Value,
    ) -> Result<Value, Refused> {
        let (mut blobs, mut staged) = (Vec::new(), Vec::new());
        for (index, is_staged) in self.plan(who, values)?.into_iter().enumerate() {
            let value = Rc::clone(&values[index]);
            blobs.push(Blob(if is_staged {
                Vec::new()
            } else {
                value.to_vec()
            }));
            if is_staged {
                self.last += 1;
                staged.push(StagedValue {
                    index: index as u32,
                    staged: self.last,
                    length: value.len() as u64,
                });
                self.downloads.insert((who, self.last), (of_job, value));
            }
        }
        let value = answer(blobs);
        Ok(match staged.is_empty() {
            true => value,
            false => Value::Large {
                value: Box::new(value),
                staged,
            },
        })
    }

    pub(super) fn pop(
        &mut self,
        reader: (u32, bool),
        key: &str,
        answer: impl FnOnce(Option<Blob>) -> Value,
    ) -> Result<Value, Refused> {
        let first: Vec<_> = self.keys(reader.1).first(key).into_iter().collect();
        let value = self.give(reader, &first, |mut blobs| answer(blobs.pop()))?;
        if let Some(queue) = self.keys(reader.1).queues.get_mut(key) {
            queue.pop_front();
        }
        Ok(value)
    }

    /// Takes a piece of a value.
    pub(super) fn stage(
        &mut self,
        at: (u32, u64),
        of_job: bool,
        op: &Op,
    ) -> Result<Value, Refused> {
        let Op::Stage {
            key,
            length,
            offset,
            bytes,
            ..
        } = op
        else {
            unreachable!("it stages");
        };
        if *offset == 0 {
            self.uploads.remove(&at);
            if self.transfers_of(at.0) >= LIMITS.transfers {
                return Err(Refused::TooManyTransfers { limit: 3 });
            }
            let length = *length as usize;
            if self.bytes() + length > LIMITS.bytes {
                return Err(refused(key, length));
            }
            let bytes = Vec::new();
            self.uploads.insert(
                at,
                Upload {
                    of_job,
                    length,
                    bytes,
                },
            );
        }
        let upload = self
            .uploads
            .get_mut(&at)
            .filter(|upload| upload.bytes.len() as u64 == *offset);
        let upload = upload.ok_or(Refused::NotStaged { staged: at.1 })?;
        upload.bytes.extend(&bytes.0);
        Ok(Value::Done)
    }

    /// The operation with its staged value.
    pub(super) fn unstage(&mut self, who: u32, of_job: bool, op: &Op) -> Result<Op, Refused> {
        let Op::Large { op, staged } = op else {
            return Ok(op.clone());
        };
        let staged = staged[0].staged;
        let upload = self.uploads.remove(&(who, staged));
        let whole =
            |upload: &Upload| upload.of_job == of_job && upload.bytes.len() == upload.length;
        let upload = upload.filter(whole).ok_or(Refused::NotStaged { staged })?;
        let mut op = (**op).clone();
        *op.values_mut()[0].1 = Blob(upload.bytes);
        Ok(op)
    }

    pub(super) fn read_staged(&mut self, at: (u32, u64), offset: u64) -> Result<Value, Refused> {
        let staged = at.1;
        let download = self.downloads.get(&at);
        let (_, value) = download.ok_or(Refused::NotStaged { staged })?;
        let rest = value
            .get(offset as usize..)
            .ok_or(Refused::NotStaged { staged })?;
        let piece = rest[..rest.len().min(4)].to_vec();
        if piece.len() == rest.len() {
            self.downloads.remove(&at);
        }
        Ok(Value::Bytes(Blob(piece)))
    }
}
