//! Standby drivers of a run: each one registers its addresses, and the driver that leads tells agents of them.

use std::time::Duration;

use elasticrun_etcd::{Client, Error, KeyValue, Keys, LeaseId, Op, Revision};
use serde::{Deserialize, Serialize};
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};

use super::super::Notice;

/// How long after a failed call the next one begins.
const RETRY: Duration = Duration::from_secs(1);

/// The longest time between two reads. A watch may be silent for ever.
const POLL: Duration = Duration::from_secs(10);

/// The value of the key of a standby driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Standby {
    /// Where agents reach it once it leads, each as `HOST:PORT`.
    #[serde(default)]
    endpoints: Vec<String>,
}

/// Keeps a standby driver registered as long as this runs. The key ends with its lease.
pub(super) async fn register(
    client: Client,
    key: Vec<u8>,
    endpoints: Vec<String>,
    lease: Duration,
) {
    let value = serde_json::to_vec(&Standby { endpoints }).expect("text is JSON");
    loop {
        if let Err(error) = hold(&client, &key, &value, lease).await {
            tracing::debug!(%error, "this standby driver is not registered");
        }
        sleep(RETRY).await;
    }
}

/// Registers a standby driver with a lease, and renews it. Returns when the lease is gone.
async fn hold(client: &Client, key: &[u8], value: &[u8], ttl: Duration) -> Result<(), Error> {
    let granted = client.grant(ttl).await?;
    let put = Op::Put {
        key: key.to_owned(),
        value: value.to_owned(),
        lease: granted.lease,
    };
    client.txn(&[], &[put], &[]).await?;
    loop {
        sleep(granted.ttl / 3).await;
        match keep_alive(client, granted.lease).await {
            Some(true) => {}
            Some(false) => return Ok(()),
            // etcd may be back before the lease ends.
            None => sleep(RETRY).await,
        }
    }
}

/// Whether a lease is there. `None` if etcd does not answer.
async fn keep_alive(client: &Client, lease: LeaseId) -> Option<bool> {
    let answer = client.keep_alive(lease).await;
    answer.ok().map(|left| left.is_some())
}

/// Reports the standby drivers at each change, until no one listens.
pub(super) async fn follow(client: Client, keys: Keys, notices: mpsc::Sender<Notice>) {
    let mut known = Vec::new();
    while !notices.is_closed() {
        let Ok(found) = client.range(&keys, 0, Revision(0)).await else {
            sleep(RETRY).await;
            continue;
        };
        let standbys = endpoints(&found.keys);
        if standbys != known {
            known.clone_from(&standbys);
            let _ = notices.send(Notice::Standbys(standbys)).await;
        }
        let changed = next_change(&client, &keys, Revision(found.revision.0 + 1));
        let _ = timeout(POLL, changed).await;
    }
}

/// Returns at the first change, and when the watch has ended.
pub(super) async fn next_change(client: &Client, keys: &Keys, from: Revision) {
    match client.watch(keys, from).await {
        Ok(mut watch) => drop(watch.next().await),
        Err(_) => sleep(RETRY).await,
    }
}

/// The addresses of all standby drivers. One that cannot be read is of a newer release, and is left out.
pub(super) fn endpoints(keys: &[KeyValue]) -> Vec<String> {
    let read = |found: &KeyValue| serde_json::from_slice::<Standby>(&found.value).ok();
    let mut all: Vec<_> = (keys.iter().filter_map(read))
        .flat_map(|standby| standby.endpoints)
        .collect();
    all.sort();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_addresses_are_listed_once() {
        let key = |value: &str| KeyValue {
            value: value.into(),
            ..KeyValue::default()
        };
        let keys = [
            key(r#"{"endpoints":["b:1","a:1"],"later":1}"#),
            key("[]"),
            key(r#"{"endpoints":["a:1"]}"#),
        ];
        assert_eq!(endpoints(&keys), ["a:1", "b:1"]);
    }
}
