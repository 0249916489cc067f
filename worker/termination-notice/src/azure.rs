//! Notices of Azure: scheduled events of its instance metadata service, approved once the host is left.
//!
//! Paths, fields and the approval are those of its documentation ("Scheduled Events for Linux VMs"). Asking turns
//! the service on for a machine. An event that is approved begins at once instead of at its time.

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
    http::{Error, Reachable, Service},
    moment,
    watch::Sender,
};

const PERIOD: Duration = Duration::from_secs(1);
/// The first question to a machine may take the service minutes; it is asked again.
const PATIENCE: Duration = Duration::from_secs(5);
const EVENTS: &str = "/metadata/scheduledevents?api-version=2020-07-01";
const NAME: &str = "/metadata/instance/compute/name?api-version=2021-02-01&format=text";
const HEADERS: [(&str, &str); 1] = [("metadata", "true")];

/// The events that were told and are to be approved.
#[derive(Clone, Debug)]
pub(crate) struct Approval {
    service: Service,
    events: Arc<Mutex<Vec<String>>>,
}

impl Approval {
    pub(crate) fn of(at: &Uri) -> Self {
        Self {
            service: Service::at(at),
            events: Arc::default(),
        }
    }

    fn add(&self, event: String) {
        self.events
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(event);
    }

    /// The host is left: the events may begin.
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
        let asked = self
            .service
            .ask(Method::POST, EVENTS, &HEADERS, body, PATIENCE);
        if let Err(error) = asked.await {
            tracing::warn!(
                "a scheduled event of Azure is not approved, and begins at its time: {error}"
            );
        }
    }
}

/// Asks as long as somebody listens.
pub(crate) async fn watch(approval: Approval, sender: Sender) {
    let service = approval.service.clone();
    let mut reachable = Reachable::new("Azure's metadata service");
    let (mut name, mut told) = (None, Vec::new());
    while !sender.is_closed() {
        if name.is_none() {
            name = reachable.note(own_name(&service).await);
        }
        if let Some(own) = &name
            && let Some(document) = reachable.note(events(&service).await)
        {
            for event in document.events.into_iter().filter(|event| event.ends(own)) {
                if !told.contains(&event.id) {
                    let within = moment::until_rfc2822(&event.not_before, Timestamp::now());
                    told.push(event.id.clone());
                    approval.add(event.id);
                    let kind = NoticeKind::ScheduledEvent;
                    sender.tell(Notice { kind, within }).await;
                }
            }
        }
        sleep(PERIOD).await;
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
    /// Whether it ends or restarts the machine of this name. `Freeze` only stops it for some seconds.
    fn ends(&self, own: &str) -> bool {
        let ends = matches!(
            self.kind.as_str(),
            "Preempt" | "Terminate" | "Reboot" | "Redeploy"
        );
        ends && self.resources.iter().any(|name| name == own)
    }
}

async fn own_name(service: &Service) -> Result<String, Error> {
    let answer = service.get(NAME, &HEADERS, PATIENCE).await?;
    let answer = answer.ok_or_else(|| Error::Unreadable("it does not know this machine".into()))?;
    Ok(answer.text.trim().to_owned())
}

async fn events(service: &Service) -> Result<Document, Error> {
    match service.get(EVENTS, &HEADERS, PATIENCE).await? {
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
