//! Failures of AWS: each is one line with the right kind, within the deadline.

#![allow(clippy::unwrap_used)]

mod common;

use std::{
    net::TcpListener,
    time::{Duration, Instant},
};

use common::{Aws, PLENTY, in_state, make, poll};
use elasticrun_plugin_sdk::{Command, ErrorKind, HostState, Plugin};
use serde_json::json;

#[test]
fn an_unknown_group_is_named_with_its_region() {
    let mut aws = Aws::start();
    aws.group("g", 1);
    let mut plugin = aws.plugin(json!({"name": "g,gpus"}));
    let error = plugin.poll(PLENTY).unwrap_err();
    assert_eq!(error.kind, ErrorKind::UnknownGroup);
    assert_eq!(
        error.message,
        format!(
            "no Auto Scaling group gpus in region eu-central-1 at {}; check the name, the region and the account",
            aws.endpoint()
        )
    );
    let many: Vec<_> = (0..60).map(|index| format!("x{index}")).collect();
    let error = aws
        .plugin(json!({"name": many.join(",")}))
        .poll(PLENTY)
        .unwrap_err();
    assert!(
        error
            .message
            .starts_with("no Auto Scaling group x0, x1, x2 and 57 more in")
    );
    assert!(plugin.command(Command::SelfTest, PLENTY).is_err());
}

#[test]
fn throttling_is_obeyed_and_not_repeated() {
    let mut aws = Aws::start();
    let ids = aws.group("g", 1);
    let mut plugin = aws.plugin(json!({"name": "g"}));
    let throttle = json!({"do": "fail", "action": "DescribeAutoScalingGroups", "times": 1, "status": 400,
        "code": "Throttling", "message": "Rate exceeded"});
    aws.order(throttle);
    aws.calls();
    let error = plugin.poll(PLENTY).unwrap_err();
    assert_eq!(aws.calls(), ["DescribeAutoScalingGroups"], "asked once");
    assert_eq!(error.kind, ErrorKind::Throttled);
    assert_eq!(error.retry_after, Some(Duration::from_secs(5)));
    let place = format!("region eu-central-1 at {}", aws.endpoint());
    assert_eq!(
        error.message,
        format!("DescribeAutoScalingGroups in {place}: Throttling: Rate exceeded")
    );
    aws.order(
        json!({"do": "fail", "action": "DescribeInstances", "times": 1, "status": 503,
        "code": "RequestLimitExceeded", "message": "Request limit exceeded.",
        "headers": [["x-amz-retry-after", "12000"]]}),
    );
    let error = plugin.poll(PLENTY).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Throttled);
    assert_eq!(error.retry_after, Some(Duration::from_secs(12)));
    assert_eq!(in_state(&poll(&mut plugin), HostState::Ready), ids);
}

#[test]
fn an_answer_of_another_server_is_told_by_its_status() {
    let mut aws = Aws::start();
    aws.group("g", 1);
    let mut plugin = aws.plugin(json!({"name": "g"}));
    let place = format!("region eu-central-1 at {}", aws.endpoint());
    for (status, kind) in [
        (502, ErrorKind::Retryable),
        (503, ErrorKind::Throttled),
        (407, ErrorKind::Auth),
        (200, ErrorKind::Retryable),
    ] {
        aws.order(
            json!({"do": "fail", "action": "DescribeAutoScalingGroups", "times": 1, "status": status,
            "body": "<html>\nof a proxy\n"}),
        );
        let error = plugin.poll(PLENTY).unwrap_err();
        assert_eq!(
            error.message,
            format!(
                "DescribeAutoScalingGroups in {place}: no answer of AWS, but HTTP status {status}: <html> of a proxy"
            )
        );
        assert_eq!(error.kind, kind, "{status}");
    }
}

#[test]
fn a_refusal_names_the_denied_call() {
    let mut aws = Aws::start();
    aws.group("g", 1);
    for (action, code, kind) in [
        ("DescribeAutoScalingGroups", "AccessDenied", ErrorKind::Auth),
        ("DescribeAutoScalingGroups", "ExpiredToken", ErrorKind::Auth),
        (
            "DescribeInstances",
            "UnauthorizedOperation",
            ErrorKind::Auth,
        ),
        ("DescribeInstanceTypes", "AuthFailure", ErrorKind::Auth),
        ("DescribeInstances", "InternalError", ErrorKind::Retryable),
    ] {
        aws.order(json!({"do": "fail", "action": action, "times": 1, "status": 403, "code": code,
            "message": "You are not authorized to perform this operation. Encoded authorization failure \
                message: AbC0"}));
        let error = aws.plugin(json!({"name": "g"})).poll(PLENTY).unwrap_err();
        assert_eq!(error.kind, kind, "{code}");
        assert!(
            error
                .message
                .starts_with(&format!("{action} in region eu-central-1")),
            "{error}"
        );
        assert!(!error.message.contains("AbC0"), "{error}");
        let advice = match kind {
            ErrorKind::Auth if code == "ExpiredToken" => "; renew the credentials",
            ErrorKind::Auth => "; see docs/aws.md for the permissions that are needed",
            _ => "operation.",
        };
        assert!(error.message.ends_with(advice), "{error}");
    }
}

#[test]
fn a_wrong_tag_names_its_instance() {
    let mut aws = Aws::start();
    let id = aws.group("g", 1).remove(0);
    aws.order(json!({"do": "tag", "id": id, "key": "elasticrun:slots", "value": "all"}));
    let error = aws.plugin(json!({"name": "g"})).poll(PLENTY).unwrap_err();
    assert_eq!(error.kind, ErrorKind::BadConfig);
    assert_eq!(
        error.message,
        format!(r#"the tag elasticrun:slots of {id} is "all"; it must be a number from 1 to 1024"#)
    );
}

#[test]
fn an_endpoint_that_never_answers_costs_no_more_than_the_deadline() {
    // The kernel accepts its connections, and no process reads them.
    let hole = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", hole.local_addr().unwrap());
    let mut plugin =
        make(&json!({"name": "g", "region": "eu-central-1", "endpoint": endpoint})).unwrap();
    for deadline in [1, 300, 900].map(Duration::from_millis) {
        let started = Instant::now();
        let error = plugin.poll(deadline).unwrap_err();
        let took = started.elapsed();
        assert!(took >= deadline && took < deadline + PLENTY, "{took:?}");
        assert_eq!(error.kind, ErrorKind::Retryable);
        assert_eq!(
            error.message,
            format!("region eu-central-1 at {endpoint}: no answer within {deadline:?}")
        );
    }
}

#[test]
fn an_endpoint_without_a_server_is_named() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", nobody.local_addr().unwrap());
    drop(nobody);
    let mut plugin =
        make(&json!({"name": "g", "region": "eu-central-1", "endpoint": endpoint})).unwrap();
    let error = plugin.poll(PLENTY).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Retryable);
    let start =
        format!("DescribeAutoScalingGroups in region eu-central-1 at {endpoint} has no answer: ");
    assert!(error.message.starts_with(&start), "{error}");
    assert!(error.message.contains("Connection refused"), "{error}");
    assert!(!error.message.contains('\n'), "{error}");
}

#[test]
fn a_region_that_does_not_exist_is_in_the_message() {
    let mut plugin = make(&json!({"name": "g", "region": "eu-nowhere-7"})).unwrap();
    let error = plugin.poll(PLENTY).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Retryable);
    assert!(
        error
            .message
            .starts_with("DescribeAutoScalingGroups in region eu-nowhere-7 has no answer: "),
        "{error}"
    );
    assert!(
        error
            .message
            .ends_with("; is the region's name right and the network up?"),
        "{error}"
    );
}
