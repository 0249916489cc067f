//! Pods that come and go, and failures, through the plugin.

#![allow(clippy::unwrap_used)]

mod common;

use std::{
    net::TcpListener,
    time::{Duration, Instant},
};

use common::{PLENTY, configure, make};
use elasticrun_cloud_tests::StandIn;
use elasticrun_plugin_kubernetes::Kubernetes;
use elasticrun_plugin_sdk::{ErrorKind, Host, HostState, Plugin, SlotsFrom};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A cluster and its configuration in this environment.
struct Cluster {
    server: StandIn,
    _directory: TempDir,
}

impl Cluster {
    fn start() -> Self {
        let server = StandIn::kubernetes();
        let directory = configure(&server.kubeconfig());
        Self {
            server,
            _directory: directory,
        }
    }

    /// Creates a ready pod in the namespace of the configuration, with more fields. Returns the host's id.
    fn pod(&mut self, name: &str, more: Value) -> String {
        let mut order = json!({"do": "pod", "name": name, "namespace": "lab"});
        order
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        self.server.order(order).as_str().unwrap().to_owned()
    }
}

fn plugin() -> Kubernetes {
    make(json!({"selector": "app=train"})).unwrap()
}

fn poll(plugin: &mut Kubernetes) -> Vec<Host> {
    plugin.poll(PLENTY).unwrap().hosts
}

fn seen(hosts: &[Host]) -> Vec<(&str, HostState)> {
    hosts
        .iter()
        .map(|host| (host.id.as_str(), host.state))
        .collect()
}

#[test]
fn pods_that_a_selector_chooses_are_hosts() {
    use HostState::{Draining, Gone, Pending, Ready};
    let mut cluster = Cluster::start();
    let a = cluster.pod("a", json!({"limits": {"nvidia.com/gpu": "4", "cpu": "8"}}));
    let b = cluster.pod("b", json!({"phase": "Pending", "ready": false}));
    let c = cluster.pod(
        "c",
        json!({"ready": false, "labels": {"app": "train", "elasticrun-slots": "2"}}),
    );
    cluster.pod("d", json!({"labels": {"app": "other"}}));
    cluster.pod("e", json!({"namespace": "elsewhere"}));
    let mut plugin = plugin();
    let hosts = poll(&mut plugin);
    assert_eq!(
        seen(&hosts),
        [(a.as_str(), Ready), (&b, Pending), (&c, Pending)]
    );
    assert_eq!(
        (hosts[0].slots, hosts[0].slots_from),
        (Some(4), Some(SlotsFrom::Accelerators))
    );
    assert_eq!(
        (hosts[2].slots, hosts[2].slots_from),
        (Some(2), Some(SlotsFrom::Label))
    );
    assert_eq!(hosts[0].address, "10.1.0.1");
    assert_eq!(
        (
            hosts[0].labels["pod"].as_str(),
            hosts[0].labels["node"].as_str()
        ),
        ("a", "node-1")
    );

    cluster
        .server
        .order(json!({"do": "delete", "name": "a", "grace": 60}));
    cluster
        .server
        .order(json!({"do": "status", "name": "b", "phase": "Failed", "reason": "Evicted"}));
    let disrupted =
        json!([{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]);
    cluster
        .server
        .order(json!({"do": "status", "name": "c", "conditions": disrupted}));
    let hosts = poll(&mut plugin);
    assert_eq!(
        seen(&hosts),
        [(a.as_str(), Draining), (&b, Gone), (&c, Draining)]
    );
    let left = hosts[0].deadline.unwrap().as_secs();
    assert!((40..=60).contains(&left), "{left}");
    let reasons: Vec<_> = hosts
        .iter()
        .map(|host| host.reason.as_deref().unwrap())
        .collect();
    assert_eq!(
        reasons,
        ["is being deleted", "Evicted", "PreemptionByScheduler"]
    );

    cluster.server.order(json!({"do": "gone", "name": "a"}));
    let anew = cluster.pod("a", json!({}));
    assert_ne!(anew, a);
    let hosts = poll(&mut plugin);
    assert!(seen(&hosts).contains(&(anew.as_str(), Ready)));
    assert!(!hosts.iter().any(|host| host.id == a));
}

#[test]
fn many_pods_come_in_pages() {
    let mut cluster = Cluster::start();
    for index in 0..1100 {
        cluster.pod(&format!("p{index:04}"), json!({}));
    }
    let mut plugin = plugin();
    assert_eq!(poll(&mut plugin).len(), 1100);
    assert_eq!(cluster.server.calls(), ["list", "list", "list"]);
    // The list expires between two pages, and is restarted.
    cluster
        .server
        .order(json!({"do": "fail", "action": "list", "status": 410, "reason": "Expired"}));
    assert_eq!(poll(&mut plugin).len(), 1100);
}

#[test]
fn requests_name_this_program() {
    let mut cluster = Cluster::start();
    poll(&mut plugin());
    let calls = cluster.server.order(json!({"do": "calls"}));
    let expected = concat!("elasticrun/", env!("CARGO_PKG_VERSION"));
    assert_eq!(calls[0]["agent"], expected);
}

#[test]
fn mistakes_are_named() {
    let mut cluster = Cluster::start();
    let mut plugin = plugin();
    for (status, reason, kind) in [
        (403, "Forbidden", ErrorKind::Auth),
        (401, "Unauthorized", ErrorKind::Auth),
        (429, "TooManyRequests", ErrorKind::Throttled),
        (400, "BadRequest", ErrorKind::BadConfig),
        (500, "InternalError", ErrorKind::Retryable),
    ] {
        cluster.server.order(
            json!({"do": "fail", "action": "list", "status": status, "reason": reason,
            "message": "pods is forbidden\nfor you", "seconds": 3}),
        );
        let error = plugin.poll(PLENTY).unwrap_err();
        assert_eq!(error.kind, kind, "{error}");
        let start = format!(
            "pods app=train in namespace lab: {status} {reason}: pods is forbidden for you"
        );
        assert!(error.message.starts_with(&start), "{error}");
        let throttled = (kind == ErrorKind::Throttled).then_some(Duration::from_secs(3));
        assert_eq!(error.retry_after, throttled, "{error}");
        cluster.server.order(json!({"do": "calm"}));
    }
    let refused = |options| make(options).unwrap_err().message;
    assert_eq!(
        refused(json!({"selector": " "})),
        "selector: is empty; give labels, such as app=train"
    );
    assert_eq!(
        refused(json!({"selector": "a=b", "slots": 0})),
        "slots: must be a number from 1 to 1024"
    );
    cluster.pod(
        "x",
        json!({"labels": {"app": "train", "elasticrun-slots": "all"}}),
    );
    assert_eq!(
        plugin.poll(PLENTY).unwrap_err().message,
        r#"the label elasticrun-slots of pod x is "all"; it must be a number from 1 to 1024"#
    );
}

#[test]
fn without_a_configuration_the_message_has_a_remedy() {
    let directory = tempfile::tempdir().unwrap();
    // SAFETY: as in `configure`.
    unsafe {
        std::env::set_var("KUBECONFIG", directory.path().join("none"));
        std::env::set_var("HOME", directory.path());
    }
    let error = make(json!({"selector": "app=train"})).unwrap_err();
    assert_eq!(error.kind, ErrorKind::BadConfig);
    assert!(
        error
            .message
            .starts_with("no Kubernetes configuration; run in a pod, or set KUBECONFIG ("),
        "{error}"
    );
}

#[test]
fn a_server_that_never_answers_costs_no_more_than_the_deadline() {
    let hole = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut server = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "users": [{"name": "test", "user": {}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    });
    let url = format!("http://{}", hole.local_addr().unwrap());
    server["clusters"] = json!([{"name": "test", "cluster": {"server": url}}]);
    let _directory = configure(&server.to_string());
    let mut plugin = plugin();
    for deadline in [1, 300].map(Duration::from_millis) {
        let started = Instant::now();
        let error = plugin.poll(deadline).unwrap_err();
        assert!(started.elapsed() < deadline + PLENTY);
        assert_eq!(error.kind, ErrorKind::Retryable);
        assert_eq!(
            error.message,
            format!("pods app=train in namespace default: no answer within {deadline:?}")
        );
    }
}
