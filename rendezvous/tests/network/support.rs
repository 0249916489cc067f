//! Servers and nodes of one test.

use std::time::Duration;

use elasticrun_core::rendezvous::{NodeId, Settings};
use elasticrun_rendezvous::{Endpoint, Holder, Node, Observed, Server};

/// Longer than anything takes. A test that waits so long has failed.
pub(crate) const LONG: Duration = Duration::from_secs(120);

pub(crate) const RUN: &str = "run";

/// A server at a free port.
pub(crate) fn server() -> (Server, Endpoint) {
    let any = Endpoint::parse("127.0.0.1:0").expect("an endpoint");
    let server = Server::start(&any).expect("a server");
    let endpoint = any.with_port(server.address().port());
    (server, endpoint)
}

/// Settings of a run whose nodes notice nothing by time.
pub(crate) fn settings(min_nodes: usize, max_nodes: usize, options: &[(&str, &str)]) -> Settings {
    let patient = [
        ("keep_alive_interval", "3600"),
        ("last_call_timeout", "3600"),
        ("heartbeat_timeout", "60"),
    ];
    let mut settings = Settings::new(min_nodes, max_nodes).expect("numbers of nodes");
    for (key, value) in patient.iter().chain(options) {
        settings = settings.with(key, value).expect("an option");
    }
    settings
}

pub(crate) fn node(endpoint: &Endpoint, name: &str, settings: &Settings) -> Node {
    let id = NodeId::new(name).expect("an id");
    Node::start(endpoint.clone(), RUN, id, settings.clone()).expect("a node")
}

pub(crate) fn holder(endpoint: &Endpoint) -> Holder {
    Holder::connect(endpoint.clone(), RUN, LONG, LONG).expect("a holder")
}

/// Waits until what a node knows is as wanted.
pub(crate) fn wait_until(node: &Node, wanted: impl Fn(&Observed) -> bool) -> Observed {
    let mut known = node.observed();
    while !wanted(&known) {
        let news = node.wait_for_change(&known, LONG);
        assert_ne!(news, known, "nothing changes");
        known = news;
    }
    known
}
