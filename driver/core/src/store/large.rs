//! Values that are too large for one message: staged by workers before they are written, and by the store before they are
//! read. [`elasticrun_protocol::store`] describes the messages.

use elasticrun_protocol::store::{Blob, Op, Refused, StagedValue, Value};

use super::{Client, Space, Store, values::ValueId};

/// A worker that gets values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader {
    pub(super) client: Client,
    pub(super) space: Space,
    /// It can read staged values.
    pub(super) reads_staged: bool,
}

/// A piece of a value that a worker stages.
pub(super) struct Piece {
    pub(super) staged: u64,
    pub(super) key: String,
    pub(super) length: u64,
    pub(super) offset: u64,
    pub(super) bytes: Vec<u8>,
}

impl Store {
    /// Takes a piece of a value. The first one reserves the size of the whole value.
    pub(super) fn stage(
        &mut self,
        client: Client,
        space: Space,
        piece: Piece,
    ) -> Result<(), Refused> {
        let staged = (client, piece.staged);
        if piece.offset == 0 {
            self.transfers.discard_upload(staged);
            let length = usize::try_from(piece.length).unwrap_or(usize::MAX);
            self.check_transfers(client, 1)?;
            if self.bytes().saturating_add(length) > self.limits.bytes
                || self.transfers.begin(staged, space, length).is_none()
            {
                return Err(self.limits.full(&piece.key, length));
            }
        }
        self.transfers.extend(staged, piece.offset, &piece.bytes)
    }

    /// Puts staged values into the operation that writes them. They are staged no longer, whether or not it is carried out.
    pub(super) fn unstage(
        &mut self,
        client: Client,
        space: Space,
        mut op: Op,
        staged: &[StagedValue],
    ) -> Result<Op, Refused> {
        let taken: Vec<_> = (staged.iter())
            .map(|value| self.transfers.take_upload((client, value.staged), space))
            .collect();
        let mut places = op.values_mut();
        for (value, bytes) in staged.iter().zip(taken) {
            let (not_staged, bytes) = (
                Refused::NotStaged {
                    staged: value.staged,
                },
                bytes?,
            );
            let place = places.get_mut(value.index as usize).ok_or(not_staged)?;
            *place.1 = Blob(bytes);
        }
        drop(places);
        Ok(op)
    }

    /// The next piece of a value that is staged for a worker.
    pub(super) fn read_staged(
        &mut self,
        client: Client,
        staged: u64,
        offset: u64,
    ) -> Result<Value, Refused> {
        let download = self.transfers.download((client, staged))?;
        let bytes = self.contents.values.get(download.value);
        let rest = usize::try_from(offset)
            .ok()
            .and_then(|offset| bytes.get(offset..));
        let rest = rest.ok_or(Refused::NotStaged { staged })?;
        let piece = Blob(rest[..rest.len().min(self.limits.piece)].to_vec());
        if piece.0.len() == rest.len() {
            self.discard_download(client, staged);
        }
        Ok(Value::Bytes(piece))
    }

    pub(super) fn discard_download(&mut self, client: Client, staged: u64) {
        if let Some(value) = self.transfers.end_download((client, staged)) {
            self.contents.values.release(value);
        }
    }

    /// Which values of these sizes are staged, since an answer has no room for them.
    pub(super) fn plan(&self, reader: Reader, lengths: &[usize]) -> Result<Vec<bool>, Refused> {
        let mut room = self.limits.answer;
        let is_staged = |length: &usize| {
            let fits = *length <= room;
            room -= if fits { *length } else { 0 };
            !fits
        };
        let staged: Vec<bool> = lengths.iter().map(is_staged).collect();
        let count = staged.iter().filter(|staged| **staged).count();
        if count > 0 && !reader.reads_staged {
            let length = lengths.iter().sum::<usize>() as u64;
            let limit = self.limits.answer as u64;
            return Err(Refused::AnswerTooLarge { length, limit });
        }
        self.check_transfers(reader.client, count)?;
        Ok(staged)
    }

    fn check_transfers(&self, client: Client, new: usize) -> Result<(), Refused> {
        if new > 0 && self.transfers.of(client) + new > self.limits.transfers {
            let limit = self.limits.transfers as u64;
            return Err(Refused::TooManyTransfers { limit });
        }
        Ok(())
    }

    /// Gives values to a worker. `answer` makes an answer of the bytes, which are empty for staged values.
    pub(super) fn give(
        &mut self,
        reader: Reader,
        values: &[ValueId],
        answer: impl FnOnce(Vec<Blob>) -> Value,
    ) -> Result<Value, Refused> {
        let length = |value: &ValueId| self.contents.values.get(*value).len();
        let lengths: Vec<usize> = values.iter().map(length).collect();
        let plan = self.plan(reader, &lengths)?;
        let (mut blobs, mut staged) = (Vec::new(), Vec::new());
        for (index, (value, is_staged)) in values.iter().zip(plan).enumerate() {
            if is_staged {
                self.contents.values.hold(*value);
                staged.push(StagedValue {
                    index: index as u32,
                    staged: (self.transfers).add_download(reader.client, reader.space, *value),
                    length: lengths[index] as u64,
                });
                blobs.push(Blob::default());
            } else {
                blobs.push(Blob(self.contents.values.get(*value).to_vec()));
            }
        }
        let value = answer(blobs);
        if staged.is_empty() {
            return Ok(value);
        }
        let value = Box::new(value);
        Ok(Value::Large { value, staged })
    }
}
