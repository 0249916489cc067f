//! Exchange through the key-value store, as libraries use it for addresses.

use std::time::Duration;

use elasticrun_worker::{Error, Session};

/// Longer than any test waits: a worker that stays blocked for so long was never woken.
const PATIENCE: Duration = Duration::from_secs(600);

/// Each worker stores its process id and checks that it reads those of exactly the members of the round. Gives the
/// rounds of the job so far.
pub(super) fn at_start(session: &mut Session<'_>) -> Result<String, Error> {
    let (store, job) = (session.store(), session.job_store());
    let own = std::process::id().to_le_bytes();
    store.set(&format!("pid/{}", session.rank()), &own)?;
    if session.rank() == 0 {
        let round = format!("{} ", session.world().round());
        job.append("rounds", round.as_bytes())?;
        store.set("noted", b"")?;
    }
    let names: Vec<_> = (0..session.size())
        .map(|rank| format!("pid/{rank}"))
        .collect();
    let met = store.multi_get(&names, PATIENCE)?.concat();
    assert_eq!(
        met,
        session.allgather(&own)?,
        "the store holds other process ids"
    );
    store.wait(&["noted"], PATIENCE)?;
    let rounds = job.get("rounds", PATIENCE)?;
    Ok(String::from_utf8_lossy(&rounds).trim_end().to_owned())
}

/// Rank 0 stores the step, the others wait for it.
pub(super) fn at_step(session: &Session<'_>, step: u64) -> Result<(), Error> {
    let (store, key) = (session.store(), format!("step/{step}"));
    match session.rank() {
        0 => store.set(&key, &step.to_le_bytes()),
        _ => {
            let said = store.get(&key, PATIENCE)?;
            assert_eq!(said, step.to_le_bytes(), "the value that rank 0 stored");
            Ok(())
        }
    }
}
