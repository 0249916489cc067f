//! The newest state of a run, as a watch reports it.

use std::time::Duration;

use elasticrun_etcd::{Change, Revision, WatchError};
use elasticrun_protocol::rendezvous::Snapshot;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use super::run::{Run, snapshot};

/// How long after a failed call the next one begins.
const RETRY: Duration = Duration::from_millis(200);

/// The longest wait for a change before the state is read again. A watch may be silent for ever.
const POLL: Duration = Duration::from_secs(5);

/// What is known of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Followed {
    /// Whether the cluster has answered the last read.
    pub(crate) connected: bool,
    /// The newest state; `None` before the first read.
    pub(crate) newest: Option<Snapshot>,
}

/// Follows the state until nobody listens. A slow listener gets the newest state, not each one.
pub(crate) async fn follow(run: Run, followed: watch::Sender<Followed>) {
    while !followed.is_closed() {
        let (newest, at) = match run.read_at().await {
            Ok(read) => read,
            Err(error) => {
                tracing::debug!(%error, "the state of the rendezvous cannot be read");
                followed.send_if_modified(|followed| std::mem::take(&mut followed.connected));
                sleep(RETRY).await;
                continue;
            }
        };
        report(&followed, newest);
        if let Err(error) = report_changes(&run, at, &followed).await {
            tracing::debug!(%error, "the watch of the rendezvous has ended");
            sleep(RETRY).await;
        }
    }
}

/// Reports each change after a revision, until there is none for [`POLL`].
async fn report_changes(
    run: &Run,
    after: Revision,
    followed: &watch::Sender<Followed>,
) -> Result<(), WatchError> {
    let mut watch = run.watch(after).await?;
    while let Ok(batch) = timeout(POLL, watch.next()).await {
        let batch = batch?;
        let newest = match batch.changes.into_iter().next_back() {
            Some(Change::Put(found)) => snapshot(Some(found), batch.revision),
            Some(Change::Deleted { revision, .. }) => snapshot(None, revision),
            None => continue,
        };
        report(followed, newest);
    }
    Ok(())
}

/// Reports a state, if it is another one.
fn report(followed: &watch::Sender<Followed>, newest: Snapshot) {
    followed.send_if_modified(|known| {
        let connected = std::mem::replace(&mut known.connected, true);
        let is_new = match &known.newest {
            None => true,
            // A state that is not there has a token for each read.
            Some(known) => {
                known.token < newest.token && (known.state.is_some() || newest.state.is_some())
            }
        };
        if is_new {
            known.newest = Some(newest);
        }
        is_new || !connected
    });
}
