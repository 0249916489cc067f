//! Values that are too large for one message: how a worker stages those of a request, and puts together those of an answer.

use elasticrun_protocol::store::{Blob, MAX_MESSAGE, MAX_PIECE, Op, StagedValue, Value};

/// A value that a worker stages before the request that writes it.
#[derive(Debug)]
struct LargeValue {
    key: String,
    /// Its position among the values of the operation.
    index: u32,
    bytes: Vec<u8>,
    staged: u64,
}

/// A request with large values, and how far they are staged.
#[derive(Debug)]
pub(super) struct Upload {
    /// The operation without its large values.
    op: Op,
    values: Vec<LargeValue>,
    /// The value that is being staged, and the bytes of it that are.
    at: usize,
    offset: usize,
}

impl Upload {
    /// Takes the values that do not fit a message out of an operation. `Err` with the operation if all fit.
    pub(super) fn new(mut op: Op, mut number: impl FnMut() -> u64) -> Result<Self, Op> {
        let mut room = MAX_MESSAGE;
        let mut values = Vec::new();
        for (index, (key, value)) in op.values_mut().into_iter().enumerate() {
            let length = key.len() + value.0.len();
            if value.0.len() <= MAX_PIECE && length <= room {
                room -= length;
                continue;
            }
            room = room.saturating_sub(key.len());
            values.push(LargeValue {
                key: key.to_owned(),
                index: index as u32,
                bytes: std::mem::take(&mut value.0),
                staged: number(),
            });
        }
        if values.is_empty() {
            return Err(op);
        }
        Ok(Self {
            op,
            values,
            at: 0,
            offset: 0,
        })
    }

    /// The operation that stages the next piece, or the request itself after the last one.
    pub(super) fn next(&mut self) -> Op {
        if let Some(value) = self.values.get(self.at) {
            let offset = self.offset;
            let end = value.bytes.len().min(offset + MAX_PIECE);
            (self.at, self.offset) = match end == value.bytes.len() {
                true => (self.at + 1, 0),
                false => (self.at, end),
            };
            return Op::Stage {
                staged: value.staged,
                key: value.key.clone(),
                length: value.bytes.len() as u64,
                offset: offset as u64,
                bytes: value.bytes[offset..end].into(),
            };
        }
        self.at += 1;
        let staged = self.values.iter().map(|value| StagedValue {
            index: value.index,
            staged: value.staged,
            length: value.bytes.len() as u64,
        });
        Op::Large {
            op: Box::new(self.op.clone()),
            staged: staged.collect(),
        }
    }

    /// Whether the request itself was given.
    pub(super) fn is_sent(&self) -> bool {
        self.at > self.values.len()
    }

    /// Begins anew. The first piece of a value replaces what is staged of it.
    pub(super) fn restart(&mut self) {
        (self.at, self.offset) = (0, 0);
    }

    /// The numbers of all values.
    pub(super) fn numbers(&self) -> Vec<u64> {
        self.values.iter().map(|value| value.staged).collect()
    }
}

/// An answer with large values, and how far they are read.
#[derive(Debug)]
pub(super) struct Download {
    value: Value,
    staged: Vec<StagedValue>,
    /// The bytes that have come of the first of `staged`.
    bytes: Vec<u8>,
}

impl Download {
    /// Begins to read the staged values of an answer. `Err` with the answer if there are none.
    pub(super) fn new(answer: Value) -> Result<Self, Value> {
        match answer {
            Value::Large { value, staged } if !staged.is_empty() => Ok(Self {
                value: *value,
                staged,
                bytes: Vec::new(),
            }),
            answer => Err(answer),
        }
    }

    /// The operation that reads the next piece. `None` if all values have come.
    pub(super) fn next(&self) -> Option<Op> {
        let current = self.staged.first()?;
        Some(Op::ReadStaged {
            staged: current.staged,
            offset: self.bytes.len() as u64,
        })
    }

    /// Adds a piece. Returns `false` if it is none, or is too large.
    pub(super) fn add(&mut self, piece: Value) -> bool {
        let (Some(current), Value::Bytes(Blob(piece))) = (self.staged.first().copied(), piece)
        else {
            return false;
        };
        self.bytes.extend_from_slice(&piece);
        let length = self.bytes.len() as u64;
        if length == current.length {
            let place = current.index as usize;
            let bytes = std::mem::take(&mut self.bytes);
            self.staged.remove(0);
            let mut places = self.value.blobs_mut();
            return places.get_mut(place).map(|place| place.0 = bytes).is_some();
        }
        // A piece without bytes would be asked for again and again.
        length < current.length && !piece.is_empty()
    }

    /// The answer, with all values that have come.
    pub(super) fn into_answer(self) -> Value {
        self.value
    }

    /// The numbers of the values that were not read to their end.
    pub(super) fn numbers(&self) -> Vec<u64> {
        self.staged.iter().map(|value| value.staged).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &str, length: usize) -> (String, Blob) {
        (key.to_owned(), Blob(vec![7; length]))
    }

    fn counter() -> impl FnMut() -> u64 {
        let mut last = 0;
        move || {
            last += 1;
            last
        }
    }

    #[test]
    fn an_operation_that_fits_a_message_is_left_as_it_is() {
        let entries = vec![entry("a", MAX_PIECE), entry("b", MAX_PIECE - 2)];
        let op = Op::MultiSet { entries };
        assert_eq!(op.check(), Ok(()));
        assert_eq!(Upload::new(op.clone(), counter()).unwrap_err(), op);
    }

    #[test]
    fn only_values_that_do_not_fit_are_staged() {
        let lengths = [MAX_PIECE, 3, MAX_PIECE, 2 * MAX_PIECE + 5];
        let entries = ["a", "b", "c", "d"].iter().zip(lengths);
        let entries = entries.map(|(key, length)| entry(key, length)).collect();
        let mut upload = Upload::new(Op::MultiSet { entries }, counter()).expect("it is large");
        assert_eq!(upload.numbers(), [1, 2]);
        let mut pieces = Vec::new();
        let last = loop {
            match upload.next() {
                Op::Stage {
                    staged,
                    length,
                    offset,
                    bytes,
                    ..
                } => pieces.push((staged, length as usize, offset as usize, bytes.0.len())),
                op => break op,
            }
        };
        let (large, whole) = (2 * MAX_PIECE + 5, MAX_PIECE);
        let expected = [
            (1, whole, 0, whole),
            (2, large, 0, whole),
            (2, large, whole, whole),
            (2, large, 2 * whole, 5),
        ];
        assert_eq!(pieces, expected);
        assert!(upload.is_sent());
        assert_eq!(last.check(), Ok(()));
        let Op::Large { op, staged } = last else {
            panic!("{last:?}");
        };
        let entries = vec![
            entry("a", MAX_PIECE),
            entry("b", 3),
            entry("c", 0),
            entry("d", 0),
        ];
        assert_eq!(*op, Op::MultiSet { entries });
        assert_eq!(staged.iter().map(|at| at.index).collect::<Vec<_>>(), [2, 3]);
        upload.restart();
        assert!(!upload.is_sent());
        assert!(matches!(
            upload.next(),
            Op::Stage {
                staged: 1,
                offset: 0,
                ..
            }
        ));
    }

    #[test]
    fn an_answer_is_put_together() {
        let staged = [(0, 5, 3), (2, 6, 1)].map(|(index, staged, length)| StagedValue {
            index,
            staged,
            length,
        });
        let blobs = ["", "b", ""].map(|text| Blob(text.into())).to_vec();
        let answer = Value::Large {
            value: Box::new(Value::Many(blobs)),
            staged: staged.to_vec(),
        };
        let mut download = Download::new(answer).expect("it is large");
        let piece = |text: &str| Value::Bytes(Blob(text.into()));
        for (staged, offset, text) in [(5, 0, "xy"), (5, 2, "z"), (6, 0, "c")] {
            assert_eq!(download.next(), Some(Op::ReadStaged { staged, offset }));
            assert!(download.add(piece(text)));
        }
        assert_eq!(download.next(), None);
        assert!(download.numbers().is_empty());
        let blobs = ["xyz", "b", "c"].map(|text| Blob(text.into())).to_vec();
        assert_eq!(download.into_answer(), Value::Many(blobs));
        assert_eq!(Download::new(Value::Done).unwrap_err(), Value::Done);
    }

    #[test]
    fn a_wrong_piece_is_refused() {
        for piece in [
            Value::Done,
            Value::Bytes(Blob::default()),
            Value::Bytes(Blob(vec![0; 4])),
        ] {
            let staged = vec![StagedValue {
                index: 0,
                staged: 1,
                length: 3,
            }];
            let value = Box::new(Value::Bytes(Blob::default()));
            let mut download = Download::new(Value::Large { value, staged }).expect("it is large");
            assert!(!download.add(piece));
        }
    }
}
