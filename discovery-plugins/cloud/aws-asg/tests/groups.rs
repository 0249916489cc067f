//! Groups that grow, shrink and remove instances, through the plugin. moto simulates AWS.
//!
//! A hook of 20 seconds is shorter than AWS allows, so that a heartbeat is due at its first observation.

#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use common::{Aws, PLENTY, in_state, poll};
use elasticrun_plugin_sdk::{Command, ErrorKind, HostState, Plugin, SlotsFrom};
use serde_json::json;

#[test]
fn a_group_grows_and_shrinks() {
    let mut aws = Aws::start();
    let first = aws.group("g", 2);
    let mut plugin = aws.plugin(json!({"name": "g", "user": "ubuntu"}));
    let snapshot = plugin.poll(PLENTY).unwrap();
    assert_eq!(in_state(&snapshot.hosts, HostState::Ready), first);
    assert_eq!(snapshot.target_size, Some(2));
    assert!(snapshot.complete);
    let pause = snapshot.next_poll.unwrap();
    assert!((5.0..=6.0).contains(&pause.as_secs_f64()), "{pause:?}");
    let host = &snapshot.hosts[0];
    let address = aws.order(json!({"do": "address_of", "id": host.id}));
    assert_eq!(host.address, address.as_str().unwrap());
    assert_eq!(host.kind.as_deref(), Some("t3.micro"));
    assert_eq!(host.zone.as_deref(), Some("eu-central-1a"));
    assert_eq!(host.user.as_deref(), Some("ubuntu"));
    assert_eq!((host.slots, host.spot), (None, false), "no GPU, no tag");

    let more = aws.desired("g", 3);
    assert_eq!(in_state(&poll(&mut plugin), HostState::Ready), more);
    let fewer = aws.desired("g", 1);
    assert_eq!(in_state(&poll(&mut plugin), HostState::Ready), fewer);
}

#[test]
fn a_poll_without_news_is_one_call() {
    let mut aws = Aws::start();
    aws.group("g", 2);
    let mut plugin = aws.plugin(json!({"name": "g"}));
    poll(&mut plugin);
    let first = [
        "DescribeAutoScalingGroups",
        "DescribeInstances",
        "DescribeInstanceTypes",
    ];
    assert_eq!(aws.calls(), first);
    poll(&mut plugin);
    assert_eq!(aws.calls(), ["DescribeAutoScalingGroups"]);
    aws.desired("g", 3);
    aws.calls();
    poll(&mut plugin);
    assert_eq!(
        aws.calls(),
        ["DescribeAutoScalingGroups", "DescribeInstances"]
    );
}

#[test]
fn an_instance_that_goes_is_draining_and_then_gone() {
    let mut aws = Aws::start();
    let ids = aws.group("g", 2);
    aws.order(json!({"do": "hook", "group": "g", "name": "drain", "seconds": 300}));
    let mut plugin = aws.plugin(json!({"name": "g"}));
    assert_eq!(in_state(&poll(&mut plugin), HostState::Ready), ids);
    aws.life(&ids[0], "Terminating:Wait");
    let hosts = poll(&mut plugin);
    assert_eq!(in_state(&hosts, HostState::Draining), [&ids[0]]);
    assert_eq!(hosts[0].reason.as_deref(), Some("Terminating:Wait"));
    let left = hosts[0].deadline.unwrap();
    assert!(
        left <= Duration::from_secs(300) && left > Duration::from_secs(200),
        "{left:?}"
    );
    aws.calls();
    plugin
        .command(
            Command::Drained {
                host: ids[0].clone(),
            },
            PLENTY,
        )
        .unwrap();
    assert!(aws.calls().is_empty(), "the hook is not ours to complete");
    aws.life(&ids[0], "Terminated");
    assert_eq!(in_state(&poll(&mut plugin), HostState::Gone), [&ids[0]]);
}

#[test]
fn a_hook_is_extended_until_the_host_is_drained_and_then_completed() {
    let mut aws = Aws::start();
    let ids = aws.group("g", 2);
    aws.order(json!({"do": "hook", "group": "g", "name": "drain", "seconds": 20}));
    let mut plugin = aws.plugin(json!({"name": "g", "complete_hook": "true"}));
    poll(&mut plugin);
    aws.life(&ids[0], "Terminating:Wait");
    aws.calls();
    poll(&mut plugin);
    assert_eq!(
        aws.calls(),
        [
            "DescribeAutoScalingGroups",
            "RecordLifecycleActionHeartbeat"
        ]
    );
    plugin
        .command(
            Command::Draining {
                host: ids[0].clone(),
            },
            PLENTY,
        )
        .unwrap();
    assert!(aws.calls().is_empty());
    plugin
        .command(
            Command::Drained {
                host: ids[0].clone(),
            },
            PLENTY,
        )
        .unwrap();
    assert_eq!(aws.calls(), ["CompleteLifecycleAction"]);
    let hosts = poll(&mut plugin);
    assert_eq!(in_state(&hosts, HostState::Ready), [&ids[1]]);
    assert!(in_state(&hosts, HostState::Draining).is_empty());
}

#[test]
fn a_host_that_is_drained_before_its_wait_is_seen_waits_no_longer_than_a_poll() {
    let mut aws = Aws::start();
    let ids = aws.group("g", 1);
    aws.order(json!({"do": "hook", "group": "g", "name": "drain", "seconds": 20}));
    let mut plugin = aws.plugin(json!({"name": "g", "complete_hook": true}));
    poll(&mut plugin);
    // The host noticed it by itself, and the job has drained it.
    aws.life(&ids[0], "Terminating:Wait");
    plugin
        .command(
            Command::Drained {
                host: ids[0].clone(),
            },
            PLENTY,
        )
        .unwrap();
    aws.calls();
    poll(&mut plugin);
    assert_eq!(
        aws.calls(),
        ["DescribeAutoScalingGroups", "CompleteLifecycleAction"]
    );
}

#[test]
fn a_hook_that_cannot_be_reached_does_not_hide_that_a_host_goes() {
    let mut aws = Aws::start();
    let ids = aws.group("g", 1);
    aws.order(json!({"do": "hook", "group": "g", "name": "drain", "seconds": 20}));
    let mut plugin = aws.plugin(json!({"name": "g", "complete_hook": true}));
    poll(&mut plugin);
    aws.order(
        json!({"do": "fail", "action": "RecordLifecycleActionHeartbeat", "times": 1,
        "status": 403, "code": "AccessDenied", "message": "no"}),
    );
    aws.life(&ids[0], "Terminating:Wait");
    assert_eq!(in_state(&poll(&mut plugin), HostState::Draining), ids);
    // The next poll retries.
    aws.calls();
    poll(&mut plugin);
    assert!(
        aws.calls()
            .contains(&"RecordLifecycleActionHeartbeat".to_owned())
    );
}

#[test]
fn a_group_without_the_hook_that_is_to_be_completed_is_refused() {
    let mut aws = Aws::start();
    aws.group("g", 1);
    let refused = |aws: &Aws, options| {
        let error = aws.plugin(options).poll(PLENTY).unwrap_err();
        assert_eq!(error.kind, ErrorKind::BadConfig);
        error.message
    };
    assert_eq!(
        refused(&aws, json!({"name": "g", "complete_hook": true})),
        "complete_hook: group g has no hook for EC2_INSTANCE_TERMINATING"
    );
    for name in ["drain", "logs"] {
        aws.order(json!({"do": "hook", "group": "g", "name": name, "seconds": 30}));
    }
    assert_eq!(
        refused(&aws, json!({"name": "g", "complete_hook": true})),
        "complete_hook: group g has several termination hooks (drain, logs); say which is ours: hook=NAME"
    );
    let mut plugin = aws.plugin(json!({"name": "g", "complete_hook": true, "hook": "logs"}));
    assert_eq!(poll(&mut plugin).len(), 1);
}

#[test]
fn what_ec2_has_ended_is_gone_although_its_group_still_lists_it() {
    let mut aws = Aws::start();
    let ids = aws.group("g", 2);
    aws.order(json!({"do": "terminate", "id": ids[1]}));
    let mut plugin = aws.plugin(json!({"name": "g"}));
    let hosts = poll(&mut plugin);
    assert_eq!(in_state(&hosts, HostState::Ready), [&ids[0]]);
    assert_eq!(in_state(&hosts, HostState::Gone), [&ids[1]]);
    assert_eq!(hosts[1].reason.as_deref(), Some("EC2 says terminated"));
}

#[test]
fn an_unhealthy_instance_is_draining() {
    let mut aws = Aws::start();
    let ids = aws.group("g", 2);
    aws.order(json!({"do": "health", "id": ids[0], "health": "Unhealthy"}));
    let hosts = poll(&mut aws.plugin(json!({"name": "g"})));
    assert_eq!(in_state(&hosts, HostState::Draining), [&ids[0]]);
}

#[test]
fn an_address_that_comes_back_is_another_host() {
    let mut aws = Aws::start();
    let first = aws.group("g", 1).remove(0);
    aws.order(json!({"do": "address", "id": first, "private": "10.1.2.3"}));
    let mut plugin = aws.plugin(json!({"name": "g"}));
    let before = poll(&mut plugin);
    aws.desired("g", 0);
    let second = aws.desired("g", 1).remove(0);
    aws.order(json!({"do": "address", "id": second, "private": "10.1.2.3"}));
    let after = poll(&mut plugin);
    assert_eq!(before[0].address, "10.1.2.3");
    assert_eq!(after[0].address, "10.1.2.3");
    assert_ne!(before[0].id, after[0].id);
}

#[test]
fn slots_are_gpus_neuron_cores_or_what_a_tag_says() {
    let mut aws = Aws::start();
    for (name, kind, tags) in [
        ("p5", "p5.48xlarge", json!({})),
        ("fraction", "g6f.large", json!({})),
        ("neuron", "trn1.32xlarge", json!({})),
        ("tagged", "p5.48xlarge", json!({"elasticrun:slots": "4"})),
    ] {
        aws.order(json!({"do": "group", "name": name, "desired": 1, "type": kind, "tags": tags, "spot": true}));
    }
    let slots = |hosts: Vec<elasticrun_plugin_sdk::Host>| -> Vec<_> {
        hosts
            .into_iter()
            .map(|host| (host.slots.unwrap(), host.slots_from.unwrap()))
            .collect()
    };
    let all = "p5,fraction,neuron,tagged";
    let mut plugin = aws.plugin(json!({"name": all}));
    let expected = [
        (8, SlotsFrom::Accelerators),
        (1, SlotsFrom::Accelerators),
        (32, SlotsFrom::Accelerators),
        (4, SlotsFrom::Label),
    ];
    assert_eq!(slots(poll(&mut plugin)), expected);
    let mut plugin = aws.plugin(json!({"name": all, "slots": "2"}));
    aws.calls();
    assert_eq!(slots(poll(&mut plugin)), [(2, SlotsFrom::Explicit); 4]);
    assert!(!aws.calls().contains(&"DescribeInstanceTypes".to_owned()));
}

#[test]
fn many_groups_and_many_instances_are_asked_for_in_parts() {
    let mut aws = Aws::start();
    let mut names = Vec::new();
    for index in 0..120 {
        let name = format!("small-{index:03}");
        aws.group(&name, 1);
        names.push(name);
    }
    let large = aws.group("large", 1100);
    assert_eq!(large.len(), 1100);
    names.push("large".into());
    aws.calls();
    let mut plugin = aws.plugin(json!({"name": names.join(",")}));
    let snapshot = plugin.poll(PLENTY).unwrap();
    assert_eq!(snapshot.target_size, Some(1220));
    assert_eq!(in_state(&snapshot.hosts, HostState::Ready).len(), 1220);
    let groups: Vec<_> = snapshot
        .hosts
        .iter()
        .map(|host| host.labels["group"].as_str())
        .collect();
    assert_eq!(
        (groups[0], groups[119], groups[120]),
        ("small-000", "small-119", "large")
    );
    let calls = aws.calls();
    let count = |action: &str| calls.iter().filter(|call| *call == action).count();
    assert_eq!(count("DescribeAutoScalingGroups"), 3, "50 names a call");
    // 1,220 ids are 7 calls of 200; the first has 121 reservations, of which a page holds 100.
    assert_eq!(count("DescribeInstances"), 8);
}
