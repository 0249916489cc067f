//! Which agent a member asks for parts that hosts pass on: the first of a list that answers.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use elasticrun_protocol::control::Via;

use crate::Error;

/// Agents that could not pass anything on in a round.
#[derive(Debug, Default)]
pub(super) struct Skipped(Mutex<BTreeSet<SocketAddr>>);

impl Skipped {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<SocketAddr>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks one agent after the other, each with those after it and the holder. Returns the first answer. None if none of them
    /// passes the parts on, so that the holder is to be asked.
    ///
    /// # Errors
    /// If the round is over.
    pub(super) fn first_answer<T>(
        &self,
        relays: &[Via],
        holder: SocketAddr,
        mut ask: impl FnMut(Via, Vec<Via>) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        for (nth, relay) in relays.iter().enumerate() {
            let skipped = self.lock().clone();
            if skipped.contains(&relay.agent) {
                continue;
            }
            let rest = relays[nth + 1..].iter().copied();
            let holder = Via {
                agent: holder,
                requests: 0,
            };
            let rest = rest.filter(|via| !skipped.contains(&via.agent));
            let error = match ask(*relay, rest.chain([holder]).collect()) {
                Ok(answer) => return Ok(Some(answer)),
                Err(error) => error,
            };
            match error {
                Error::ShardMissing { .. } => {}
                Error::Fetch { .. } | Error::Damaged { .. } | Error::Protocol { .. } => {
                    self.lock().insert(relay.agent);
                }
                over => return Err(over),
            }
            tracing::info!(agent = %relay.agent, %error, "an agent does not pass a shard on; the next one is asked");
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use elasticrun_protocol::{CommitId, DriverEpoch, Round};

    use super::*;

    const COMMIT: CommitId = CommitId {
        epoch: DriverEpoch(1),
        round: Round(1),
        count: 1,
    };

    fn address(agent: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], agent))
    }

    /// An agent that is asked, and those after it.
    type Asked = (u16, Vec<u16>);

    /// Who is asked, each with the agents after it, if these answer in this way. The relays are agents 1 to 3; 9 has the
    /// commit.
    fn asked(
        skipped: &Skipped,
        answer: impl Fn(u16) -> Result<u16, Error>,
    ) -> (Vec<Asked>, Result<Option<u16>, Error>) {
        let relays = [1, 2, 3].map(|agent| Via {
            agent: address(agent),
            requests: 2,
        });
        let mut asked = Vec::new();
        let answered = skipped.first_answer(&relays, address(9), |relay, via| {
            let agent = relay.agent.port();
            asked.push((agent, via.iter().map(|via| via.agent.port()).collect()));
            answer(agent)
        });
        (asked, answered)
    }

    fn broken(agent: u16) -> Result<u16, Error> {
        Err(Error::Fetch {
            id: COMMIT,
            address: address(agent),
            source: io::ErrorKind::ConnectionReset.into(),
        })
    }

    #[test]
    fn an_agent_that_fails_is_skipped_for_the_rest_of_the_round() {
        let skipped = Skipped::default();
        let (all, answer) = asked(&skipped, |agent| match agent {
            1 => broken(1),
            2 => Err(Error::ShardMissing {
                id: COMMIT,
                shard: 0,
            }),
            other => Ok(other),
        });
        assert_eq!(all, [(1, vec![2, 3, 9]), (2, vec![3, 9]), (3, vec![9])]);
        assert!(matches!(answer, Ok(Some(3))));
        // The second one may have other parts.
        let (all, _) = asked(&skipped, Ok);
        assert_eq!(all, [(2, vec![3, 9])]);
    }

    #[test]
    fn the_holder_is_asked_if_no_other_answers() {
        let skipped = Skipped::default();
        let (all, answer) = asked(&skipped, broken);
        assert_eq!(all.len(), 3);
        assert!(matches!(answer, Ok(None)));
        let (all, answer) = asked(&skipped, Ok);
        assert!(all.is_empty() && matches!(answer, Ok(None)));
    }

    #[test]
    fn nobody_is_asked_after_the_end_of_the_round() {
        let (all, answer) = asked(&Skipped::default(), |_| Err(Error::NO_ROUND));
        assert_eq!(all.len(), 1);
        assert!(answer.is_err());
    }
}
