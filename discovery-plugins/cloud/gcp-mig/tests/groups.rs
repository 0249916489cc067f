//! Groups that grow, shrink and remove instances, and failures, through the plugin.

#![allow(clippy::unwrap_used)]

use std::{
    net::TcpListener,
    time::{Duration, Instant},
};

use elasticrun_cloud_tests::{StandIn, ids};
use elasticrun_plugin_gcp_mig::GcpMig;
use elasticrun_plugin_sdk::{
    ErrorKind, Host, HostState, Plugin, PluginError, SlotsFrom, Snapshot, from_options,
};
use serde_json::{Value, json};

const PLENTY: Duration = Duration::from_secs(20);
const ZONAL: &str = "projects/lab/zones/europe-west4-a/instanceGroupManagers/gpus";
const REGIONAL: &str = "projects/lab/regions/europe-west4/instanceGroupManagers/gpus";

/// A zonal group and the plugin of it.
fn zonal(desired: u32, more: Value) -> (StandIn, Vec<String>, GcpMig) {
    let mut gce = StandIn::gce();
    let mut order =
        json!({"do": "group", "path": ZONAL, "zones": ["europe-west4-a"], "desired": desired});
    order
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    let members = ids(gce.order(order));
    let plugin = plugin(&gce, json!({"group": "lab/europe-west4-a/gpus"}));
    (gce, members, plugin)
}

fn plugin(gce: &StandIn, mut options: Value) -> GcpMig {
    options["endpoint"] = gce.endpoint().into();
    make(&options).unwrap()
}

fn make(options: &Value) -> Result<GcpMig, PluginError> {
    GcpMig::create(from_options(options.to_string().as_bytes())?)
}

fn poll(plugin: &mut GcpMig) -> Snapshot {
    plugin.poll(PLENTY).unwrap()
}

fn in_state(hosts: &[Host], state: HostState) -> Vec<&str> {
    let hosts = hosts.iter().filter(|host| host.state == state);
    hosts.map(|host| host.id.as_str()).collect()
}

#[test]
fn a_zonal_group_grows_and_shrinks() {
    let (mut gce, members, mut plugin) = zonal(2, json!({"spot": true}));
    let snapshot = poll(&mut plugin);
    assert_eq!(in_state(&snapshot.hosts, HostState::Ready), members);
    assert_eq!((snapshot.target_size, snapshot.complete), (Some(2), true));
    let pause = snapshot.next_poll.unwrap();
    assert!((5.0..=6.0).contains(&pause.as_secs_f64()), "{pause:?}");
    let host = &snapshot.hosts[0];
    assert_eq!(host.address, "10.0.3.233");
    assert_eq!(host.kind.as_deref(), Some("n2-standard-8"));
    assert_eq!(host.zone.as_deref(), Some("europe-west4-a"));
    assert_eq!((host.slots, host.spot), (None, true));
    assert_eq!(
        (host.labels["name"].as_str(), host.labels["group"].as_str()),
        ("gpus-0000", "gpus")
    );

    let more = ids(gce.order(json!({"do": "desired", "path": ZONAL, "count": 3})));
    gce.calls();
    assert_eq!(in_state(&poll(&mut plugin).hosts, HostState::Ready), more);
    assert_eq!(gce.calls(), ["managed", "get_instance"]);
    poll(&mut plugin);
    assert_eq!(gce.calls(), ["managed"], "no news, one call");
    let fewer = ids(gce.order(json!({"do": "desired", "path": ZONAL, "count": 1})));
    assert_eq!(in_state(&poll(&mut plugin).hosts, HostState::Ready), fewer);
}

#[test]
fn a_regional_group_has_many_instances_in_several_zones() {
    let mut gce = StandIn::gce();
    let zones = ["europe-west4-a", "europe-west4-b", "europe-west4-c"];
    let members =
        ids(gce.order(json!({"do": "group", "path": REGIONAL, "zones": zones, "desired": 1100})));
    gce.order(json!({"do": "page", "size": 200}));
    let mut plugin = plugin(&gce, json!({"group": "lab/europe-west4/gpus"}));
    let snapshot = poll(&mut plugin);
    assert_eq!(in_state(&snapshot.hosts, HostState::Ready), members);
    assert_eq!(snapshot.hosts[1].zone.as_deref(), Some("europe-west4-b"));
    let calls = gce.calls();
    let count = |action: &str| calls.iter().filter(|call| *call == action).count();
    // 1,100 in pages of 200; 366 or 367 per zone; one type in each of three zones.
    assert_eq!(
        (
            count("managed"),
            count("list_instances"),
            count("machine_type"),
            count("get_instance")
        ),
        (6, 6, 3, 0)
    );
}

#[test]
fn an_instance_that_goes_is_draining_and_then_gone() {
    let (mut gce, members, mut plugin) = zonal(3, json!({}));
    poll(&mut plugin);
    gce.order(json!({"do": "set", "id": members[0], "action": "DELETING"}));
    gce.order(json!({"do": "set", "id": members[1], "status": "STOPPING"}));
    let snapshot = poll(&mut plugin);
    assert_eq!(in_state(&snapshot.hosts, HostState::Draining), members[..2]);
    assert_eq!(snapshot.hosts[0].reason.as_deref(), Some("DELETING"));
    assert_eq!(snapshot.target_size, Some(2));
    gce.order(json!({"do": "set", "id": members[1], "status": "TERMINATED"}));
    gce.order(json!({"do": "set", "id": members[2], "health": "UNHEALTHY"}));
    let hosts = poll(&mut plugin).hosts;
    assert_eq!(in_state(&hosts, HostState::Gone), [&members[1]]);
    assert_eq!(
        in_state(&hosts, HostState::Draining),
        [&members[0], &members[2]]
    );
}

#[test]
fn a_recreated_instance_is_another_host() {
    let (mut gce, members, mut plugin) = zonal(1, json!({}));
    let before = poll(&mut plugin).hosts;
    let anew = gce.order(json!({"do": "recreate", "id": members[0]}));
    let after = poll(&mut plugin).hosts;
    assert_eq!(before[0].address, after[0].address);
    assert_eq!(after[0].id, anew.as_str().unwrap());
    assert_ne!(before[0].id, after[0].id);
}

#[test]
fn an_instance_that_is_planned_or_gone_between_two_calls_is_no_failure() {
    let (mut gce, members, mut plugin) = zonal(3, json!({}));
    gce.order(json!({"do": "set", "id": members[0], "status": "", "action": "CREATING"}));
    gce.order(json!({"do": "vanish", "name": "gpus-0001"}));
    let snapshot = poll(&mut plugin);
    assert_eq!(snapshot.hosts.len(), 2);
    assert_eq!(in_state(&snapshot.hosts, HostState::Pending), [&members[1]]);
    assert_eq!(in_state(&snapshot.hosts, HostState::Ready), [&members[2]]);
    assert_eq!(snapshot.target_size, Some(3));
}

#[test]
fn slots_are_accelerators_or_what_a_label_says() {
    let slots = |host: &Host| (host.slots.unwrap(), host.slots_from.unwrap());
    let (_gce, _, mut plugin) = zonal(1, json!({"accelerators": 4}));
    assert_eq!(
        slots(&poll(&mut plugin).hosts[0]),
        (4, SlotsFrom::Accelerators)
    );
    let (mut gce, _, mut plugin) = zonal(1, json!({"type": "a3-highgpu-8g"}));
    gce.order(json!({"do": "type", "name": "a3-highgpu-8g", "accelerators": 8}));
    assert_eq!(
        slots(&poll(&mut plugin).hosts[0]),
        (8, SlotsFrom::Accelerators)
    );
    let (_gce, _, mut plugin) = zonal(
        1,
        json!({"accelerators": 4, "labels": {"elasticrun-slots": "2"}}),
    );
    assert_eq!(slots(&poll(&mut plugin).hosts[0]), (2, SlotsFrom::Label));
}

#[test]
fn a_failure_has_its_kind_and_one_line() {
    let (mut gce, members, mut plugin) = zonal(1, json!({}));
    for (action, status, reason, kind) in [
        ("managed", 403, "forbidden", ErrorKind::Auth),
        ("managed", 401, "authError", ErrorKind::Auth),
        ("managed", 400, "invalid", ErrorKind::BadConfig),
        ("managed", 500, "internalError", ErrorKind::Retryable),
        ("managed", 502, "badGateway", ErrorKind::Retryable),
        ("managed", 403, "quotaExceeded", ErrorKind::Throttled),
        (
            "managed",
            403,
            "userRateLimitExceeded",
            ErrorKind::Throttled,
        ),
        ("managed", 403, "rateLimitExceeded", ErrorKind::Throttled),
        ("managed", 429, "rateLimitExceeded", ErrorKind::Throttled),
        ("managed", 503, "backendError", ErrorKind::Retryable),
        ("get_instance", 403, "forbidden", ErrorKind::Auth),
        ("get_instance", 400, "invalid", ErrorKind::BadConfig),
        (
            "get_instance",
            429,
            "rateLimitExceeded",
            ErrorKind::Throttled,
        ),
        ("machine_type", 403, "forbidden", ErrorKind::Auth),
        ("machine_type", 503, "backendError", ErrorKind::Retryable),
    ] {
        gce.order(
            json!({"do": "fail", "action": action, "status": status, "reason": reason,
            "message": "Required 'compute.x' permission\nfor it"}),
        );
        gce.calls();
        let error = plugin.poll(PLENTY).unwrap_err();
        assert_eq!(error.kind, kind, "{status} {reason}");
        assert_eq!(gce.calls().last().unwrap(), action, "it is not asked again");
        assert!(
            error
                .message
                .contains(&format!("{status} {reason}: Required 'compute.x'")),
            "{error}"
        );
        assert!(!error.message.contains('\n'), "{error}");
        let waits = error.retry_after.is_some();
        assert_eq!(waits, kind == ErrorKind::Throttled, "{error}");
    }
    gce.order(
        json!({"do": "fail", "action": "managed", "status": 429, "headers": {"Retry-After": "7"}}),
    );
    assert_eq!(
        plugin.poll(PLENTY).unwrap_err().retry_after,
        Some(Duration::from_secs(7))
    );
    assert_eq!(
        in_state(&poll(&mut plugin).hosts, HostState::Ready),
        members
    );
}

#[test]
fn requests_name_this_program() {
    let (mut gce, _, mut plugin) = zonal(1, json!({}));
    poll(&mut plugin);
    let calls = gce.order(json!({"do": "calls"}));
    let expected = concat!("elasticrun/", env!("CARGO_PKG_VERSION"));
    assert_eq!(calls[0]["headers"]["user-agent"], expected);
}

#[test]
fn an_unknown_group_is_named_with_its_place() {
    let gce = StandIn::gce();
    let unknown = |group: &str| {
        let error = plugin(&gce, json!({"group": group}))
            .poll(PLENTY)
            .unwrap_err();
        assert_eq!(error.kind, ErrorKind::UnknownGroup);
        error.message
    };
    assert_eq!(
        unknown("lab/europe-west4-a/gpu"),
        "no managed instance group gpu in zone europe-west4-a of project lab; check project, place and name"
    );
    assert!(unknown("lab/europe-west4/gpu").contains("gpu in region europe-west4 of project lab"));
}

#[test]
fn a_server_that_never_answers_costs_no_more_than_the_deadline() {
    let hole = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", hole.local_addr().unwrap());
    let mut plugin =
        make(&json!({"group": "lab/europe-west4-a/gpus", "endpoint": endpoint})).unwrap();
    for deadline in [1, 300].map(Duration::from_millis) {
        let started = Instant::now();
        let error = plugin.poll(deadline).unwrap_err();
        let took = started.elapsed();
        assert!(took < deadline + PLENTY, "{took:?}");
        assert_eq!(error.kind, ErrorKind::Retryable);
        assert_eq!(
            error.message,
            format!("{endpoint}: no answer within {deadline:?}")
        );
    }
    drop(hole);
    let error = plugin.poll(PLENTY).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Retryable);
    assert!(
        error
            .message
            .starts_with(&format!("{endpoint} has no answer: ")),
        "{error}"
    );
}

#[test]
fn mistakes_are_named() {
    let refused = |options: Value| {
        let error = make(&options).unwrap_err();
        assert_eq!(error.kind, ErrorKind::BadConfig);
        error.message
    };
    assert!(
        refused(json!({"group": "gpus"})).starts_with(r#"group: "gpus" is not PROJECT/ZONE/NAME"#)
    );
    assert_eq!(
        refused(json!({"group": "p/z-a/n", "endpoint": "localhost"})),
        r#"endpoint: "localhost" is not http://... or https://..."#
    );
    assert_eq!(
        refused(json!({"group": "p/z-a/n", "slots": 0})),
        "slots: must be a number from 1 to 1024"
    );
}
