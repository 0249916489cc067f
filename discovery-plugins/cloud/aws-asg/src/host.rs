//! Converts an instance, as the group and EC2 report it, to a host. Pure.

use std::time::Duration;

use aws_sdk_autoscaling::types::LifecycleState as Life;
use aws_sdk_ec2::types::InstanceStateName as State;
use elasticrun_plugin_sdk::{
    Host, HostState, PluginError, SlotsFrom, hosts::MAX_SLOTS, slots::from_label,
};

use crate::{
    AddressKind, Options,
    groups::Member,
    instances::{Instance, SLOTS_TAG},
    types::Types,
};

/// The host of an instance.
pub(crate) fn host(
    member: &Member,
    instance: Option<&Instance>,
    types: &Types,
    options: &Options,
    deadline: Option<Duration>,
) -> Result<Host, PluginError> {
    let (mut state, mut reason) = life(member, instance);
    let address = instance.and_then(|instance| address(instance, options.address));
    if state == HostState::Ready && address.is_none() {
        state = HostState::Pending;
        reason = Some(match options.address {
            AddressKind::Private => "has no private address".into(),
            AddressKind::Public => "has no public address; use=private takes the other one".into(),
        });
    }
    let (slots, slots_from) = match slots(member, instance, types, options)? {
        Some((slots, from)) => (Some(slots), Some(from)),
        None => (None, None),
    };
    let id = member.id.clone();
    Ok(Host {
        address: address.unwrap_or(&id).to_owned(),
        addresses: others(instance, address),
        port: options.port,
        user: options.user.clone(),
        slots,
        slots_from,
        state,
        reason,
        deadline: deadline.filter(|_| state == HostState::Draining),
        spot: instance.is_some_and(|instance| instance.spot),
        zone: (instance.and_then(|instance| instance.zone.clone())).or_else(|| member.zone.clone()),
        kind: kind(member, instance).map(str::to_owned),
        labels: [("group".to_owned(), member.group.clone())].into(),
        ..Host::new(id)
    })
}

/// The state and its reason.
fn life(member: &Member, instance: Option<&Instance>) -> (HostState, Option<String>) {
    let name = member.life.as_str();
    let state = instance.map(|instance| &instance.state);
    let because = |state| (state, Some(name.to_owned()));
    if matches!(member.life, Life::Terminated | Life::Detached) {
        return because(HostState::Gone);
    }
    if let Some(State::ShuttingDown | State::Terminated | State::Stopping | State::Stopped) = state
    {
        let word = state.map_or("", |state| state.as_str());
        return (HostState::Gone, Some(format!("EC2 says {word}")));
    }
    match &member.life {
        Life::InService if !member.healthy => (
            HostState::Draining,
            Some("unhealthy, to be replaced by its group".into()),
        ),
        Life::InService if state == Some(&State::Running) => (HostState::Ready, None),
        Life::InService => (
            HostState::Pending,
            Some("EC2 does not say that it runs".into()),
        ),
        Life::Detaching | Life::EnteringStandby => because(HostState::Draining),
        // All terminating states, including those that are newer than this build.
        _ if name.starts_with("Terminating") => because(HostState::Draining),
        _ => because(HostState::Pending),
    }
}

fn address(instance: &Instance, kind: AddressKind) -> Option<&str> {
    match kind {
        AddressKind::Private => instance.private.as_deref().or(instance.ipv6.as_deref()),
        AddressKind::Public => instance.public.as_deref(),
    }
}

fn others(instance: Option<&Instance>, used: Option<&str>) -> Vec<String> {
    let Some(instance) = instance else {
        return Vec::new();
    };
    let all = [&instance.private, &instance.public, &instance.ipv6];
    let others = all.into_iter().flatten();
    others
        .filter(|other| Some(other.as_str()) != used)
        .cloned()
        .collect()
}

/// The instance type. A group may have several types.
pub(crate) fn kind<'a>(member: &'a Member, instance: Option<&'a Instance>) -> Option<&'a str> {
    let kind = instance.and_then(|instance| instance.kind.as_deref());
    kind.or(member.kind.as_deref())
}

fn slots(
    member: &Member,
    instance: Option<&Instance>,
    types: &Types,
    options: &Options,
) -> Result<Option<(u32, SlotsFrom)>, PluginError> {
    if let Some(slots) = options.slots {
        return Ok(Some((slots, SlotsFrom::Explicit)));
    }
    if let Some(text) = instance.and_then(|instance| instance.slots.as_deref()) {
        let what = format!("the tag {SLOTS_TAG} of {}", member.id);
        return Ok(Some((from_label(text, &what)?, SlotsFrom::Label)));
    }
    let accelerators = kind(member, instance).and_then(|kind| types.accelerators(kind));
    Ok(accelerators.map(|count| (count.min(MAX_SLOTS), SlotsFrom::Accelerators)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(life: Life) -> Member {
        Member {
            id: "i-1".into(),
            group: "g".into(),
            life,
            healthy: true,
            kind: Some("p5.48xlarge".into()),
            zone: Some("eu-central-1a".into()),
        }
    }

    fn instance(state: State) -> Instance {
        Instance {
            state,
            private: Some("10.0.0.1".into()),
            public: None,
            ipv6: None,
            kind: None,
            zone: None,
            spot: true,
            slots: None,
        }
    }

    fn options(json: &str) -> Options {
        elasticrun_plugin_sdk::from_options(json.as_bytes()).unwrap()
    }

    fn made(member: &Member, instance: Option<&Instance>) -> Host {
        let options = options(r#"{"name": "g"}"#);
        host(
            member,
            instance,
            &Types::default(),
            &options,
            Some(Duration::from_secs(60)),
        )
        .unwrap()
    }

    #[test]
    fn a_host_is_ready_when_group_and_ec2_agree() {
        use HostState::{Draining, Gone, Pending, Ready};
        let cases = [
            (Life::InService, Some(State::Running), Ready),
            (Life::InService, Some(State::Pending), Pending),
            (Life::InService, None, Pending),
            (Life::InService, Some(State::ShuttingDown), Gone),
            (Life::InService, Some(State::Stopped), Gone),
            (Life::Pending, Some(State::Running), Pending),
            (Life::PendingWait, Some(State::Running), Pending),
            (Life::TerminatingWait, Some(State::Running), Draining),
            (Life::Terminating, Some(State::Terminated), Gone),
            (Life::TerminatingProceed, None, Draining),
            (
                Life::from("Terminating:Later"),
                Some(State::Running),
                Draining,
            ),
            (Life::Terminated, None, Gone),
            (Life::Detaching, Some(State::Running), Draining),
            (Life::Detached, Some(State::Running), Gone),
            (Life::EnteringStandby, Some(State::Running), Draining),
            (Life::Standby, Some(State::Running), Pending),
            (Life::from("Resting"), Some(State::Running), Pending),
        ];
        for (life, state, expected) in cases {
            let instance = state.map(instance);
            let host = made(&member(life.clone()), instance.as_ref());
            assert_eq!(host.state, expected, "{life} {instance:?}");
            assert_eq!(
                host.reason.is_none(),
                expected == Ready,
                "{life} {instance:?}"
            );
            assert_eq!(
                host.deadline.is_some(),
                expected == Draining,
                "{life} {instance:?}"
            );
        }
    }

    #[test]
    fn an_unhealthy_instance_is_drained() {
        let sick = Member {
            healthy: false,
            ..member(Life::InService)
        };
        let host = made(&sick, Some(&instance(State::Running)));
        assert_eq!(host.state, HostState::Draining);
        assert_eq!(
            host.reason.unwrap(),
            "unhealthy, to be replaced by its group"
        );
    }

    #[test]
    fn the_address_is_of_the_requested_kind() {
        let mut instance = instance(State::Running);
        let member = member(Life::InService);
        let public = options(r#"{"name": "g", "use": "public", "user": "ubuntu", "port": 2222}"#);
        let seen = |instance: &Instance| {
            host(&member, Some(instance), &Types::default(), &public, None).unwrap()
        };
        let without = seen(&instance);
        assert_eq!(without.state, HostState::Pending);
        assert_eq!(
            without.reason.unwrap(),
            "has no public address; use=private takes the other one"
        );
        instance.public = Some("52.0.0.1".into());
        let host = seen(&instance);
        assert_eq!(
            (host.id.as_str(), host.address.as_str()),
            ("i-1", "52.0.0.1")
        );
        assert_eq!(host.addresses, ["10.0.0.1"]);
        assert_eq!(
            (host.user.as_deref(), host.port),
            (Some("ubuntu"), Some(2222))
        );
        assert!(host.spot);
        assert_eq!(host.labels["group"], "g");
        assert_eq!(made(&member, Some(&instance)).address, "10.0.0.1");
    }

    #[test]
    fn slots_are_those_with_the_best_origin() {
        let member = member(Life::InService);
        let mut instance = instance(State::Running);
        let slots = |instance: &Instance, json: &str| {
            let host = host(
                &member,
                Some(instance),
                &Types::default(),
                &options(json),
                None,
            )?;
            Ok::<_, PluginError>((host.slots, host.slots_from))
        };
        let plain = r#"{"name": "g"}"#;
        assert_eq!(slots(&instance, plain).unwrap(), (None, None));
        instance.slots = Some(" 4 ".into());
        assert_eq!(
            slots(&instance, plain).unwrap(),
            (Some(4), Some(SlotsFrom::Label))
        );
        let explicit = r#"{"name": "g", "slots": 2}"#;
        assert_eq!(
            slots(&instance, explicit).unwrap(),
            (Some(2), Some(SlotsFrom::Explicit))
        );
        instance.slots = Some("all".into());
        assert_eq!(
            slots(&instance, plain).unwrap_err().message,
            r#"the tag elasticrun:slots of i-1 is "all"; it must be a number from 1 to 1024"#
        );
    }
}
