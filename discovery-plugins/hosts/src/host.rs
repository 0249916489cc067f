//! A host, as a source describes it.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Deserializer, Serialize};

use crate::{list::HostSpec, millis};

/// A host, as a source describes it.
///
/// On the wire only `id` is needed; an address that is missing is the id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "WireHost")]
pub struct Host {
    /// Identity, unique in a snapshot. A recycled address is a new host and has a new id.
    pub id: String,
    /// Where it is reached: a name or an address, IPv6 without brackets.
    pub address: String,
    /// Other addresses it has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// Port of its ssh server, if not the usual one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Who logs in there, if not the usual one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Workers it takes, at most [`MAX_SLOTS`](crate::list::MAX_SLOTS); `None`: the source does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// Where the number of slots came from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots_from: Option<SlotsFrom>,
    /// Whether it may be used.
    pub state: HostState,
    /// Why it is in that state, for a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Time until it goes away, from the moment of the answer.
    #[serde(
        rename = "deadline_ms",
        with = "millis",
        skip_serializing_if = "Option::is_none"
    )]
    pub deadline: Option<Duration>,
    /// Its owner may take it back at any time.
    pub spot: bool,
    /// Zone or rack.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Type of machine, in the source's words.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// What else the source knows.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

impl Host {
    /// A host that is ready and is reached by its id.
    pub fn new(id: impl Into<String>) -> Self {
        WireHost {
            id: id.into(),
            ..WireHost::default()
        }
        .into()
    }
}

impl From<HostSpec> for Host {
    fn from(spec: HostSpec) -> Self {
        Self {
            slots_from: spec.slots.map(|_| SlotsFrom::Explicit),
            slots: spec.slots,
            port: spec.port,
            address: spec.host.clone(),
            ..Self {
                user: spec.user.clone(),
                ..Self::new(spec.id())
            }
        }
    }
}

/// Whether a host may be used. The order is that of going away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HostState {
    /// It may be used.
    #[default]
    Ready,
    /// It will be; not yet.
    Pending,
    /// It will go away: it is to be left gracefully.
    Draining,
    /// It is gone.
    Gone,
}

/// A state that a newer plugin has and this build does not know is one in which nobody should start work:
/// [`HostState::Pending`].
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

/// Where a number of slots came from, the most trustworthy first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SlotsFrom {
    /// A person gave it.
    Explicit,
    /// A tag or label of the host.
    Label,
    /// The source's count of accelerators.
    Accelerators,
    /// A look at the host.
    Probe,
    /// Some other way.
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
