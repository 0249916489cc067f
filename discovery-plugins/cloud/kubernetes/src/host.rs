//! Converts a pod to a host. Pure: the caller passes the time.

use std::time::Duration;

use elasticrun_plugin_sdk::{
    Host, HostState, PluginError, SlotsFrom, hosts::MAX_SLOTS, slots::from_label,
};
use k8s_openapi::api::core::v1::{Pod, PodStatus};

use crate::Options;

/// The label with the number of workers of a pod. (The name of a label has no colon.)
pub(crate) const SLOTS_LABEL: &str = "elasticrun-slots";
/// Resource names of accelerators.
const ACCELERATORS: [&str; 3] = ["nvidia.com/gpu", "amd.com/gpu", "aws.amazon.com/neuroncore"];

/// The host of a pod. `None` if it has no name. `now` is in seconds since 1970.
pub(crate) fn host(pod: &Pod, options: &Options, now: i64) -> Result<Option<Host>, PluginError> {
    let meta = &pod.metadata;
    let (Some(name), Some(uid)) = (&meta.name, &meta.uid) else {
        return Ok(None);
    };
    let empty = PodStatus::default();
    let status = pod.status.as_ref().unwrap_or(&empty);
    let deletion = meta
        .deletion_timestamp
        .as_ref()
        .map(|time| time.0.as_second());
    let (mut state, mut reason) = life(status, deletion.is_some());
    let address = status.pod_ip.clone().filter(|address| !address.is_empty());
    if state == HostState::Ready && address.is_none() {
        (state, reason) = (HostState::Pending, Some("has no address".into()));
    }
    let slots = slots(pod, name, options)?;
    let others = status
        .pod_ips
        .iter()
        .flatten()
        .map(|address| address.ip.clone());
    let others = others
        .filter(|other| Some(other) != address.as_ref())
        .collect();
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    let labels = [("pod", Some(name.clone())), ("node", node)];
    let labels = labels
        .into_iter()
        .filter_map(|(label, value)| Some((label.to_owned(), value?)));
    let left = |end: i64| Duration::from_secs(u64::try_from(end - now).unwrap_or(0));
    Ok(Some(Host {
        address: address.unwrap_or_else(|| name.clone()),
        addresses: others,
        slots: slots.map(|(slots, _)| slots),
        slots_from: slots.map(|(_, from)| from),
        state,
        reason,
        // The deletion timestamp is the end of the grace period.
        deadline: deletion.map(left).filter(|_| state == HostState::Draining),
        labels: labels.collect(),
        ..Host::new(id(name, uid))
    }))
}

/// The name and the first part of the uid. An agent uses `$POD_NAME.uid-${POD_UID%%-*}`. The `uid-` is needed since that part
/// may be all digits, and a name that ends with a number would count as an address.
fn id(name: &str, uid: &str) -> String {
    format!("{name}.uid-{}", uid.split('-').next().unwrap_or_default())
}

/// The state and its reason.
fn life(status: &PodStatus, is_deleted: bool) -> (HostState, Option<String>) {
    let because = |state, why: &str| (state, Some(why.to_owned()));
    let phase = status.phase.as_deref().unwrap_or("Pending");
    let condition = |kind: &str| {
        let mut conditions = status.conditions.iter().flatten();
        conditions.find(|condition| condition.type_ == kind)
    };
    if matches!(phase, "Succeeded" | "Failed") {
        return because(HostState::Gone, status.reason.as_deref().unwrap_or(phase));
    }
    if is_deleted {
        return because(HostState::Draining, "is being deleted");
    }
    let disrupted = condition("DisruptionTarget").filter(|condition| condition.status == "True");
    if let Some(condition) = disrupted {
        return because(
            HostState::Draining,
            condition.reason.as_deref().unwrap_or("DisruptionTarget"),
        );
    }
    if phase != "Running" {
        return because(HostState::Pending, phase);
    }
    if condition("Ready").is_some_and(|condition| condition.status == "True") {
        return (HostState::Ready, None);
    }
    because(HostState::Pending, "is not ready")
}

fn slots(
    pod: &Pod,
    name: &str,
    options: &Options,
) -> Result<Option<(u32, SlotsFrom)>, PluginError> {
    if let Some(slots) = options.slots {
        return Ok(Some((slots, SlotsFrom::Explicit)));
    }
    if let Some(text) = pod
        .metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(SLOTS_LABEL))
    {
        let what = format!("the label {SLOTS_LABEL} of pod {name}");
        return Ok(Some((from_label(text, &what)?, SlotsFrom::Label)));
    }
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let limits = containers.filter_map(|container| container.resources.as_ref()?.limits.as_ref());
    let counts =
        limits.flat_map(|limits| ACCELERATORS.into_iter().filter_map(|name| limits.get(name)));
    let count = counts
        .filter_map(|count| count.0.parse::<u32>().ok())
        .fold(0, u32::saturating_add);
    Ok((count > 0).then_some((count.min(MAX_SLOTS), SlotsFrom::Accelerators)))
}
