//! Calls to a cluster that is well.

use std::time::Duration;

use crate::support::{NOW, client, cluster, key, put, read, write};
use elasticrun_etcd::{Change, Code, Compare, Error, Keys, LeaseId, Op, Revision, WatchError};
use serde_json::json;

#[tokio::test]
async fn conditions_decide_a_transaction() {
    let cluster = cluster!(1);
    let client = client(&cluster);
    let absent = Compare::Created(b"a".to_vec(), Revision(0));
    let one = [put("a", "1", LeaseId(0))];
    let first = client
        .txn(std::slice::from_ref(&absent), &one, &[])
        .await
        .unwrap();
    assert!(first.succeeded);
    let (two, range) = ([put("a", "2", LeaseId(0))], [Op::Range(key("a"))]);
    let second = client.txn(&[absent], &two, &range).await.unwrap();
    assert!(!second.succeeded);
    assert_eq!(second.found[0][0].value, b"1");
    assert_eq!(second.found[0][0].create_revision, first.revision);
    // The key was changed since.
    write(&client, "a", "3").await.unwrap();
    let stale = Compare::Modified(b"a".to_vec(), first.revision);
    let third = client
        .txn(&[stale], &[Op::Delete(key("a"))], &[])
        .await
        .unwrap();
    assert!(!third.succeeded);
    assert_eq!(read(&client, "a").await.unwrap().unwrap().value, b"3");
}

#[tokio::test]
async fn a_prefix_names_its_keys_and_old_revisions_can_be_read() {
    let cluster = cluster!(1);
    let client = client(&cluster);
    for name in ["/x/a", "/x/b", "/x0", "/w"] {
        write(&client, name, "1").await.unwrap();
    }
    let before = client.range(&key("/w"), 0, NOW).await.unwrap().revision;
    write(&client, "/x/a", "2").await.unwrap();
    let prefix = Keys::Prefix(b"/x/".to_vec());
    let found = client.range(&prefix, 0, NOW).await.unwrap();
    let keys: Vec<_> = found.keys.iter().map(|found| &found.key[..]).collect();
    assert_eq!(keys, [b"/x/a", b"/x/b"]);
    let all = client.range(&Keys::Prefix(vec![]), 3, NOW).await.unwrap();
    assert_eq!((all.keys.len(), all.more), (3, true));
    let old = client.range(&key("/x/a"), 0, before).await.unwrap();
    assert_eq!(old.keys[0].value, b"1");
}

#[tokio::test]
async fn a_key_ends_with_its_lease_and_a_watch_sees_it() {
    let cluster = cluster!(1);
    let client = client(&cluster);
    let granted = client.grant(Duration::from_secs(60)).await.unwrap();
    assert!(granted.ttl >= Duration::from_secs(60));
    let mut watch = client.watch(&key("a"), NOW).await.unwrap();
    let op = put("a", "1", granted.lease);
    client.txn(&[], &[op], &[]).await.unwrap();
    let batch = watch.next().await.unwrap();
    assert!(matches!(&batch.changes[..], [Change::Put(put)] if put.lease == granted.lease));
    let alive = client.keep_alive(granted.lease).await.unwrap();
    assert_eq!(alive, Some(granted.ttl));
    assert!(client.revoke(granted.lease).await.unwrap());
    let batch = watch.next().await.unwrap();
    assert!(matches!(&batch.changes[..], [Change::Deleted { key, .. }] if key == b"a"));
    assert!(!client.revoke(granted.lease).await.unwrap());
    assert_eq!(client.keep_alive(granted.lease).await.unwrap(), None);
    let error = client.txn(&[], &[put("a", "1", granted.lease)], &[]).await;
    let error = error.unwrap_err();
    assert!(!error.may_have_happened(), "{error}");
}

#[tokio::test]
async fn compaction_ends_watches_of_the_past_and_no_others() {
    let cluster = cluster!(3);
    let client = client(&cluster);
    let first = write(&client, "a", "0").await.unwrap().revision;
    let mut watch = client
        .watch(&key("a"), Revision(first.0 + 1))
        .await
        .unwrap();
    for value in ["1", "2", "3"] {
        write(&client, "a", value).await.unwrap();
    }
    let newest = write(&client, "b", "0").await.unwrap().revision;
    let compaction = json!({ "revision": newest.0.to_string(), "physical": true });
    cluster.post(0, "kv/compaction", "", &compaction).unwrap();
    write(&client, "a", "4").await.unwrap();
    // The watch that was there has seen everything.
    let mut values = Vec::new();
    while values.len() < 4 {
        for change in watch.next().await.unwrap().changes {
            let Change::Put(put) = change else {
                panic!("{change:?}");
            };
            values.push(put.value);
        }
    }
    assert_eq!(values, [b"1", b"2", b"3", b"4"]);
    // A new one that begins before is told from where on there are changes.
    let mut late = client.watch(&key("a"), first).await.unwrap();
    let error = late.next().await.unwrap_err();
    assert_eq!(error, WatchError::Compacted(newest));
    let error = client.range(&key("a"), 0, first).await.unwrap_err();
    assert!(
        matches!(
            error,
            Error::Etcd {
                code: Code::OUT_OF_RANGE,
                ..
            }
        ),
        "{error}"
    );
    let found = client.range(&key("a"), 0, NOW).await.unwrap();
    let mut again = client
        .watch(&key("a"), Revision(found.revision.0 + 1))
        .await
        .unwrap();
    write(&client, "a", "5").await.unwrap();
    assert_eq!(again.next().await.unwrap().changes.len(), 1);
}

#[tokio::test]
async fn values_up_to_etcds_limit_pass_and_longer_ones_are_refused() {
    let cluster = cluster!(1);
    let client = client(&cluster);
    let mut watch = client.watch(&key("a"), NOW).await.unwrap();
    let long = "x".repeat(1 << 20);
    write(&client, "a", &long).await.unwrap();
    let batch = watch.next().await.unwrap();
    assert!(matches!(&batch.changes[..], [Change::Put(put)] if put.value == long.as_bytes()));
    // Two limits: that of etcd, and that of its gRPC.
    for size in [1600 << 10, 3 << 20] {
        let error = write(&client, "a", &"x".repeat(size)).await.unwrap_err();
        assert!(
            !error.may_have_happened() && !error.is_temporary(),
            "{error}"
        );
        let line = error.to_string();
        assert!(
            line.contains("too large") || line.contains("larger than"),
            "{line}"
        );
    }
}
