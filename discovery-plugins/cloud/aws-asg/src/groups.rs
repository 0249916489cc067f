//! Who is a member of a group, and in which part of its life.

use std::collections::BTreeSet;

use aws_sdk_autoscaling::types::{AutoScalingGroup, LifecycleState};
use elasticrun_plugin_sdk::PluginError;

use crate::{account::Account, failure};

/// The most names that a call takes.
const NAMES_PER_CALL: usize = 50;
const CALL: &str = "DescribeAutoScalingGroups";

/// The current groups.
#[derive(Debug)]
pub(crate) struct Groups {
    /// Instances that the groups want to have, together.
    pub(crate) desired: u32,
    /// In the order of the groups' names as given, and within a group in that of the answer.
    pub(crate) members: Vec<Member>,
}

/// An instance, as its group sees it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Member {
    pub(crate) id: String,
    pub(crate) group: String,
    pub(crate) life: LifecycleState,
    pub(crate) healthy: bool,
    pub(crate) kind: Option<String>,
    pub(crate) zone: Option<String>,
}

/// Asks for groups by name. One that does not exist is an error: a job without hosts would be waiting for a slip of
/// the pen.
pub(crate) async fn describe(account: &Account, names: &[String]) -> Result<Groups, PluginError> {
    let mut found = Vec::new();
    for names in names.chunks(NAMES_PER_CALL) {
        let mut token = None;
        loop {
            let page = account
                .scaling
                .describe_auto_scaling_groups()
                .set_auto_scaling_group_names(Some(names.to_vec()))
                .set_next_token(token)
                .send()
                .await
                .map_err(|error| failure::of(CALL, &account.place, error))?;
            token = page
                .next_token()
                .filter(|token| !token.is_empty())
                .map(str::to_owned);
            found.extend(page.auto_scaling_groups.unwrap_or_default());
            if token.is_none() {
                break;
            }
        }
    }
    let place = |group: &AutoScalingGroup| {
        let name = group.auto_scaling_group_name()?;
        names.iter().position(|asked| asked == name)
    };
    found.sort_by_key(place);
    let known: BTreeSet<_> = found.iter().filter_map(place).collect();
    let missing = names
        .iter()
        .enumerate()
        .filter(|(place, _)| !known.contains(place));
    let missing: Vec<_> = missing.map(|(_, name)| name.as_str()).collect();
    if !missing.is_empty() {
        return Err(unknown(&missing, &account.place));
    }
    let desired = |group: &AutoScalingGroup| {
        u32::try_from(group.desired_capacity().unwrap_or(0)).unwrap_or(0)
    };
    Ok(Groups {
        desired: found.iter().map(desired).fold(0, u32::saturating_add),
        members: found.iter().flat_map(members).collect(),
    })
}

fn members(group: &AutoScalingGroup) -> impl Iterator<Item = Member> {
    let name = group.auto_scaling_group_name().unwrap_or_default();
    group.instances().iter().filter_map(|instance| {
        Some(Member {
            id: instance.instance_id()?.to_owned(),
            group: name.to_owned(),
            life: instance.lifecycle_state()?.clone(),
            healthy: instance
                .health_status()
                .is_none_or(|health| health.eq_ignore_ascii_case("Healthy")),
            kind: instance.instance_type().map(str::to_owned),
            zone: instance.availability_zone().map(str::to_owned),
        })
    })
}

fn unknown(missing: &[&str], place: &str) -> PluginError {
    const SHOWN: usize = 3;
    let mut names = missing[..missing.len().min(SHOWN)].join(", ");
    if missing.len() > SHOWN {
        names = format!("{names} and {} more", missing.len() - SHOWN);
    }
    PluginError::unknown_group(format!(
        "no Auto Scaling group {names} in {place}; check the name, the region and the account"
    ))
}
