//! Members of groups and their lifecycle states.

use std::collections::BTreeSet;

use aws_sdk_autoscaling::types::{AutoScalingGroup, LifecycleState};
use elasticrun_plugin_sdk::PluginError;

use crate::{account::Account, error::classify};

/// The maximum number of names of a call.
const NAMES_PER_CALL: usize = 50;
const CALL: &str = "DescribeAutoScalingGroups";

/// The current groups.
#[derive(Debug)]
pub(crate) struct Groups {
    /// Sum of the desired capacities.
    pub(crate) desired: u32,
    /// In the order of the given group names, and within a group in that of the answer.
    pub(crate) members: Vec<Member>,
}

/// An instance of a group.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Member {
    pub(crate) id: String,
    pub(crate) group: String,
    pub(crate) life: LifecycleState,
    pub(crate) healthy: bool,
    pub(crate) kind: Option<String>,
    pub(crate) zone: Option<String>,
}

/// Queries groups by name. A missing group is an error, since otherwise a job with a misspelled name would wait forever.
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
                .map_err(|error| classify(CALL, &account.place, error))?;
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
    let index = |group: &AutoScalingGroup| {
        let name = group.auto_scaling_group_name()?;
        names.iter().position(|given| given == name)
    };
    found.sort_by_key(index);
    let known: BTreeSet<_> = found.iter().filter_map(index).collect();
    let missing = names
        .iter()
        .enumerate()
        .filter(|(index, _)| !known.contains(index));
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
