//! Notices of Compute Engine, by its metadata server.
//!
//! The paths and their meaning are those of its documentation ("Preemptible VM instances", "Query the metadata
//! server for maintenance event notices", "wait_for_change"). A preempted instance has 30 seconds.

use std::time::Duration;

use elasticrun_protocol::{Notice, NoticeKind};
use hyper::Uri;
use tokio::time::sleep;

use crate::{
    http::{Answer, Error, Reachability, Service},
    sender::Sender,
};

/// How long the server delays its answer while nothing changes.
const LONG_POLL: Duration = Duration::from_secs(60);
/// How much longer to wait for the answer.
const SLACK: Duration = Duration::from_secs(5);
/// The pause after a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The time from the notice to the end of the instance, as documented for preemption.
const PREEMPTED_WITHIN: Duration = Duration::from_secs(30);
/// The time from the notice to the end of an instance that is not migrated.
const MAINTENANCE_WITHIN: Duration = Duration::from_secs(60);

/// Waits for changes of both values until the receiver is gone.
pub(crate) async fn watch(base: Uri, sender: Sender) {
    let service = Service::new(&base);
    let preempted = follow(&service, "preempted", &sender, preempted);
    let maintenance = follow(&service, "maintenance-event", &sender, maintenance);
    tokio::join!(preempted, maintenance);
}

async fn follow(
    service: &Service,
    name: &'static str,
    sender: &Sender,
    read: fn(&str) -> Option<Notice>,
) {
    let mut reachable = Reachability::new("Compute Engine's metadata server");
    let (mut etag, mut last) = (None, None);
    while !sender.is_closed() {
        let answer = change(service, name, etag.as_deref()).await;
        let Some(answer) = reachable.record(answer) else {
            sleep(RETRY_INTERVAL).await;
            continue;
        };
        let Some(Answer { text, etag: seen }) = answer else {
            // The server has no such value. Ask again rarely.
            sleep(LONG_POLL).await;
            continue;
        };
        if seen.is_none() {
            sleep(RETRY_INTERVAL).await;
        }
        etag = seen;
        let text = text.trim().to_owned();
        // The first answer comes at once, and later ones may repeat the value.
        if last.as_ref() != Some(&text) {
            if let Some(notice) = read(&text) {
                sender.send(notice).await;
            }
            last = Some(text);
        }
    }
}

/// Returns the value at once if it is not the one of `etag`; else once it changes, or after [`LONG_POLL`].
async fn change(
    service: &Service,
    name: &str,
    etag: Option<&str>,
) -> Result<Option<Answer>, Error> {
    let path = format!("/computeMetadata/v1/instance/{name}");
    let path = match etag {
        Some(etag) => format!(
            "{path}?wait_for_change=true&timeout_sec={}&last_etag={etag}",
            LONG_POLL.as_secs()
        ),
        None => path,
    };
    service
        .get(&path, &[("metadata-flavor", "Google")], LONG_POLL + SLACK)
        .await
}

fn preempted(text: &str) -> Option<Notice> {
    text.eq_ignore_ascii_case("true").then_some(Notice {
        kind: NoticeKind::Preempted,
        within: Some(PREEMPTED_WITHIN),
    })
}

/// Reads `NONE`, `MIGRATE_ON_HOST_MAINTENANCE` (the instance stays) or `TERMINATE_ON_HOST_MAINTENANCE`.
fn maintenance(text: &str) -> Option<Notice> {
    (text == "TERMINATE_ON_HOST_MAINTENANCE").then_some(Notice {
        kind: NoticeKind::Maintenance,
        within: Some(MAINTENANCE_WITHIN),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_ends_the_instance_is_a_notice() {
        assert!(preempted("FALSE").is_none());
        assert_eq!(
            preempted("TRUE").unwrap().within,
            Some(Duration::from_secs(30))
        );
        assert!(maintenance("NONE").is_none());
        assert!(maintenance("MIGRATE_ON_HOST_MAINTENANCE").is_none());
        assert!(maintenance("TERMINATE_ON_HOST_MAINTENANCE").is_some());
    }
}
