//! The plugin in a job of a real Slurm cluster of three nodes, all on this machine.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Cluster, PLENTY};
use elasticrun_plugin_sdk::{ErrorKind, Host, HostState, Plugin, from_options};
use elasticrun_plugin_slurm::Slurm;
use elasticrun_process_tests::assert_conforms;

fn plugin(options: &str) -> Slurm {
    Slurm::create(from_options(options.as_bytes()).unwrap()).unwrap()
}

fn seen(hosts: &[Host]) -> Vec<(&str, HostState)> {
    hosts
        .iter()
        .map(|host| (host.id.as_str(), host.state))
        .collect()
}

#[test]
fn nodes_of_a_job_are_drained_and_taken_away() {
    use HostState::{Draining, Ready};
    let Some(cluster) = Cluster::start_for("nodes_of_a_job_are_drained_and_taken_away") else {
        return;
    };
    let job = cluster.job();
    let mut plugin = plugin("{}");
    let snapshot = plugin.poll(PLENTY).unwrap();
    assert_eq!(
        seen(&snapshot.hosts),
        [("n1", Ready), ("n2", Ready), ("n3", Ready)]
    );
    assert!(snapshot.hosts.iter().all(|host| host.slots == Some(2)));
    // The library for users is beside this program.
    let program = std::env::current_exe().unwrap();
    assert_conforms("slurm", program.parent().unwrap());

    cluster.run("scontrol update NodeName=n3 State=DRAIN Reason=test");
    let snapshot = plugin.poll(PLENTY).unwrap();
    assert_eq!(
        seen(&snapshot.hosts),
        [("n1", Ready), ("n2", Ready), ("n3", Draining)]
    );
    assert_eq!(
        snapshot.hosts[2].reason.as_deref(),
        Some("its node is draining")
    );

    cluster.run(&format!("scontrol update JobId={job} NodeList=n1,n2"));
    let snapshot = plugin.poll(PLENTY).unwrap();
    assert_eq!(seen(&snapshot.hosts), [("n1", Ready), ("n2", Ready)]);
    assert!(snapshot.hosts.iter().all(|host| host.slots == Some(2)));

    let error = self::plugin(r#"{"job": "99"}"#).poll(PLENTY).unwrap_err();
    assert_eq!(error.kind, ErrorKind::UnknownGroup);
    assert_eq!(error.message, "Slurm knows no job 99, or it has ended");
}
