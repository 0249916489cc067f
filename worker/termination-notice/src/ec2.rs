//! Notices of EC2, by version 2 of its instance metadata service (IMDSv2).
//!
//! The paths and their meaning are those of the user guides of EC2 ("Spot Instance interruption notices",
//! "EC2 instance rebalance recommendations") and of Auto Scaling ("Retrieve the target lifecycle state through
//! instance metadata"). A spot instance ends two minutes after its notice.

use std::time::Duration;

use elasticrun_protocol::{Notice, NoticeKind};
use hyper::{Method, Uri};
use jiff::Timestamp;
use serde::Deserialize;
use tokio::time::{Instant, sleep};

use crate::{
    http::{Error, Reachability, Service},
    sender::Sender,
    timestamps,
};

const POLL_INTERVAL: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(2);

/// The requested life time of a token in seconds, and the age at which it is replaced.
const TOKEN_SECONDS: &str = "21600";
const TOKEN_AGE: Duration = Duration::from_secs(18_000);

/// Reads the text of a path that exists.
type Read = fn(&str, Timestamp) -> Option<Notice>;

/// Where notices are, how they are read, and the name of a path that fails.
const PATHS: [(&str, Read, &str); 3] = [
    (
        "/latest/meta-data/spot/instance-action",
        interruption,
        "spot/instance-action of EC2's metadata service",
    ),
    (
        "/latest/meta-data/autoscaling/target-lifecycle-state",
        lifecycle,
        "autoscaling/target-lifecycle-state of EC2's metadata service",
    ),
    (
        "/latest/meta-data/events/recommendations/rebalance",
        rebalance,
        "events/recommendations/rebalance of EC2's metadata service",
    ),
];

/// Polls the service until the receiver is gone. A path that fails hides no notice of another one.
pub(crate) async fn watch(base: Uri, sender: Sender) {
    let mut source = Ec2 {
        service: Service::new(&base),
        token: None,
    };
    let mut reachable = Reachability::new("EC2's metadata service");
    let mut paths = PATHS.map(|(path, read, name)| (path, read, Reachability::new(name)));
    let mut reported = Vec::new();
    while !sender.is_closed() {
        if reachable.record(source.token().await).is_some() {
            for (path, read, reachable) in &mut paths {
                let text = reachable.record(source.get(path).await).flatten();
                let notice = text.and_then(|text| read(&text, Timestamp::now()));
                if let Some(notice) = notice.filter(|notice| !reported.contains(&notice.kind)) {
                    reported.push(notice.kind);
                    sender.send(notice).await;
                }
            }
        }
        sleep(POLL_INTERVAL).await;
    }
}

struct Ec2 {
    service: Service,
    token: Option<(String, Instant)>,
}

#[derive(Deserialize)]
struct InstanceAction {
    action: String,
    time: String,
}

impl Ec2 {
    /// Reads a path. Returns `None` if it does not exist, which is usual.
    async fn get(&mut self, path: &str) -> Result<Option<String>, Error> {
        let token = self.token().await?;
        let headers = [("x-aws-ec2-metadata-token", token.as_str())];
        match self.service.get(path, &headers, TIMEOUT).await {
            // The token is not valid any more, for example after a stop and start of the instance.
            Err(Error::Status(status)) if status.as_u16() == 401 => {
                self.token = None;
                Err(Error::Status(status))
            }
            answer => Ok(answer?.map(|answer| answer.text)),
        }
    }

    async fn token(&mut self) -> Result<String, Error> {
        if let Some((token, since)) = &self.token
            && since.elapsed() < TOKEN_AGE
        {
            return Ok(token.clone());
        }
        let headers = [("x-aws-ec2-metadata-token-ttl-seconds", TOKEN_SECONDS)];
        let path = "/latest/api/token";
        let answer = self
            .service
            .request(Method::PUT, path, &headers, String::new(), TIMEOUT)
            .await?;
        let answer = answer.ok_or_else(|| Error::Unreadable("it has no tokens".into()))?;
        self.token = Some((answer.text.clone(), Instant::now()));
        Ok(answer.text)
    }
}

/// Reads an action such as `{"action": "terminate", "time": "2026-01-05T08:22:00Z"}`. Hibernation counts, since it stops
/// the processes as well.
fn interruption(text: &str, now: Timestamp) -> Option<Notice> {
    let action: InstanceAction = match serde_json::from_str(text) {
        Ok(action) => action,
        Err(error) => {
            tracing::warn!(%error, %text, "EC2's instance-action cannot be read; taken as an interruption");
            InstanceAction {
                action: "terminate".into(),
                time: String::new(),
            }
        }
    };
    matches!(action.action.as_str(), "terminate" | "stop" | "hibernate").then(|| Notice {
        kind: NoticeKind::SpotInterruption,
        within: timestamps::until_iso(&action.time, now),
    })
}

/// Reads a target state: `InService`, `Terminated`, `Standby`, `Detached` or `Warmed:...`.
fn lifecycle(text: &str, _: Timestamp) -> Option<Notice> {
    let target = text.trim();
    let leaves = matches!(target, "Terminated" | "Standby") || target.starts_with("Warmed:");
    leaves.then_some(Notice {
        kind: NoticeKind::TargetLifecycleState,
        within: None,
    })
}

/// The path exists only while EC2 recommends to replace the instance.
fn rebalance(_: &str, _: Timestamp) -> Option<Notice> {
    let kind = NoticeKind::RebalanceRecommendation;
    Some(Notice { kind, within: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interruption_has_its_time() {
        let now = "2026-01-05T08:20:00Z".parse().unwrap();
        let notice = interruption(
            r#"{"action":"terminate","time":"2026-01-05T08:22:00Z"}"#,
            now,
        );
        assert_eq!(notice.unwrap().within, Some(Duration::from_secs(120)));
        assert!(interruption(r#"{"action":"none","time":""}"#, now).is_none());
        assert_eq!(
            interruption("gibberish", now).unwrap().within,
            None,
            "better once too often"
        );
    }

    #[test]
    fn target_states_that_end_the_instance_are_notices() {
        let lifecycle = |target| lifecycle(target, Timestamp::UNIX_EPOCH);
        assert!(lifecycle("InService").is_none());
        assert!(
            lifecycle("Detached").is_none(),
            "it stays, only without its group"
        );
        for target in ["Terminated\n", "Standby", "Warmed:Stopped"] {
            assert!(lifecycle(target).is_some(), "{target}");
        }
    }
}
