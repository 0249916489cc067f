//! A data set as a part of a worker state: it gets its rows at the start of a round, and collects the processed rows
//! before a commit.

use std::io::{self, Write};

use elasticrun_worker::{Error as SdkError, Session, State, state};

use super::{Elastic, Error};

impl State for Elastic {
    fn save(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.is_ahead() {
            return Err(io::Error::other(
                "rows were processed of which the other workers were not told: a state that holds a data set passes \
                 State::enter and State::agree on to it",
            ));
        }
        let bytes = self.position().save();
        (bytes.len() as u64).save(out)?;
        out.write_all(bytes)
    }

    fn restore(&mut self, from: &mut &[u8]) -> Result<(), state::Error> {
        let mut len = 0_u64;
        len.restore(from)?;
        let bytes = state::take(from, len)?;
        self.restore_position(bytes).map_err(state::Error::other)
    }

    fn enter(&mut self, session: &mut Session<'_>) -> Result<(), SdkError> {
        let agree = |error: Error| SdkError::Agree(Box::new(error));
        let local = self.introduce();
        let all = session.allgather_bytes(&local)?;
        self.enter_round(session.rank() as usize, &all)
            .map_err(agree)?;
        let world = session.world();
        let base = world.base().map(|base| base.to_string());
        self.audit_round(world.round().0, base.as_deref())
            .map_err(agree)
    }

    fn agree(&mut self, session: &mut Session<'_>) -> Result<(), SdkError> {
        let agree = |error: Error| SdkError::Agree(Box::new(error));
        let local = self
            .report(&session.next_commit().to_string())
            .map_err(agree)?;
        let all = session.allgather_bytes(&local)?;
        self.agree_on(&all).map_err(agree)
    }

    fn committed(&mut self) -> Result<(), SdkError> {
        self.commit_made()
            .map_err(|error| SdkError::Agree(Box::new(error)))
    }
}
