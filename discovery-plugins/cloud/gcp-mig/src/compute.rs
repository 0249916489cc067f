//! Requests to Compute Engine and their answers.

use std::collections::BTreeMap;

use elasticrun_plugin_sdk::PluginError;
use google_cloud_compute_v1::model::ManagedInstance;
use google_cloud_gax::{Result as Answer, paginator::ItemPaginator};

use crate::{
    access::Source,
    clients::{Clients, Managers, named},
    error::{Failure, classify},
    group::Group,
    model::{Instance, Member, accelerators, instance, member},
};

const DEFAULT_ENDPOINT: &str = "https://compute.googleapis.com";
/// With this many new instances in a zone, one request lists the zone instead of a request per instance.
const LIST_FROM: usize = 10;
/// Size of a page.
const PAGE: u32 = 500;

/// A client of Compute Engine for a group.
#[derive(Debug)]
pub(crate) struct Compute {
    group: Group,
    endpoint: Option<String>,
    clients: Option<Clients>,
    /// Accelerators of machine types, by zone and name.
    types: BTreeMap<String, u32>,
}

impl Compute {
    /// # Errors
    /// The endpoint is no URL.
    pub(crate) fn new(group: Group, endpoint: Option<String>) -> Result<Self, PluginError> {
        let is_url = |url: &&String| url.starts_with("http://") || url.starts_with("https://");
        if let Some(endpoint) = endpoint.as_ref().filter(|endpoint| !is_url(endpoint)) {
            let why = format!("endpoint: {endpoint:?} is not http://... or https://...");
            return Err(PluginError::bad_config(why));
        }
        Ok(Self {
            group,
            endpoint,
            clients: None,
            types: BTreeMap::new(),
        })
    }

    /// The server, for messages.
    pub(crate) fn server(&self) -> &str {
        self.endpoint.as_deref().unwrap_or(DEFAULT_ENDPOINT)
    }

    /// Reads the credentials, unless they are known. Returns whether they are new.
    pub(crate) async fn connect(&mut self) -> Result<bool, PluginError> {
        if self.clients.is_some() {
            return Ok(false);
        }
        let clients = Clients::new(self.endpoint.as_deref(), &self.group.location).await?;
        self.clients = Some(clients);
        Ok(true)
    }

    /// Forgets the credentials, as those whose token is refused before its end.
    pub(crate) fn disconnect(&mut self) {
        self.clients = None;
    }

    /// Where the credentials come from, if they are known.
    pub(crate) fn source(&self) -> Option<Source> {
        self.clients.as_ref().map(|clients| clients.source)
    }

    /// The clients, and the server for messages.
    fn connected(&self) -> Result<(&Clients, &str), PluginError> {
        match &self.clients {
            Some(clients) => Ok((clients, self.server())),
            None => Err(PluginError::retryable("not connected")),
        }
    }

    /// The members of the group.
    pub(crate) async fn members(&self) -> Result<Vec<Member>, Failure> {
        let (clients, server) = self.connected()?;
        let members = list_members(&clients.managers, &self.group).await;
        let members = members.map_err(|error| match error.http_status_code() {
            Some(404) => PluginError::unknown_group(format!(
                "no managed instance group {}; check project, place and name",
                self.group
            ))
            .into(),
            _ => classify(
                &format!("listManagedInstances of {}", self.group),
                server,
                &error,
            ),
        })?;
        Ok(members.into_iter().filter_map(member).collect())
    }

    /// Instances of a zone, by number. Deleted instances are left out.
    pub(crate) async fn instances(
        &self,
        zone: &str,
        names: &[&str],
    ) -> Result<BTreeMap<u64, Instance>, Failure> {
        let (clients, server) = self.connected()?;
        let project = &self.group.project;
        let mut found = BTreeMap::new();
        if names.len() >= LIST_FROM {
            let request = named(clients.instances.list())
                .set_project(project)
                .set_zone(zone)
                .set_max_results(PAGE);
            let mut items = request.by_item();
            while let Some(item) = items.next().await {
                let item = item.map_err(|error| {
                    classify(&format!("instances of zone {zone}"), server, &error)
                });
                found.extend(instance(item?));
            }
            return Ok(found);
        }
        for name in names {
            let request = named(clients.instances.get())
                .set_project(project)
                .set_zone(zone)
                .set_instance(*name);
            match request.send().await {
                Ok(item) => found.extend(instance(item)),
                Err(error) if error.http_status_code() == Some(404) => {}
                Err(error) => {
                    let what = format!("instance {name} in zone {zone}");
                    return Err(classify(&what, server, &error));
                }
            }
        }
        Ok(found)
    }

    /// Accelerators of a machine type.
    pub(crate) async fn accelerators(&mut self, zone: &str, kind: &str) -> Result<u32, Failure> {
        let key = format!("{zone}/{kind}");
        if let Some(count) = self.types.get(&key) {
            return Ok(*count);
        }
        let (clients, server) = self.connected()?;
        let request = named(clients.types.get())
            .set_project(&self.group.project)
            .set_zone(zone)
            .set_machine_type(kind);
        let count = match request.send().await {
            Ok(found) => accelerators(&found),
            Err(error) if error.http_status_code() == Some(404) => 0,
            Err(error) => {
                let what = format!("machine type {kind} in zone {zone}");
                return Err(classify(&what, server, &error));
            }
        };
        self.types.insert(key, count);
        Ok(count)
    }
}

/// All pages of the members of a group.
async fn list_members(managers: &Managers, group: &Group) -> Answer<Vec<ManagedInstance>> {
    let mut members = Vec::new();
    let place = group.location.name();
    match managers {
        Managers::Zonal(client) => {
            let request = named(client.list_managed_instances())
                .set_project(&group.project)
                .set_zone(place)
                .set_instance_group_manager(&group.name)
                .set_max_results(PAGE);
            let mut items = request.by_item();
            while let Some(item) = items.next().await {
                members.push(item?);
            }
        }
        Managers::Regional(client) => {
            let request = named(client.list_managed_instances())
                .set_project(&group.project)
                .set_region(place)
                .set_instance_group_manager(&group.name)
                .set_max_results(PAGE);
            let mut items = request.by_item();
            while let Some(item) = items.next().await {
                members.push(item?);
            }
        }
    }
    Ok(members)
}
