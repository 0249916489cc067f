//! The thread that watches the pods and says that something has changed.

use std::{io, thread, time::Duration};

use elasticrun_plugin_sdk::{Changed, text::with_causes, tracing};
use futures_util::{StreamExt, pin_mut};
use kube::api::{WatchEvent, WatchParams};
use tokio::{sync::oneshot, time::sleep};

use crate::{Options, cluster::Cluster};

/// How long the server holds a watch; then another one goes on from there.
const HELD: u32 = 240;
/// From a failure to the next try, doubled with each up to the longest.
const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(30);

/// A watch that ends with this.
#[derive(Debug)]
pub(crate) struct Watch {
    /// Dropping it is the order to end.
    _open: oneshot::Sender<()>,
}

impl Watch {
    /// Begins to watch.
    pub(crate) fn start(options: Options, changed: Changed) -> io::Result<Self> {
        let (open, closed) = oneshot::channel::<()>();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        thread::Builder::new()
            .name("kubernetes watch".into())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        _ = closed => {}
                        () = watch(&options, &changed) => {}
                    }
                });
                runtime.shutdown_background();
            })?;
        Ok(Self { _open: open })
    }
}

/// Watches for ever. Clients are of this thread's event loop, so it has its own.
async fn watch(options: &Options, changed: &Changed) {
    let mut pause = FIRST;
    loop {
        match follow(options, changed, &mut pause).await {
            // It has expired: what happened in between is unknown, so it is said and begun anew.
            Ok(()) => {
                changed.notify();
                sleep(FIRST).await;
            }
            Err(why) => {
                tracing::debug!("the watch of the pods pauses for {pause:?}: {why}");
                sleep(pause).await;
                pause = (2 * pause).min(LONGEST);
            }
        }
    }
}

/// Follows the pods from their current list until that is too old to continue from.
async fn follow(options: &Options, changed: &Changed, pause: &mut Duration) -> Result<(), String> {
    let cluster = Cluster::of(options).await.map_err(|error| error.message)?;
    let list = cluster.list().await.map_err(|error| error.message)?;
    // What happened between the plugin's own list and this one.
    changed.notify();
    let params = WatchParams::default()
        .labels(&cluster.selector)
        .timeout(HELD);
    let mut version = list.version;
    loop {
        let events = match cluster.pods.watch(&params, &version).await {
            Err(error) if is_expired(&error) => return Ok(()),
            events => events.map_err(|error| with_causes(&error))?,
        };
        *pause = FIRST;
        pin_mut!(events);
        while let Some(event) = events.next().await {
            let event = match event {
                Err(error) if is_expired(&error) => return Ok(()),
                event => event.map_err(|error| with_causes(&error))?,
            };
            match event {
                WatchEvent::Added(pod) | WatchEvent::Modified(pod) | WatchEvent::Deleted(pod) => {
                    version = pod.metadata.resource_version.unwrap_or(version);
                    changed.notify();
                }
                WatchEvent::Bookmark(mark) => version = mark.metadata.resource_version,
                WatchEvent::Error(status) if status.code == 410 => return Ok(()),
                WatchEvent::Error(status) => return Err(status.message),
            }
        }
        // It was held long enough, or its connection broke. A server that ends each at once is not asked in a circle.
        sleep(FIRST).await;
    }
}

/// Whether the server no longer knows what happened since a version.
fn is_expired(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 410)
}
