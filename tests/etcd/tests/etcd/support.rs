//! What the tests of this folder share.

use std::time::Duration;

use elasticrun_etcd::{
    Client, Compare, Error, KeyValue, Keys, LeaseId, Op, Options, Outcome, Revision,
};
use elasticrun_etcd_tests::Cluster;

/// A cluster, or the end of the test with the reason why there is none.
macro_rules! cluster {
    ($count:literal) => {
        match elasticrun_etcd_tests::Cluster::start($count) {
            Ok(cluster) => cluster,
            Err(why) => {
                let test = std::thread::current();
                eprintln!("skipped {}: {why}", test.name().unwrap_or_default());
                return;
            }
        }
    };
}
pub(crate) use cluster;

pub(crate) const NOW: Revision = Revision(0);

pub(crate) fn client(cluster: &Cluster) -> Client {
    Client::new(&Options::new(cluster.endpoints())).expect("no password in clear")
}

pub(crate) fn key(name: &str) -> Keys {
    Keys::One(name.into())
}

pub(crate) fn put(name: &str, value: &str, lease: LeaseId) -> Op {
    Op::Put {
        key: name.into(),
        value: value.into(),
        lease,
    }
}

/// Puts a value without conditions.
pub(crate) async fn write(client: &Client, name: &str, value: &str) -> Result<Outcome, Error> {
    client.txn(&[], &[put(name, value, LeaseId(0))], &[]).await
}

/// Reads a key.
pub(crate) async fn read(client: &Client, name: &str) -> Result<Option<KeyValue>, Error> {
    let found = client.range(&key(name), 0, NOW).await?;
    Ok(found.keys.into_iter().next())
}

/// Puts a value if the key does not exist, and says whether it has. Reads after an answer that was lost.
pub(crate) async fn create(client: &Client, name: &str, value: &str) -> bool {
    let absent = Compare::Created(name.into(), Revision(0));
    loop {
        let op = put(name, value, LeaseId(0));
        match client.txn(std::slice::from_ref(&absent), &[op], &[]).await {
            Ok(outcome) => return outcome.succeeded,
            Err(error) => assert!(error.is_temporary(), "{error}"),
        }
        match eventually(async || read(client, name).await).await {
            Some(found) => return found.value == value.as_bytes(),
            None => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Repeats a call until it succeeds. Its errors must be temporary.
pub(crate) async fn eventually<T>(call: impl AsyncFn() -> Result<T, Error>) -> T {
    loop {
        match call().await {
            Ok(result) => return result,
            Err(error) => assert!(error.is_temporary(), "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
