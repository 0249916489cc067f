//! Requests to Compute Engine and their answers.

use std::{collections::BTreeMap, time::Instant};

use elasticrun_plugin_http::{Answer, Ask, ask as ask_server};
use elasticrun_plugin_sdk::PluginError;
use serde_json::Value;
use ureq::Agent;

use crate::{
    access::Access,
    error::{classify, text},
    group::Group,
};

/// The label with the number of workers of an instance. (Labels of this cloud have no colons.)
pub(crate) const SLOTS_LABEL: &str = "elasticrun-slots";

const DEFAULT_ENDPOINT: &str = "https://compute.googleapis.com";
/// With this many new instances in a zone, one request lists the zone instead of a request per instance.
const LIST_FROM: usize = 10;
/// The requested fields of an instance.
const FIELDS: &str = "id,name,machineType,labels,scheduling(provisioningModel,preemptible),\
                      guestAccelerators(acceleratorCount),networkInterfaces(networkIP,ipv6Address,accessConfigs(natIP))";

/// An instance of a group.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Member {
    /// Its number. Empty until it is created.
    pub(crate) number: String,
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

/// A client of Compute Engine.
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
        let endpoint = endpoint.unwrap_or_else(|| DEFAULT_ENDPOINT.into());
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
                return Err(classify(
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

    /// Instances of a zone, by number. Deleted instances are left out.
    pub(crate) fn instances(
        &mut self,
        project: &str,
        zone: &str,
        names: &[&str],
        until: Instant,
    ) -> Result<BTreeMap<String, Instance>, PluginError> {
        let place = format!("projects/{project}/zones/{zone}/instances");
        let mut found = BTreeMap::new();
        if names.len() < LIST_FROM {
            for name in names {
                let answer =
                    self.ask(&format!("{place}/{name}?fields={FIELDS}"), &Ask::Get, until)?;
                match answer.status {
                    200 => found.extend(instance(&answer.body)),
                    404 => {}
                    _ => {
                        return Err(classify(
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
                return Err(classify(&format!("instances of zone {zone}"), &answer));
            }
            found.extend(
                answer.body["items"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(instance),
            );
            token = match text(&answer.body, "nextPageToken") {
                "" => return Ok(found),
                next => format!("&pageToken={}", encoded(next)),
            };
        }
    }

    /// Accelerators of a machine type.
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
                return Err(classify(
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

fn instance(value: &Value) -> Option<(String, Instance)> {
    let number = value["id"].as_str()?.to_owned();
    let network = &value["networkInterfaces"][0];
    let owned = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let scheduling = &value["scheduling"];
    let spot = scheduling["preemptible"] == true || scheduling["provisioningModel"] == "SPOT";
    let instance = Instance {
        internal: owned(text(network, "networkIP")),
        external: owned(text(&network["accessConfigs"][0], "natIP")),
        ipv6: owned(text(network, "ipv6Address")),
        kind: text(value, "machineType")
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .to_owned(),
        spot,
        label: value["labels"][SLOTS_LABEL].as_str().map(str::to_owned),
        attached: sum(&value["guestAccelerators"], "acceleratorCount"),
    };
    Some((number, instance))
}

fn sum(list: &Value, field: &str) -> u32 {
    let counts = list.as_array().into_iter().flatten();
    let counts = counts.filter_map(|one| u32::try_from(one[field].as_u64()?).ok());
    counts.fold(0, u32::saturating_add)
}

/// A page token, percent-encoded for a query.
fn encoded(token: &str) -> String {
    let byte = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    token.bytes().map(byte).collect()
}
