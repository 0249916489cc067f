//! SIGUSR1 to the agent is a notice. Slurm can be configured to send it before the end of an allocation.
//!
//! A signal carries no time, so the time that is left is a setting, or comes from Slurm.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use elasticrun_protocol::{Notice, NoticeKind};
use tokio::signal::unix::{SignalKind, signal};

use crate::sender::Sender;

/// The end of the job, in seconds since 1970. Recent versions of Slurm set it.
const JOB_END: &str = "SLURM_JOB_END_TIME";

/// Waits for signals until the task is aborted. The host stays for `known` after a signal.
pub(crate) async fn watch(known: Option<Duration>, sender: Sender) {
    let mut signals = match signal(SignalKind::user_defined1()) {
        Ok(signals) => signals,
        Err(error) => {
            tracing::warn!(%error, "SIGUSR1 cannot be handled: it is no notice");
            return;
        }
    };
    while signals.recv().await.is_some() {
        let kind = NoticeKind::Signal;
        let job_end = std::env::var(JOB_END).ok();
        let within = time_left(known, job_end.as_deref(), SystemTime::now());
        sender.send(Notice { kind, within }).await;
    }
}

/// How long the host stays after a signal at `now`. None if that is not known, or if the job should have ended.
fn time_left(known: Option<Duration>, job_end: Option<&str>, now: SystemTime) -> Option<Duration> {
    known.or_else(|| {
        let seconds = job_end?.trim().parse().ok()?;
        let end = UNIX_EPOCH.checked_add(Duration::from_secs(seconds))?;
        end.duration_since(now).ok().filter(|left| !left.is_zero())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_counts_before_the_end_of_the_job() {
        let now = UNIX_EPOCH + Duration::from_secs(1000);
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(time_left(seconds(60), Some("1120"), now), seconds(60));
        assert_eq!(time_left(None, Some("1120"), now), seconds(120));
        assert_eq!(time_left(None, None, now), None);
        for past_or_odd in ["1000", "999", "", "soon", "-1", "18446744073709551615"] {
            assert_eq!(
                time_left(None, Some(past_or_odd), now),
                None,
                "{past_or_odd}"
            );
        }
    }
}
