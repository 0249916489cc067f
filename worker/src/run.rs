//! The loop around the training function.

use crate::{Error, Group, Hooks, Session, SetupStep, State, Worker};

/// Trains `state` through all changes of the job's hosts. Calls `train` once for each round, until
/// it returns `Ok` or an error of its own.
///
/// Before each call, the state is the same in all workers, that of the newest commit, and
/// [`State::reset`] was called. `train` receives the round and the state. It must continue from any
/// state, and return the errors of [`Session`]'s calls, as they are or wrapped. When it has
/// returned `Ok`, this process is done. It should end soon, since the job ends when all workers
/// have.
///
/// Call it once per process. Outside of a job (no `ELASTICRUN_AGENT_SOCKET`), it runs as a single
/// process.
///
/// # Errors
/// Any error of `train` that no interrupt caused, unchanged. The process should then end with a
/// non-zero exit code, which is a failure of this worker. [`Error::Removed`] and [`Error::Stopped`]
/// if the job continues without this process, whose exit code is then ignored. Otherwise an error
/// of the SDK.
pub fn run<S, T, E>(
    state: &mut S,
    mut train: impl FnMut(&mut Session<'_>, &mut S) -> Result<T, E>,
) -> Result<T, E>
where
    S: State + ?Sized,
    E: From<Error>,
{
    let mut worker = Worker::attach()?;
    loop {
        // Without a timeout, it returns with a round.
        let Some(mut group) = worker.join(None)? else {
            continue;
        };
        match set_up(&mut worker, &mut group, state) {
            Ok(()) => {}
            Err(error) if error.interrupt().is_some() || error.is_stop() => {
                drop(group);
                worker.leave(false);
                continue;
            }
            Err(error) => return Err(error.into()),
        }
        let mut session = Session::new(&mut worker, group)?;
        let entered = state.enter(&mut session).map_err(E::from);
        match entered.and_then(|()| train(&mut session, state)) {
            Ok(value) => {
                session.finish();
                return Ok(value);
            }
            Err(error) => {
                if !session.leave() {
                    return Err(error);
                }
            }
        }
    }
}

fn set_up(
    worker: &mut Worker,
    group: &mut Group,
    state: &mut (impl State + ?Sized),
) -> Result<(), Error> {
    for step in worker.setup(Hooks::default())? {
        match step {
            SetupStep::FetchBase => worker.fetch_base()?,
            SetupStep::RestoreNewest | SetupStep::Restore => {
                worker.restore_newest(state)?;
            }
            // For SDKs whose states have user callbacks for these steps.
            SetupStep::Reset
            | SetupStep::RequireBase
            | SetupStep::SyncOwn
            | SetupStep::LoadShards
            | SetupStep::SealFirst => {}
            SetupStep::Sync { fresh } => {
                worker.sync(group, state, fresh)?;
            }
            SetupStep::Adapt => {
                if let Some(world) = worker.world() {
                    state.reset(world);
                }
            }
            SetupStep::Train => worker.train(),
        }
    }
    Ok(())
}
