//! Hosts as sources describe them.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Deserializer, Serialize};

use crate::{list::HostSpec, millis};

/// A host as a source describes it.
///
/// On the wire only `id` is required. A missing address is the id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "WireHost")]
pub struct Host {
    /// Identity, unique in a snapshot. A new host with the address of an old one has a new id.
    pub id: String,
    /// A name or an address at which other hosts reach it. IPv6 has no brackets.
    pub address: String,
    /// Its other addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// Port of its ssh server, if not the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The user for ssh, if not the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Number of workers, at most [`MAX_SLOTS`](crate::list::MAX_SLOTS). `None` if the source does not know it. A host with 0
    /// slots is not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// The origin of the number of slots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots_from: Option<SlotsFrom>,
    /// Whether it may be used.
    pub state: HostState,
    /// The reason for the state, for the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Time from the answer until the host goes away.
    #[serde(
        rename = "deadline_ms",
        with = "millis",
        skip_serializing_if = "Option::is_none"
    )]
    pub deadline: Option<Duration>,
    /// The provider may reclaim it at any time.
    pub spot: bool,
    /// Zone or rack.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The machine type, as the source names it.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Other properties.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

impl Host {
    /// A ready host whose address is its id.
    pub fn new(id: impl Into<String>) -> Self {
        WireHost {
            id: id.into(),
            ..WireHost::default()
        }
        .into()
    }

    /// Applies the rule for a host with 0 slots: if it is ready, it is pending instead, so that it is not used. In another
    /// state, its slots are unknown, unless it is pending.
    pub fn apply_zero_slots(&mut self) {
        if self.slots != Some(0) {
            return;
        }
        match self.state {
            HostState::Ready => {
                self.state = HostState::Pending;
                self.reason = Some("its source reports 0 slots".to_owned());
            }
            HostState::Pending => {}
            HostState::Draining | HostState::Gone => (self.slots, self.slots_from) = (None, None),
        }
    }
}

/// With 0 slots it is as [`Host::apply_zero_slots`] says.
impl From<HostSpec> for Host {
    fn from(spec: HostSpec) -> Self {
        let mut host = Self {
            slots_from: spec.slots.map(|_| SlotsFrom::Explicit),
            slots: spec.slots,
            port: spec.port,
            address: spec.host.clone(),
            ..Self {
                user: spec.user.clone(),
                ..Self::new(spec.id())
            }
        };
        host.apply_zero_slots();
        host
    }
}

/// Whether a host may be used. The order is that of departure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HostState {
    /// It may be used.
    #[default]
    Ready,
    /// It may be used later.
    Pending,
    /// It will go away: the job drains it.
    Draining,
    /// It is gone.
    Gone,
}

/// An unknown state, as of a newer plugin, counts as [`HostState::Pending`], in which no work starts.
impl<'de> Deserialize<'de> for HostState {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match String::deserialize(deserializer)?.as_str() {
            "ready" => Self::Ready,
            "draining" => Self::Draining,
            "gone" => Self::Gone,
            _ => Self::Pending,
        })
    }
}

/// The origin of a number of slots. The most trustworthy origin is first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SlotsFrom {
    /// The user set it.
    Explicit,
    /// A tag or label of the host.
    Label,
    /// The source's count of accelerators.
    Accelerators,
    /// A probe of the host.
    Probe,
    /// Another origin.
    #[serde(other)]
    Other,
}

#[derive(Default, Deserialize)]
struct WireHost {
    id: String,
    #[serde(default)]
    address: String,
    #[serde(default)]
    addresses: Vec<String>,
    #[serde(default)]
    port: Option<u16>,
    #[serde(default)]
    user: Option<String>,
    #[serde(default)]
    slots: Option<u32>,
    #[serde(default)]
    slots_from: Option<SlotsFrom>,
    #[serde(default)]
    state: HostState,
    #[serde(default)]
    reason: Option<String>,
    #[serde(rename = "deadline_ms", with = "millis", default)]
    deadline: Option<Duration>,
    #[serde(default)]
    spot: bool,
    #[serde(default)]
    zone: Option<String>,
    #[serde(rename = "type", default)]
    kind: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

impl From<WireHost> for Host {
    fn from(wire: WireHost) -> Self {
        Self {
            address: if wire.address.is_empty() {
                wire.id.clone()
            } else {
                wire.address
            },
            id: wire.id,
            addresses: wire.addresses,
            port: wire.port,
            user: wire.user,
            slots: wire.slots,
            slots_from: wire.slots_from,
            state: wire.state,
            reason: wire.reason,
            deadline: wire.deadline,
            spot: wire.spot,
            zone: wire.zone,
            kind: wire.kind,
            labels: wire.labels,
        }
    }
}
