//! The loop around the training function.

use elasticrun_shared::{page::Phase, slice};

use crate::{
    Error, Session, State,
    agent::{Left, Link},
    round::Live,
};

/// Trains `state` through all changes of the job's hosts: calls `train` once for each round, until it
/// returns `Ok` or an error of its own.
///
/// Before each call the state is the same in all workers, that of the newest commit, and [`State::reset`]
/// was called. `train` gets the round and the state; it must go on from wherever the state is, and return
/// the errors of [`Session`]'s calls, as they are or wrapped. When it has returned `Ok`, this process is done:
/// it should end soon, since the job ends when all workers have.
///
/// Called once in a process. Outside of a job (no `ELASTICRUN_AGENT_SOCKET`) it runs in a world of one worker.
///
/// # Errors
/// Any error of `train` that no interrupt led to, unchanged; the process should end with a non-zero exit
/// code then, which is a failure of this worker. [`Error::Removed`] and [`Error::Stopped`] if the job goes on
/// without this process, whose exit code is ignored then. Else what went wrong in the SDK.
pub fn run<S, T, E>(
    state: &mut S,
    mut train: impl FnMut(&mut Session<'_>, &mut S) -> Result<T, E>,
) -> Result<T, E>
where
    S: State + ?Sized,
    E: From<Error>,
{
    let mut link = Link::open()?;
    let mut live = Live::default();
    let mut left = None;
    loop {
        let hurry = left.and_then(|_| hurry());
        let started = link.next_round(left)?;
        let round = started.start.round;
        let mut session = match Session::begin(&mut link, started, state, &mut live, hurry) {
            Ok(session) => session,
            Err(error) if error.interrupt().is_some() => {
                link.page.set_phase(Phase::Left);
                let told = link.page.aborted(round);
                left = Some(Left { round, told });
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        session.train();
        match train(&mut session, state) {
            Ok(value) => {
                session.finish();
                return Ok(value);
            }
            Err(error) => match session.leave() {
                Some(how) => left = Some(how),
                None => return Err(error),
            },
        }
    }
}

/// Who comes from a round competes for the processor with all others that do, and with those that train
/// already: until its first boundary it takes turns quickly, so that nobody waits for a whole slice of each.
fn hurry() -> Option<slice::Short> {
    slice::Short::new(slice::SHORTEST).ok()
}
