//! Watches: answers without an end.

use std::time::Duration;

use crate::scripted::{Gateway, Reply, answer};
use elasticrun_etcd::{Change, Client, Error, Keys, Options, Revision, WatchError};

const NOW: Revision = Revision(0);
const CREATED: &str = "{\"result\":{\"header\":{\"revision\":\"2\"},\"created\":true}}\n";

fn key() -> Keys {
    Keys::One(b"foo".to_vec())
}

#[tokio::test]
async fn a_watch_gives_changes_however_its_stream_is_cut() {
    let gateway = Gateway::start([Reply::Cut(vec![
        "{\"result\":{\"header\":{\"rev",
        "ision\":\"2\"},\"created\":true}}\n",
        "\n\n",
        "{\"result\":{\"header\":{\"revision\":\"3\"}}}\n{\"result\":{\"header\":{\"revision\":\"4\"},\"events\":[",
        "{\"kv\":{\"key\":\"Zm9v\",\"value\":\"YQ==\",\"mod_revision\":\"4\"}}]}}\n\n{\"result\":",
        "{\"header\":{\"revision\":\"5\"},\"events\":[{\"type\":\"DELETE\",",
        "\"kv\":{\"key\":\"Zm9v\",\"mod_revision\":\"5\"}}]}}",
    ])])
    .await;
    let mut watch = gateway.client().watch(&key(), Revision(2)).await.unwrap();
    let batch = watch.next().await.unwrap();
    assert_eq!(batch.revision, Revision(4));
    assert!(matches!(&batch.changes[..], [Change::Put(put)] if put.value == b"a"));
    let batch = watch.next().await.unwrap();
    let deleted = Change::Deleted {
        key: b"foo".to_vec(),
        revision: Revision(5),
    };
    assert_eq!(batch.changes, [deleted]);
    let error = watch.next().await.unwrap_err();
    assert!(
        matches!(error, WatchError::Broken(Error::NoAnswer(_))),
        "{error}"
    );
    let body: serde_json::Value = serde_json::from_str(&gateway.seen()[0].body).unwrap();
    assert_eq!(body["create_request"]["start_revision"], "2");
}

#[tokio::test]
async fn a_watch_of_compacted_changes_says_so_at_once_or_later() {
    let gone = "{\"result\":{\"canceled\":true,\"compact_revision\":\"7\"}}\n";
    let gateway = Gateway::start([answer(&[CREATED, gone]), answer(&[gone])]).await;
    let mut watch = gateway.client().watch(&key(), Revision(1)).await.unwrap();
    let compacted = WatchError::Compacted(Revision(7));
    assert_eq!(watch.next().await.unwrap_err(), compacted);
    let opened = gateway.client().watch(&key(), Revision(1)).await;
    assert_eq!(opened.unwrap_err(), compacted);
}

#[tokio::test]
async fn a_watch_ends_with_its_stream() {
    let lost =
        "{\"error\":{\"grpc_code\":14,\"http_code\":503,\"message\":\"etcdserver: no leader\"}}\n";
    let denied = "{\"result\":{\"canceled\":true,\"cancel_reason\":\"permission denied\"}}";
    for (chunks, why) in [
        (vec![CREATED], "it has ended the stream"),
        (vec![CREATED, "{\"result\":{\"head"], "ends within a value"),
        (vec![CREATED, lost], "no leader"),
        (vec![CREATED, denied], "permission denied"),
        (vec![CREATED, "oops\n"], "not JSON"),
    ] {
        let gateway = Gateway::start([answer(&chunks)]).await;
        let mut watch = gateway.client().watch(&key(), NOW).await.unwrap();
        let error = watch.next().await.unwrap_err();
        assert!(matches!(error, WatchError::Broken(_)), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[tokio::test]
async fn a_watch_opens_at_the_next_endpoint() {
    let gateways = [
        Gateway::start([answer(&[])]).await,
        Gateway::start([Reply::Silence]).await,
        Gateway::start([Reply::Open(vec![CREATED])]).await,
    ];
    let mut options = Options::new(vec!["127.0.0.1:1".into()]);
    let endpoints = gateways.iter().map(|gateway| gateway.endpoint.clone());
    options.endpoints.extend(endpoints);
    options.deadline = Duration::from_millis(300);
    let watch = Client::new(&options).unwrap().watch(&key(), NOW).await;
    watch.expect("the last one answers");
}
