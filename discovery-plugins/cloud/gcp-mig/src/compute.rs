//! The parts of Compute Engine that are asked, and what they answer.

use std::{collections::BTreeMap, time::Instant};

use elasticrun_plugin_http::{Answer, Ask, ask as ask_server};
use elasticrun_plugin_sdk::PluginError;
use serde_json::Value;
use ureq::Agent;

use crate::{
    access::Access,
    failure::{self, text},
    group::Group,
};

const USUAL: &str = "https://compute.googleapis.com";
/// With so many new instances in a zone its list is asked for, and not each of them.
const MANY: usize = 10;
/// What of an instance is wanted: the rest of a list need not travel.
const FIELDS: &str = "id,name,machineType,labels,scheduling(provisioningModel,preemptible),\
                      guestAccelerators(acceleratorCount),networkInterfaces(networkIP,ipv6Address,accessConfigs(natIP))";

/// An instance, as its group sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Member {
    /// Its number; empty until it is made.
    pub(crate) number: String,
    pub(crate) name: String,
    pub(crate) zone: String,
    pub(crate) status: String,
    /// What the group is doing with it.
    pub(crate) action: String,
    /// As the health checks say; empty without one.
    pub(crate) health: Vec<String>,
}

/// What does not change while an instance lives.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Machine {
    pub(crate) internal: Option<String>,
    pub(crate) external: Option<String>,
    pub(crate) ipv6: Option<String>,
    /// Type of machine.
    pub(crate) kind: String,
    pub(crate) spot: bool,
    pub(crate) label: Option<String>,
    /// Accelerators that were attached.
    pub(crate) attached: u32,
}

/// The way to Compute Engine.
#[derive(Debug)]
pub(crate) struct Compute {
    endpoint: String,
    agent: Agent,
    access: Access,
    /// Accelerators of machine types, by zone and name.
    types: BTreeMap<String, u32>,
}

impl Compute {
    /// # Errors
    /// The endpoint is no URL.
    pub(crate) fn new(endpoint: Option<String>) -> Result<Self, PluginError> {
        let endpoint = endpoint.unwrap_or_else(|| USUAL.into());
        if !endpoint.starts_with("http://") && !endpoint.starts_with("https://") {
            let why = format!("endpoint: {endpoint:?} is not http://... or https://...");
            return Err(PluginError::bad_config(why));
        }
        Ok(Self {
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            agent: elasticrun_plugin_http::agent(),
            access: Access::default(),
            types: BTreeMap::new(),
        })
    }

    fn ask(&mut self, path: &str, ask: &Ask<'_>, until: Instant) -> Result<Answer, PluginError> {
        let url = format!("{}/compute/v1/{path}", self.endpoint);
        if self.endpoint.starts_with("http://") {
            return ask_server(&self.agent, &url, ask, &[], until);
        }
        let token = format!("Bearer {}", self.access.token(&self.agent, until)?);
        ask_server(&self.agent, &url, ask, &[("Authorization", &token)], until)
    }

    /// The members of a group.
    pub(crate) fn members(
        &mut self,
        group: &Group,
        until: Instant,
    ) -> Result<Vec<Member>, PluginError> {
        let mut members = Vec::new();
        let mut token = String::new();
        loop {
            let path = format!(
                "{}/listManagedInstances?maxResults=500{token}",
                group.path()
            );
            let answer = self.ask(&path, &Ask::Post, until)?;
            if answer.status == 404 {
                return Err(PluginError::unknown_group(format!(
                    "no managed instance group {group}; check project, place and name"
                )));
            }
            if answer.status != 200 {
                return Err(failure::of(
                    &format!("listManagedInstances of {group}"),
                    &answer,
                ));
            }
            let page = answer.body["managedInstances"]
                .as_array()
                .into_iter()
                .flatten();
            members.extend(page.filter_map(member));
            token = match text(&answer.body, "nextPageToken") {
                "" => return Ok(members),
                next => format!("&pageToken={}", encoded(next)),
            };
        }
    }

    /// Instances of a zone, by number. Those that are gone in the meantime are not there.
    pub(crate) fn machines(
        &mut self,
        project: &str,
        zone: &str,
        names: &[&str],
        until: Instant,
    ) -> Result<BTreeMap<String, Machine>, PluginError> {
        let place = format!("projects/{project}/zones/{zone}/instances");
        let mut found = BTreeMap::new();
        if names.len() < MANY {
            for name in names {
                let answer =
                    self.ask(&format!("{place}/{name}?fields={FIELDS}"), &Ask::Get, until)?;
                match answer.status {
                    200 => found.extend(machine(&answer.body)),
                    404 => {}
                    _ => {
                        return Err(failure::of(
                            &format!("instance {name} in zone {zone}"),
                            &answer,
                        ));
                    }
                }
            }
            return Ok(found);
        }
        let mut token = String::new();
        loop {
            let path =
                format!("{place}?maxResults=500&fields=nextPageToken,items({FIELDS}){token}");
            let answer = self.ask(&path, &Ask::Get, until)?;
            if answer.status != 200 {
                return Err(failure::of(&format!("instances of zone {zone}"), &answer));
            }
            found.extend(
                answer.body["items"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(machine),
            );
            token = match text(&answer.body, "nextPageToken") {
                "" => return Ok(found),
                next => format!("&pageToken={}", encoded(next)),
            };
        }
    }

    /// Accelerators that a machine type has by itself.
    pub(crate) fn accelerators(
        &mut self,
        project: &str,
        zone: &str,
        kind: &str,
        until: Instant,
    ) -> Result<u32, PluginError> {
        let key = format!("{zone}/{kind}");
        if let Some(count) = self.types.get(&key) {
            return Ok(*count);
        }
        let path = format!("projects/{project}/zones/{zone}/machineTypes/{kind}");
        let answer = self.ask(&path, &Ask::Get, until)?;
        let count = match answer.status {
            200 => sum(&answer.body["accelerators"], "guestAcceleratorCount"),
            404 => 0,
            _ => {
                return Err(failure::of(
                    &format!("machine type {kind} in zone {zone}"),
                    &answer,
                ));
            }
        };
        self.types.insert(key, count);
        Ok(count)
    }
}

fn member(value: &Value) -> Option<Member> {
    // .../zones/ZONE/instances/NAME
    let mut path = text(value, "instance").rsplit('/');
    let name = path.next()?.to_owned();
    let zone = path.nth(1)?.to_owned();
    let health = value["instanceHealth"].as_array().into_iter().flatten();
    Some(Member {
        number: text(value, "id").to_owned(),
        name,
        zone,
        status: text(value, "instanceStatus").to_owned(),
        action: text(value, "currentAction").to_owned(),
        health: health
            .map(|one| text(one, "detailedHealthState").to_owned())
            .collect(),
    })
}

fn machine(value: &Value) -> Option<(String, Machine)> {
    let number = value["id"].as_str()?.to_owned();
    let network = &value["networkInterfaces"][0];
    let owned = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let scheduling = &value["scheduling"];
    let spot = scheduling["preemptible"] == true || scheduling["provisioningModel"] == "SPOT";
    let machine = Machine {
        internal: owned(text(network, "networkIP")),
        external: owned(text(&network["accessConfigs"][0], "natIP")),
        ipv6: owned(text(network, "ipv6Address")),
        kind: text(value, "machineType")
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .to_owned(),
        spot,
        label: value["labels"][crate::host::SLOTS_LABEL]
            .as_str()
            .map(str::to_owned),
        attached: sum(&value["guestAccelerators"], "acceleratorCount"),
    };
    Some((number, machine))
}

fn sum(list: &Value, field: &str) -> u32 {
    let counts = list.as_array().into_iter().flatten();
    let counts = counts.filter_map(|one| u32::try_from(one[field].as_u64()?).ok());
    counts.fold(0, u32::saturating_add)
}

/// A page token in a query: letters and digits as they are.
fn encoded(token: &str) -> String {
    let byte = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    token.bytes().map(byte).collect()
}
