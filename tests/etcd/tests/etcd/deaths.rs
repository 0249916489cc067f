//! Members that die, hang and come back.

use std::time::Duration;

use crate::support::{NOW, client, cluster, create, eventually, key, put, read, write};
use elasticrun_etcd::{Client, Error, LeaseId, Options, Revision, WatchError};

#[tokio::test]
async fn the_death_of_any_member_is_survived() {
    let mut cluster = cluster!(3);
    let client = client(&cluster);
    for index in 0..3 {
        cluster.kill(index);
        let name = format!("key-{index}");
        assert!(create(&client, &name, "1").await);
        assert!(!create(&client, &name, "2").await);
        cluster.restart(index);
        cluster.wait_ready();
    }
    assert_eq!(read(&client, "key-0").await.unwrap().unwrap().value, b"1");
}

#[tokio::test]
async fn a_lease_outlives_the_leader_of_etcd() {
    let mut cluster = cluster!(3);
    let client = client(&cluster);
    let granted = client.grant(Duration::from_secs(60)).await.unwrap();
    let op = put("a", "1", granted.lease);
    client.txn(&[], &[op], &[]).await.unwrap();
    let leader = cluster.leader();
    cluster.kill(leader);
    assert_ne!(cluster.leader(), leader);
    let alive = eventually(async || client.keep_alive(granted.lease).await).await;
    assert!(alive.is_some_and(|ttl| ttl > Duration::ZERO));
    let found = eventually(async || read(&client, "a").await).await;
    assert_eq!(found.unwrap().lease, granted.lease);
}

#[tokio::test]
async fn a_member_that_hangs_is_left_for_another_one() {
    let cluster = cluster!(3);
    let mut options = Options::new(cluster.endpoints());
    options.deadline = Duration::from_millis(700);
    let client = Client::new(&options).expect("no password in clear");
    // The client begins with the first member.
    cluster.stop(0);
    assert!(create(&client, "a", "1").await);
    eventually(async || client.watch(&key("a"), NOW).await.map_err(broken)).await;
    cluster.resume(0);
    cluster.wait_ready();
}

fn broken(error: WatchError) -> Error {
    match error {
        WatchError::Broken(error) => error,
        WatchError::Compacted(revision) => panic!("compacted at {revision:?}"),
    }
}

#[tokio::test]
async fn without_a_quorum_nothing_is_read_or_written_and_watches_end() {
    let mut cluster = cluster!(3);
    let mut options = Options::new(cluster.endpoints());
    options.endpoints.rotate_left(2);
    let client = Client::new(&options).expect("no password in clear");
    let written = write(&client, "a", "1").await.unwrap().revision;
    // At the member that stays.
    let mut watch = client
        .watch(&key("a"), Revision(written.0 + 1))
        .await
        .unwrap();
    cluster.kill(0);
    cluster.kill(1);
    let error = broken(watch.next().await.unwrap_err());
    assert!(error.is_temporary(), "{error}");
    let error = read(&client, "a").await.unwrap_err();
    assert!(error.is_temporary() && error.may_have_happened(), "{error}");

    cluster.kill(2);
    // A client without open connections: one that breaks may have carried the request.
    let fresh = Client::new(&options).expect("no password in clear");
    let error = write(&fresh, "a", "2").await.unwrap_err();
    assert!(
        !error.may_have_happened() && error.is_temporary(),
        "{error}"
    );
    for endpoint in cluster.endpoints() {
        assert!(error.to_string().contains(&endpoint), "{error}");
    }

    for index in 0..3 {
        cluster.restart(index);
    }
    cluster.wait_ready();
    let found = eventually(async || read(&client, "a").await).await.unwrap();
    assert_eq!((&found.value[..], found.mod_revision), (&b"1"[..], written));
    let from = Revision(written.0 + 1);
    let mut watch = eventually(async || client.watch(&key("a"), from).await.map_err(broken)).await;
    client
        .txn(&[], &[put("a", "3", LeaseId(0))], &[])
        .await
        .unwrap();
    assert_eq!(watch.next().await.unwrap().changes.len(), 1);
}
