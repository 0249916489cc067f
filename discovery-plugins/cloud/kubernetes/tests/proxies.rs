//! Ways to the cluster: proxies of the environment and of the kubeconfig.

#![allow(clippy::unwrap_used)]

mod common;

use common::{PLENTY, configure, make, set};
use elasticrun_cloud_tests::StandIn;
use elasticrun_plugin_sdk::Plugin;
use serde_json::json;

/// Polls once. Returns the calls of the server, which is also a proxy.
fn poll(cluster: &mut StandIn, kubeconfig: &str) -> Vec<String> {
    cluster.calls();
    let _directory = configure(kubeconfig);
    let mut plugin = make(json!({"selector": "app=train"})).unwrap();
    assert_eq!(plugin.poll(PLENTY).unwrap().hosts.len(), 1);
    cluster.calls()
}

#[test]
fn a_proxy_is_used_unless_the_cluster_is_excepted() {
    let mut cluster = StandIn::kubernetes();
    cluster.order(json!({"do": "pod", "name": "a", "namespace": "lab"}));
    let direct = cluster.kubeconfig();
    let endpoint = cluster.endpoint();
    let far = direct.replace(&endpoint, "http://cluster.invalid");

    // The address of the proxy itself does not matter.
    set("NO_PROXY", "127.0.0.1");
    set("HTTP_PROXY", &endpoint);
    assert_eq!(poll(&mut cluster, &far), ["connect", "list"]);

    set("HTTP_PROXY", "http://proxy.invalid");
    set("HTTPS_PROXY", "http://proxy.invalid");
    assert_eq!(poll(&mut cluster, &direct), ["list"]);

    let server = r#""server":"http://cluster.invalid""#;
    let own = far.replace(server, &format!(r#"{server},"proxy-url":"{endpoint}""#));
    assert_eq!(poll(&mut cluster, &own), ["connect", "list"]);
}
