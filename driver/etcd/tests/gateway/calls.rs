//! Requests with one answer.

use std::time::Duration;

use crate::scripted::{Gateway, Reply, answer};
use elasticrun_etcd::{Client, Code, Compare, Error, Keys, LeaseId, Op, Options, Revision, User};

const NOW: Revision = Revision(0);
/// Ports on which nothing listens.
const REFUSED: [&str; 2] = ["127.0.0.1:1", "127.0.0.1:2"];

fn key() -> Keys {
    Keys::One(b"foo".to_vec())
}

#[tokio::test]
async fn calls_are_written_and_answers_read_as_the_gateway_does() {
    let gateway = Gateway::start([
        answer(&[r#"{"header":{},"ID":"77","TTL":"2"}"#]),
        answer(&[r#"{"result":{"ID":"77","#, "\"TTL\":\"5\"}}\n", "\n"]),
        answer(&["{\"result\":{\"header\":{\"revision\":\"1\"},\"ID\":\"78\"}}\n"]),
        answer(&[
            r#"{"header":{"revision":"9"},"succeeded":true,"responses":[{"response_range":{"kvs":"#,
            r#"[{"key":"Zm9v","value":"YQ==","create_revision":"2"}]}},{"response_put":{}}]}"#,
        ]),
    ])
    .await;
    let client = gateway.client();
    let granted = client.grant(Duration::from_millis(1200)).await.unwrap();
    assert_eq!(granted.lease, LeaseId(77));
    assert_eq!(granted.ttl, Duration::from_secs(2));
    let alive = client.keep_alive(LeaseId(77)).await.unwrap();
    assert_eq!(alive, Some(Duration::from_secs(5)));
    assert_eq!(client.keep_alive(LeaseId(78)).await.unwrap(), None);
    let put = Op::Put {
        key: b"foo".to_vec(),
        value: b"a".to_vec(),
        lease: LeaseId(77),
    };
    let compare = Compare::Created(b"foo".to_vec(), Revision(0));
    let range = Op::Range(key());
    let outcome = client.txn(&[compare], &[put], &[range]).await.unwrap();
    assert!(outcome.succeeded);
    assert_eq!(outcome.revision, Revision(9));
    assert_eq!(outcome.found[0][0].value, b"a");
    assert_eq!(outcome.found[0][0].create_revision, Revision(2));
    let seen = gateway.seen();
    assert_eq!(seen[0].body, r#"{"TTL":"2"}"#);
    assert_eq!(seen[1].body, r#"{"ID":"77"}"#);
    assert_eq!(seen[3].path, "/v3/kv/txn");
    let body: serde_json::Value = serde_json::from_str(&seen[3].body).unwrap();
    assert_eq!(body["compare"][0]["create_revision"], "0");
    assert_eq!(body["success"][0]["request_put"]["lease"], "77");
    assert_eq!(body["failure"][0]["request_range"]["key"], "Zm9v");
}

#[tokio::test]
async fn a_keep_alive_does_not_wait_for_the_end_of_its_stream() {
    let open = Reply::Open(vec!["{\"result\":{\"ID\":\"7\",\"TTL\":\"5\"}}\n"]);
    let gateway = Gateway::start([open]).await;
    let alive = gateway.client().keep_alive(LeaseId(7)).await.unwrap();
    assert_eq!(alive, Some(Duration::from_secs(5)));
}

#[tokio::test]
async fn a_keep_alive_does_not_wait_for_a_member_that_hangs() {
    let silent = Gateway::start([Reply::Silence]).await;
    let next = Gateway::start([answer(&["{\"result\":{\"ID\":\"7\",\"TTL\":\"5\"}}\n"])]).await;
    let mut options = Options::new(vec![silent.endpoint.clone(), next.endpoint.clone()]);
    // Only the answer of the second one can end the call.
    options.deadline = Duration::from_secs(24 * 3600);
    let client = Client::new(&options).expect("no password in clear");
    let alive = client.keep_alive(LeaseId(7)).await.unwrap();
    assert_eq!(alive, Some(Duration::from_secs(5)));
}

#[tokio::test]
async fn an_error_object_is_etcds_refusal() {
    let gateway = Gateway::start([
        Reply::Answer(404, vec![r#"{"error":"x","message":"no lease","code":5}"#]),
        Reply::Answer(412, vec![r#"{"error":"x","message":"no auth","code":9}"#]),
        Reply::Answer(
            503,
            vec![r#"{"error":"x","message":"leader changed","code":14}"#],
        ),
    ])
    .await;
    let client = gateway.client();
    assert_eq!(client.revoke(LeaseId(7)).await, Ok(false));
    let error = client.range(&key(), 0, NOW).await.unwrap_err();
    let Error::Etcd { code, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(*code, Code::FAILED_PRECONDITION);
    assert!(!error.may_have_happened() && !error.is_temporary());
    let error = client.txn(&[], &[], &[]).await.unwrap_err();
    assert!(error.may_have_happened() && error.is_temporary(), "{error}");
    assert!(error.to_string().contains("leader changed"), "{error}");
}

#[tokio::test]
async fn other_servers_are_no_gateway() {
    for reply in [
        Reply::Answer(404, vec!["Not Found\n"]),
        Reply::Answer(404, vec!["{}"]),
        answer(&["<html>\n"]),
        answer(&[]),
        answer(&["{}", "{}"]),
        answer(&[r#"{"kvs":7}"#]),
    ] {
        let gateway = Gateway::start([reply]).await;
        let error = gateway.client().range(&key(), 0, NOW).await.unwrap_err();
        assert!(matches!(error, Error::Unreadable(_)), "{error}");
        assert!(error.to_string().contains(&gateway.endpoint), "{error}");
    }
}

#[tokio::test]
async fn an_endpoint_that_refuses_is_skipped_also_by_a_transaction() {
    let gateway = Gateway::start([answer(&["{}"]), answer(&["{}"])]).await;
    let endpoints = vec![REFUSED[0].into(), gateway.endpoint.clone()];
    let client = Client::new(&Options::new(endpoints)).unwrap();
    assert!(client.txn(&[], &[], &[]).await.is_ok());
    assert!(client.range(&key(), 0, NOW).await.is_ok());
}

#[tokio::test]
async fn all_endpoints_are_named_if_none_can_be_reached() {
    let client = Client::new(&Options::new(REFUSED.map(str::to_owned).to_vec())).unwrap();
    let error = client.txn(&[], &[], &[]).await.unwrap_err();
    assert!(!error.may_have_happened() && error.is_temporary());
    for endpoint in REFUSED {
        let part = format!("{endpoint}: Connection refused");
        assert!(error.to_string().contains(&part), "{error}");
    }
}

#[tokio::test]
async fn only_requests_that_may_be_repeated_go_on_behind_a_silent_endpoint() {
    let silent = Gateway::start([Reply::Silence, Reply::Silence]).await;
    let other = Gateway::start([answer(&["{}"]), answer(&["{}"])]).await;
    let mut options = Options::new(vec![silent.endpoint.clone(), other.endpoint.clone()]);
    options.deadline = Duration::from_millis(300);
    let client = Client::new(&options).unwrap();
    let error = client.txn(&[], &[], &[]).await.unwrap_err();
    assert!(matches!(error, Error::NoAnswer(_)) && error.may_have_happened());
    assert_eq!(other.paths().len(), 0);
    // The next call begins with the other endpoint.
    assert!(client.range(&key(), 0, NOW).await.is_ok());
    assert_eq!(silent.paths().len(), 1);
    let fresh = Client::new(&options).unwrap();
    assert!(fresh.range(&key(), 0, NOW).await.is_ok());
    assert_eq!((silent.paths().len(), other.paths().len()), (2, 2));
}

#[tokio::test]
async fn an_answer_that_is_cut_is_none() {
    for chunks in [vec![], vec!["{\"header\":"], vec!["{\"succeeded\":true}"]] {
        let gateway = Gateway::start([Reply::Cut(chunks)]).await;
        let error = gateway.client().txn(&[], &[], &[]).await.unwrap_err();
        assert!(matches!(error, Error::NoAnswer(_)), "{error}");
        assert!(error.may_have_happened());
    }
}

fn with_user(endpoints: Vec<String>) -> Client {
    let mut options = Options::new(endpoints);
    options.user = Some(User {
        name: "root".into(),
        password: "hunter2".to_owned().into(),
    });
    Client::new(&options).expect("no password in clear")
}

#[tokio::test]
async fn a_user_gets_a_token_and_a_new_one_when_it_has_expired() {
    let expired = r#"{"message":"etcdserver: invalid auth token","code":16}"#;
    let gateway = Gateway::start([
        answer(&[r#"{"token":"t1"}"#]),
        answer(&["{}"]),
        Reply::Answer(401, vec![expired]),
        answer(&[r#"{"token":"t2"}"#]),
        answer(&["{}"]),
        Reply::Answer(401, vec![expired]),
        answer(&[r#"{"token":"t3"}"#]),
        Reply::Answer(401, vec![expired]),
    ])
    .await;
    let client = with_user(vec![gateway.endpoint.clone()]);
    assert!(client.range(&key(), 0, NOW).await.is_ok());
    assert!(client.txn(&[], &[], &[]).await.is_ok());
    let seen = gateway.seen();
    assert_eq!(seen[0].body, r#"{"name":"root","password":"hunter2"}"#);
    let tokens: Vec<_> = seen.iter().map(|seen| seen.token.as_deref()).collect();
    assert_eq!(tokens, [None, Some("t1"), Some("t1"), None, Some("t2")]);
    let text = format!("{client:?}");
    assert!(!text.contains("t2") && !text.contains("hunter2"), "{text}");
    // Once: a second refusal is final.
    let error = client.range(&key(), 0, NOW).await.unwrap_err();
    assert!(!error.is_temporary(), "{error}");
}

#[tokio::test]
async fn a_wrong_password_is_final_and_not_shown() {
    let refusal = r#"{"message":"authentication failed, invalid user ID or password","code":3}"#;
    let gateway = Gateway::start([Reply::Answer(400, vec![refusal])]).await;
    let client = with_user(vec![gateway.endpoint.clone(), REFUSED[0].into()]);
    let error = client.range(&key(), 0, NOW).await.unwrap_err();
    assert!(!error.is_temporary(), "{error}");
    let text = format!("{error} {error:?} {client:?}");
    assert!(text.contains("invalid user"), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
    assert_eq!(gateway.paths(), ["/v3/auth/authenticate"]);
}
