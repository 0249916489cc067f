//! What the plugin takes from the answers of Compute Engine. Pure.

use google_cloud_compute_v1::model::{self, MachineType, ManagedInstance};

/// The label with the number of workers of an instance. (Labels of this cloud have no colons.)
pub(crate) const SLOTS_LABEL: &str = "elasticrun-slots";

/// An instance of a group.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Member {
    /// Its number. None until it is created.
    pub(crate) number: Option<u64>,
    pub(crate) name: String,
    pub(crate) zone: String,
    pub(crate) status: String,
    /// The current action of the group.
    pub(crate) action: String,
    /// The states of health checks. Empty without a check.
    pub(crate) health: Vec<String>,
}

/// Properties that do not change during the life of an instance.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Instance {
    pub(crate) internal: Option<String>,
    pub(crate) external: Option<String>,
    pub(crate) ipv6: Option<String>,
    /// The machine type.
    pub(crate) kind: String,
    pub(crate) spot: bool,
    pub(crate) label: Option<String>,
    /// Attached accelerators.
    pub(crate) attached: u32,
}

/// The member of a group. None without a URL.
pub(crate) fn member(given: ManagedInstance) -> Option<Member> {
    // .../zones/ZONE/instances/NAME
    let url = given.instance?;
    let mut path = url.rsplit('/');
    let name = path.next()?.to_owned();
    let zone = path.nth(1)?.to_owned();
    let states = given.instance_health.iter();
    let health = states.map(|one| {
        text(
            one.detailed_health_state
                .as_ref()
                .and_then(|state| state.name()),
        )
    });
    Some(Member {
        number: given.id,
        name,
        zone,
        status: text(
            given
                .instance_status
                .as_ref()
                .and_then(|status| status.name()),
        ),
        action: text(
            given
                .current_action
                .as_ref()
                .and_then(|action| action.name()),
        ),
        health: health.collect(),
    })
}

/// The number and the properties of an instance.
pub(crate) fn instance(given: model::Instance) -> Option<(u64, Instance)> {
    let network = given
        .network_interfaces
        .into_iter()
        .next()
        .unwrap_or_default();
    let external = network.access_configs.into_iter().next();
    let given_text = |value: Option<String>| value.filter(|text| !text.is_empty());
    let spot = given.scheduling.is_some_and(|scheduling| {
        let model = scheduling.provisioning_model;
        scheduling.preemptible == Some(true)
            || model.is_some_and(|model| model.name() == Some("SPOT"))
    });
    let kind = given.machine_type.unwrap_or_default();
    let instance = Instance {
        internal: given_text(network.network_ip),
        external: given_text(external.and_then(|access| access.nat_ip)),
        ipv6: given_text(network.ipv_6_address),
        kind: kind.rsplit('/').next().unwrap_or_default().to_owned(),
        spot,
        label: given.labels.get(SLOTS_LABEL).cloned(),
        attached: sum(given
            .guest_accelerators
            .iter()
            .map(|one| one.accelerator_count)),
    };
    Some((given.id?, instance))
}

/// Accelerators of a machine type.
pub(crate) fn accelerators(given: &MachineType) -> u32 {
    sum(given
        .accelerators
        .iter()
        .map(|one| one.guest_accelerator_count))
}

fn sum(counts: impl Iterator<Item = Option<i32>>) -> u32 {
    let counts = counts.filter_map(|count| u32::try_from(count?).ok());
    counts.fold(0, u32::saturating_add)
}

fn text(name: Option<&str>) -> String {
    name.unwrap_or_default().to_owned()
}
