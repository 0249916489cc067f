//! Notices of Azure: scheduled events of its instance metadata service. They are approved once the job has left the host.
//!
//! Paths, fields and the approval are those of its documentation ("Scheduled Events for Linux VMs"). The first request
//! turns the service on for a machine. An approved event begins at once instead of at its time.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use elasticrun_protocol::{Notice, NoticeKind};
use hyper::{Method, Uri};
use jiff::Timestamp;
use serde::Deserialize;
use tokio::time::sleep;

use crate::{
    http::{Error, Reachability, Service},
    sender::Sender,
    timestamps,
};

const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The time limit of a request. The first request for a machine may take minutes, and is repeated.
const TIMEOUT: Duration = Duration::from_secs(5);
const EVENTS: &str = "/metadata/scheduledevents?api-version=2020-07-01";
const NAME: &str = "/metadata/instance/compute/name?api-version=2021-02-01&format=text";
const HEADERS: [(&str, &str); 1] = [("metadata", "true")];

/// The reported events that wait for approval.
#[derive(Clone, Debug)]
pub(crate) struct Approval {
    service: Service,
    events: Arc<Mutex<Vec<String>>>,
}

impl Approval {
    pub(crate) fn new(base: &Uri) -> Self {
        Self {
            service: Service::new(base),
            events: Arc::default(),
        }
    }

    fn add(&self, event: String) {
        self.events
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(event);
    }

    /// Approves all reported events, once the job has left the host.
    pub(crate) async fn approve(&self) {
        let events =
            std::mem::take(&mut *self.events.lock().unwrap_or_else(PoisonError::into_inner));
        if events.is_empty() {
            return;
        }
        let starts: Vec<_> = events
            .iter()
            .map(|id| serde_json::json!({"EventId": id}))
            .collect();
        let body = serde_json::json!({ "StartRequests": starts }).to_string();
        let answer = self
            .service
            .request(Method::POST, EVENTS, &HEADERS, body, TIMEOUT);
        if let Err(error) = answer.await {
            tracing::warn!(
                "a scheduled event of Azure is not approved, and begins at its time: {error}"
            );
        }
    }
}

/// Polls the service until the receiver is gone.
pub(crate) async fn watch(approval: Approval, sender: Sender) {
    let service = approval.service.clone();
    let mut reachable = Reachability::new("Azure's metadata service");
    let (mut name, mut reported) = (None, Vec::new());
    while !sender.is_closed() {
        if name.is_none() {
            name = reachable.record(machine_name(&service).await);
        }
        if let Some(name) = &name
            && let Some(document) = reachable.record(events(&service).await)
        {
            for event in document.events.into_iter().filter(|event| event.ends(name)) {
                if !reported.contains(&event.id) {
                    let within = timestamps::until_rfc2822(&event.not_before, Timestamp::now());
                    reported.push(event.id.clone());
                    approval.add(event.id);
                    let kind = NoticeKind::ScheduledEvent;
                    sender.send(Notice { kind, within }).await;
                }
            }
        }
        sleep(POLL_INTERVAL).await;
    }
}

#[derive(Debug, Deserialize)]
struct Document {
    #[serde(rename = "Events", default)]
    events: Vec<Event>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Event {
    #[serde(rename = "EventId")]
    id: String,
    #[serde(rename = "EventType", default)]
    kind: String,
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    not_before: String,
}

impl Event {
    /// Whether the event ends or restarts the machine of this name. `Freeze` only suspends it for some seconds.
    fn ends(&self, machine: &str) -> bool {
        let ends = matches!(
            self.kind.as_str(),
            "Preempt" | "Terminate" | "Reboot" | "Redeploy"
        );
        ends && self.resources.iter().any(|name| name == machine)
    }
}

async fn machine_name(service: &Service) -> Result<String, Error> {
    let answer = service.get(NAME, &HEADERS, TIMEOUT).await?;
    let answer = answer.ok_or_else(|| Error::Unreadable("it does not know this machine".into()))?;
    Ok(answer.text.trim().to_owned())
}

async fn events(service: &Service) -> Result<Document, Error> {
    match service.get(EVENTS, &HEADERS, TIMEOUT).await? {
        Some(answer) => {
            serde_json::from_str(&answer.text).map_err(|error| Error::Unreadable(error.to_string()))
        }
        None => Ok(Document { events: Vec::new() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_events_that_end_this_machine_count() {
        let text = r#"{"DocumentIncarnation": 2, "Events": [
            {"EventId": "a", "EventType": "Preempt", "ResourceType": "VirtualMachine", "Resources": ["me", "you"],
             "EventStatus": "Scheduled", "NotBefore": "Mon, 05 Jan 2026 18:29:47 GMT", "DurationInSeconds": -1},
            {"EventId": "b", "EventType": "Freeze", "Resources": ["me"]},
            {"EventId": "c", "EventType": "Reboot", "Resources": ["you"], "NotBefore": ""}]}"#;
        let document: Document = serde_json::from_str(text).unwrap();
        let mine: Vec<_> = document
            .events
            .iter()
            .filter(|e| e.ends("me"))
            .map(|e| &e.id)
            .collect();
        assert_eq!(mine, ["a"]);
    }
}
