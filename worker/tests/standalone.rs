//! A script run by hand: a single process without an agent.

use std::io::{self, Write};

use elasticrun_worker::{Error, Op, Session, State, run, state};

#[test]
fn a_single_process_trains_commits_and_calls_collectives() {
    let mut state = (vec![0.0_f32; 3], 0_u64);
    let committed = run(&mut state, |session, (weights, step)| {
        assert_eq!((session.rank(), session.size()), (0, 1));
        let mut last = None;
        for _ in 0..3 {
            let mut gradient = [1.0_f32, 2.0, 3.0];
            session.allreduce(&mut gradient, Op::Average)?;
            for (weight, slope) in weights.iter_mut().zip(gradient) {
                *weight += slope;
            }
            *step += 1;
            session.check_host_updates(weights)?;
            assert_eq!(
                last.map_or(1, |id: elasticrun_worker::CommitId| id.count + 1),
                session.next_commit().count
            );
            last = Some(session.commit(&mut (weights.clone(), *step))?);
        }
        assert_eq!(session.allgather(&[7_u8])?, [7]);
        session.barrier()?;
        Ok::<_, Error>(last)
    });
    assert_eq!(committed.unwrap().unwrap().count, 3);
    assert_eq!(state, (vec![3.0, 6.0, 9.0], 3));
}

#[derive(Debug, thiserror::Error)]
enum Mine {
    #[error("mine")]
    Own,
    #[error(transparent)]
    Worker(#[from] Error),
}

#[test]
fn an_error_of_the_training_function_is_returned_unchanged_and_a_wrong_call_ends_training() {
    let error = run(&mut 0_u8, |_, _| Err::<(), _>(Mine::Own)).unwrap_err();
    assert!(matches!(error, Mine::Own));

    let error = run(&mut 0_u8, |session, _| {
        Ok::<_, Mine>(session.broadcast(&mut [1_u8], 5)?)
    })
    .unwrap_err();
    assert!(
        matches!(error, Mine::Worker(Error::Collective(_))),
        "{error}"
    );
}

/// Counts the calls of its hooks.
#[derive(Default)]
struct Counts {
    entered: u64,
    agreed: u64,
}

impl State for Counts {
    fn save(&self, out: &mut dyn Write) -> io::Result<()> {
        self.agreed.save(out)
    }

    fn restore(&mut self, from: &mut &[u8]) -> Result<(), state::Error> {
        self.agreed.restore(from)
    }

    fn enter(&mut self, session: &mut Session<'_>) -> Result<(), Error> {
        self.entered += session.allgather(&[1_u64])?.len() as u64;
        Ok(())
    }

    fn agree(&mut self, session: &mut Session<'_>) -> Result<(), Error> {
        self.agreed += session.allgather(&[1_u64])?.len() as u64;
        Ok(())
    }
}

#[test]
fn a_part_of_a_state_is_asked_at_the_start_and_before_each_commit() {
    let mut state = (0_u64, Counts::default());
    let seen = run(&mut state, |session, state| {
        let entered = state.1.entered;
        session.commit(state)?;
        session.check_host_updates(state)?;
        session.commit(state)?;
        Ok::<_, Error>((entered, state.1.agreed))
    });
    // The check made no commit.
    assert_eq!(seen.unwrap(), (1, 2));
}
