//! Converts an instance and its state in the group to a host. Pure.

use elasticrun_plugin_sdk::{
    Host, HostState, PluginError, SlotsFrom, hosts::MAX_SLOTS, slots::from_label,
};

use crate::{
    AddressKind, Options,
    model::{Instance, Member, SLOTS_LABEL},
};

/// The host of an instance. `accelerators` are those of its machine type.
pub(crate) fn host(
    member: &Member,
    number: u64,
    instance: Option<&Instance>,
    accelerators: u32,
    group: &str,
    options: &Options,
) -> Result<Host, PluginError> {
    let (mut state, mut reason) = life(member);
    let address = instance.and_then(|instance| match options.address {
        AddressKind::Internal => instance.internal.as_deref().or(instance.ipv6.as_deref()),
        AddressKind::External => instance.external.as_deref(),
    });
    if state == HostState::Ready && address.is_none() {
        state = HostState::Pending;
        reason = Some(match options.address {
            AddressKind::Internal => "has no internal address".into(),
            AddressKind::External => {
                "has no external address; use=internal takes the other one".into()
            }
        });
    }
    let slots = slots(member, instance, accelerators, options)?;
    let all = instance.map(|instance| [&instance.internal, &instance.external, &instance.ipv6]);
    let others = all.into_iter().flatten().flatten();
    let others = others
        .filter(|other| Some(other.as_str()) != address)
        .cloned()
        .collect();
    let labels = [("group", group), ("name", &member.name)];
    let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
    Ok(Host {
        address: address.unwrap_or(&member.name).to_owned(),
        addresses: others,
        port: options.port,
        user: options.user.clone(),
        slots: slots.map(|(slots, _)| slots),
        slots_from: slots.map(|(_, from)| from),
        state,
        reason,
        spot: instance.is_some_and(|instance| instance.spot),
        zone: Some(member.zone.clone()),
        kind: instance.map(|instance| instance.kind.clone()),
        labels: labels.into(),
        ..Host::new(format!("{}.{number}", member.name))
    })
}

/// The state and its reason.
fn life(member: &Member) -> (HostState, Option<String>) {
    let because = |state, why: &str| (state, Some(why.to_owned()));
    match member.status.as_str() {
        "TERMINATED" | "STOPPED" | "SUSPENDED" | "DEPROVISIONING" => {
            return because(HostState::Gone, &member.status);
        }
        // A preempted instance has 30 seconds in this state.
        "PENDING_STOP" | "STOPPING" | "SUSPENDING" => {
            return because(HostState::Draining, &member.status);
        }
        _ => {}
    }
    match member.action.as_str() {
        "NONE" | "REFRESHING" => {}
        "DELETING" | "ABANDONING" | "RECREATING" | "RESTARTING" | "STOPPING" | "SUSPENDING" => {
            return because(HostState::Draining, &member.action);
        }
        other => return because(HostState::Pending, other),
    }
    if member.status != "RUNNING" {
        return because(HostState::Pending, &member.status);
    }
    if let Some(sick) = member.health.iter().find(|state| *state != "HEALTHY") {
        // The state is unknown before the first check.
        let state = if sick == "UNKNOWN" {
            HostState::Pending
        } else {
            HostState::Draining
        };
        return (state, Some(format!("its health check says {sick}")));
    }
    (HostState::Ready, None)
}

fn slots(
    member: &Member,
    instance: Option<&Instance>,
    accelerators: u32,
    options: &Options,
) -> Result<Option<(u32, SlotsFrom)>, PluginError> {
    if let Some(slots) = options.slots {
        return Ok(Some((slots, SlotsFrom::Explicit)));
    }
    let Some(instance) = instance else {
        return Ok(None);
    };
    if let Some(text) = &instance.label {
        let what = format!("the label {SLOTS_LABEL} of {}", member.name);
        return Ok(Some((from_label(text, &what)?, SlotsFrom::Label)));
    }
    let count = if instance.attached > 0 {
        instance.attached
    } else {
        accelerators
    };
    Ok((count > 0).then_some((count.min(MAX_SLOTS), SlotsFrom::Accelerators)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(status: &str, action: &str, health: &[&str]) -> Member {
        Member {
            number: Some(17),
            name: "gpus-x1".into(),
            zone: "europe-west4-a".into(),
            status: status.into(),
            action: action.into(),
            health: health.iter().map(|&state| state.to_owned()).collect(),
        }
    }

    #[test]
    fn a_host_is_ready_when_it_runs_and_its_group_lets_it() {
        use HostState::{Draining, Gone, Pending, Ready};
        for (status, action, health, expected) in [
            ("RUNNING", "NONE", &[][..], Ready),
            ("RUNNING", "REFRESHING", &[], Ready),
            ("RUNNING", "NONE", &["HEALTHY"], Ready),
            ("RUNNING", "NONE", &["UNKNOWN"], Pending),
            ("RUNNING", "NONE", &["HEALTHY", "UNHEALTHY"], Draining),
            ("RUNNING", "VERIFYING", &[], Pending),
            ("RUNNING", "DELETING", &[], Draining),
            ("RUNNING", "ABANDONING", &[], Draining),
            ("RUNNING", "RECREATING", &[], Draining),
            ("RUNNING", "DANCING", &[], Pending),
            ("PENDING_STOP", "NONE", &[], Draining),
            ("STOPPING", "NONE", &[], Draining),
            ("STOPPING", "DELETING", &[], Draining),
            ("TERMINATED", "NONE", &[], Gone),
            ("STAGING", "CREATING", &[], Pending),
            ("STAGING", "NONE", &[], Pending),
            ("", "CREATING", &[], Pending),
        ] {
            let (state, reason) = life(&member(status, action, health));
            assert_eq!(state, expected, "{status} {action} {health:?}");
            assert_eq!(reason.is_none(), expected == Ready);
        }
    }

    #[test]
    fn slots_are_those_with_the_best_origin() {
        let options =
            |json: &str| elasticrun_plugin_sdk::from_options::<Options>(json.as_bytes()).unwrap();
        let plain = options(r#"{"group": "p/r/n"}"#);
        let member = member("RUNNING", "NONE", &[]);
        let slots_of = |label: Option<&str>, attached, accelerators, options: &Options| {
            let instance = Instance {
                internal: Some("10.0.0.1".into()),
                label: label.map(str::to_owned),
                attached,
                ..Instance::default()
            };
            let host = host(&member, 17, Some(&instance), accelerators, "g", options)?;
            Ok::<_, PluginError>((host.slots, host.slots_from))
        };
        assert_eq!(slots_of(None, 0, 0, &plain).unwrap(), (None, None));
        assert_eq!(
            slots_of(None, 0, 8, &plain).unwrap(),
            (Some(8), Some(SlotsFrom::Accelerators))
        );
        assert_eq!(
            slots_of(None, 2, 8, &plain).unwrap(),
            (Some(2), Some(SlotsFrom::Accelerators))
        );
        assert_eq!(
            slots_of(Some("3"), 2, 8, &plain).unwrap(),
            (Some(3), Some(SlotsFrom::Label))
        );
        let explicit = options(r#"{"group": "p/r/n", "slots": 1}"#);
        assert_eq!(
            slots_of(Some("3"), 2, 8, &explicit).unwrap(),
            (Some(1), Some(SlotsFrom::Explicit))
        );
        assert_eq!(
            slots_of(Some("all"), 0, 0, &plain).unwrap_err().message,
            r#"the label elasticrun-slots of gpus-x1 is "all"; it must be a number from 1 to 1024"#
        );
    }
}
