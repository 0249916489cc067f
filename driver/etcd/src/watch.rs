//! A stream of changes.

use crate::{Batch, Revision, error::Error, model::WatchAnswer, transport::Answer};

/// Why a watch gives no more changes.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WatchError {
    /// Changes that it would give are gone. Read the keys again, and watch from the next revision.
    #[error("the changes before revision {} are compacted", .0.0)]
    Compacted(Revision),
    /// The stream has ended. The same watch can be opened again from the first revision that was not seen.
    #[error("the watch has ended: {0}")]
    Broken(Error),
}

/// A watch. It lives as long as its endpoint has a leader; a member that is stopped is silent for ever, so a caller that
/// must not miss a change also reads the keys now and then.
#[derive(Debug)]
pub struct Watch(Answer);

impl Watch {
    /// Waits until the watch stands. The outer error is one of the endpoint, so that another one can be tried.
    pub(crate) async fn open(mut answer: Answer) -> Result<Result<Self, WatchError>, Error> {
        let first = read(&mut answer).await?;
        if first.canceled {
            return Ok(Err(cancelled(&answer, &first)));
        }
        if !first.created {
            return Err(answer.no_answer("it has not created the watch"));
        }
        Ok(Ok(Self(answer)))
    }

    /// The next changes. Cancel-safe.
    ///
    /// # Errors
    /// See [`WatchError`]. The watch is of no more use.
    pub async fn next(&mut self) -> Result<Batch, WatchError> {
        loop {
            let answer = read(&mut self.0).await.map_err(WatchError::Broken)?;
            if answer.canceled {
                return Err(cancelled(&self.0, &answer));
            }
            let batch = Batch::from(answer);
            if !batch.changes.is_empty() {
                return Ok(batch);
            }
        }
    }
}

async fn read(answer: &mut Answer) -> Result<WatchAnswer, Error> {
    match answer.next().await? {
        Some(value) => answer.read(value),
        None => Err(answer.no_answer("it has ended the stream")),
    }
}

fn cancelled(answer: &Answer, last: &WatchAnswer) -> WatchError {
    if last.compact_revision != Revision::default() {
        return WatchError::Compacted(last.compact_revision);
    }
    let why = match last.cancel_reason.as_str() {
        "" => "it has cancelled the watch",
        reason => reason,
    };
    WatchError::Broken(answer.no_answer(why))
}
