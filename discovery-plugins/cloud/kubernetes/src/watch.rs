//! The thread that watches the pods and notifies of changes.

use std::{io, thread, time::Duration};

use elasticrun_plugin_sdk::{ChangeNotifier, text::with_causes, tracing};
use futures_util::{StreamExt, pin_mut};
use kube::api::{WatchEvent, WatchParams};
use tokio::{sync::oneshot, time::sleep};

use crate::{Options, cluster::Cluster};

/// How long the server keeps a watch open, in seconds. Another watch continues after it.
const WATCH_SECONDS: u32 = 240;
/// Pause after the first failure. Each further failure doubles it, up to the maximum.
const MIN_PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// A watch, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    /// Dropping it ends the thread.
    _open: oneshot::Sender<()>,
}

impl Watch {
    /// Starts the thread.
    pub(crate) fn start(options: Options, changed: ChangeNotifier) -> io::Result<Self> {
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

/// Watches forever. A client belongs to the event loop of its thread, so this creates its own.
async fn watch(options: &Options, changed: &ChangeNotifier) {
    let mut pause = MIN_PAUSE;
    loop {
        match follow(options, changed, &mut pause).await {
            // The watch has expired, and changes may be lost. So notify and restart.
            Ok(()) => {
                changed.notify();
                sleep(MIN_PAUSE).await;
            }
            Err(why) => {
                tracing::debug!("the watch of the pods pauses for {pause:?}: {why}");
                sleep(pause).await;
                pause = (2 * pause).min(MAX_PAUSE);
            }
        }
    }
}

/// Follows the pods from their current list until that is too old to continue from.
async fn follow(
    options: &Options,
    changed: &ChangeNotifier,
    pause: &mut Duration,
) -> Result<(), String> {
    let cluster = Cluster::from_options(options)
        .await
        .map_err(|error| error.message)?;
    let list = cluster.list().await.map_err(|error| error.message)?;
    // Changes between the list of the last poll and this one.
    changed.notify();
    let params = WatchParams::default()
        .labels(&cluster.selector)
        .timeout(WATCH_SECONDS);
    let mut version = list.version;
    loop {
        let events = match cluster.pods.watch(&params, &version).await {
            Err(error) if is_expired(&error) => return Ok(()),
            events => events.map_err(|error| with_causes(&error))?,
        };
        *pause = MIN_PAUSE;
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
        // The watch has timed out, or its connection broke. The pause avoids a busy loop if the server ends each watch at
        // once.
        sleep(MIN_PAUSE).await;
    }
}

/// Whether the server no longer has the changes since a version.
fn is_expired(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 410)
}
