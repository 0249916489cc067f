//! Snapshots of sources.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Host, millis};

/// The hosts of a source at one time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The hosts, in the order of the source.
    pub hosts: Vec<Host>,
    /// Whether the list is complete. A host that is missing from an incomplete list has not gone away.
    #[serde(default = "yes")]
    pub complete: bool,
    /// Time until the next poll. `None` stands for the interval of the driver.
    #[serde(
        rename = "next_poll_ms",
        with = "millis",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub next_poll: Option<Duration>,
    /// The number of hosts that the source aims for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_size: Option<u32>,
}

impl Snapshot {
    /// These hosts and no others.
    pub fn new(hosts: Vec<Host>) -> Self {
        Self {
            hosts,
            complete: true,
            next_poll: None,
            target_size: None,
        }
    }
}

fn yes() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HostState, SlotsFrom};

    #[test]
    fn a_snapshot_crosses_and_comes_back() {
        let full = Host {
            address: "10.0.0.1".into(),
            addresses: vec!["fd00::1".into()],
            port: Some(2222),
            user: Some("me".into()),
            slots: Some(8),
            slots_from: Some(SlotsFrom::Accelerators),
            state: HostState::Draining,
            reason: Some("spot".into()),
            deadline: Some(Duration::from_secs(120)),
            spot: true,
            zone: Some("a".into()),
            kind: Some("p5".into()),
            labels: [("k".into(), "v".into())].into(),
            ..Host::new("i-1")
        };
        let snapshot = Snapshot {
            next_poll: Some(Duration::from_secs(5)),
            target_size: Some(3),
            complete: false,
            ..Snapshot::new(vec![full, Host::new("b")])
        };
        let json = serde_json::to_value(&snapshot).unwrap();
        assert_eq!(json["hosts"][0]["type"], "p5");
        assert_eq!(json["hosts"][0]["deadline_ms"], 120_000);
        assert_eq!(json["next_poll_ms"], 5000);
        assert_eq!(serde_json::from_value::<Snapshot>(json).unwrap(), snapshot);
    }

    #[test]
    fn what_is_missing_has_a_meaning_and_what_is_unknown_none() {
        let json = r#"{"hosts": [{"id": "a", "state": "resting", "moon": 1,
            "slots_from": "dream"}, {"id": "b"}], "sun": 2}"#;
        let snapshot: Snapshot = serde_json::from_str(json).unwrap();
        let odd = Host {
            state: HostState::Pending,
            slots_from: Some(SlotsFrom::Other),
            ..Host::new("a")
        };
        assert_eq!(snapshot, Snapshot::new(vec![odd, Host::new("b")]));
        assert_eq!(snapshot.hosts[1].address, "b");
    }
}
