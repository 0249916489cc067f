//! Termination hooks: the duration of Terminating:Wait, and its completion after the drain.
//!
//! A terminating member waits for its group's hook until the hook's heartbeat timeout after the last heartbeat. With
//! `complete_hook`, heartbeats extend the wait while the job drains the host, and the wait is completed after the drain.
//! Failures here do not fail a poll, so that the job learns of a drain even if the hook is unreachable.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    time::{Duration, Instant},
};

use aws_sdk_autoscaling::{error::ProvideErrorMetadata, types::LifecycleState};
use aws_smithy_runtime_api::client::{orchestrator::HttpResponse, result::SdkError};
use elasticrun_plugin_sdk::{PluginError, tracing};

use crate::{account::Account, error::classify, groups::Member, pace::INTERVAL};

const TERMINATING: &str = "autoscaling:EC2_INSTANCE_TERMINATING";
/// Time limit of extensions, so that a host that is never drained does not cost money for days.
const MAX_EXTENSION: Duration = Duration::from_secs(3600);

/// Known hooks, and the members that wait for one.
#[derive(Debug, Default)]
pub(crate) struct Hooks {
    /// The termination hooks by group. A group is queried when first needed.
    by_group: BTreeMap<String, Vec<Hook>>,
    /// Members in Terminating:Wait.
    waits: BTreeMap<String, Wait>,
    /// Hosts that the job has drained, as long as they are members.
    drained: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq)]
struct Hook {
    name: String,
    /// The heartbeat timeout.
    heartbeat: Duration,
}

#[derive(Debug)]
struct Wait {
    group: String,
    /// Time of the first observation.
    first_seen: Instant,
    /// Lower bound of the time of the last heartbeat, or of the start of the wait.
    renewed: Instant,
    completed: bool,
}

impl Hooks {
    /// Queries the hooks of groups whose hooks are unknown.
    ///
    /// # Errors
    /// The call fails.
    pub(crate) async fn query(
        &mut self,
        account: &Account,
        groups: impl Iterator<Item = &str>,
    ) -> Result<(), PluginError> {
        for group in groups {
            if self.by_group.contains_key(group) {
                continue;
            }
            let answer = account
                .scaling
                .describe_lifecycle_hooks()
                .auto_scaling_group_name(group)
                .send()
                .await
                .map_err(|error| classify("DescribeLifecycleHooks", &account.place, error))?;
            let hooks = answer.lifecycle_hooks().iter();
            let hooks = hooks.filter(|hook| hook.lifecycle_transition() == Some(TERMINATING));
            let hooks = hooks.filter_map(|hook| {
                let seconds = u64::try_from(hook.heartbeat_timeout().unwrap_or(3600));
                Some(Hook {
                    name: hook.lifecycle_hook_name()?.to_owned(),
                    heartbeat: Duration::from_secs(seconds.unwrap_or(0)),
                })
            });
            self.by_group.insert(group.to_owned(), hooks.collect());
        }
        Ok(())
    }

    /// Checks that each group has exactly one termination hook to complete. `name` selects it.
    pub(crate) fn check(&self, name: Option<&str>) -> Result<(), PluginError> {
        for (group, hooks) in &self.by_group {
            if let Err(why) = choose(hooks, name) {
                return Err(PluginError::bad_config(format!(
                    "complete_hook: group {group} {why}"
                )));
            }
        }
        Ok(())
    }

    /// Records that the job has drained a host.
    pub(crate) fn drained(&mut self, id: String) {
        self.drained.insert(id);
    }

    /// Updates the waiting members. `before` is the time of the last query: a new wait may have started then.
    pub(crate) fn update(&mut self, members: &[Member], before: Instant) {
        let now = Instant::now();
        let ids: BTreeSet<_> = members.iter().map(|member| member.id.as_str()).collect();
        self.drained.retain(|id| ids.contains(id.as_str()));
        let mut known = std::mem::take(&mut self.waits);
        for member in members {
            if member.life == LifecycleState::TerminatingWait {
                let wait = known.remove(&member.id).unwrap_or_else(|| Wait {
                    group: member.group.clone(),
                    first_seen: now,
                    renewed: before,
                    completed: false,
                });
                self.waits.insert(member.id.clone(), wait);
            }
        }
    }

    /// The groups with a waiting member.
    pub(crate) fn waiting_groups(&self) -> BTreeSet<String> {
        self.waits.values().map(|wait| wait.group.clone()).collect()
    }

    /// Time until a member's wait ends by itself. `None` if it does not wait, or its hook is unknown. Of several hooks, the
    /// shortest counts.
    pub(crate) fn deadline(&self, id: &str) -> Option<Duration> {
        let wait = self.waits.get(id)?;
        let hooks = self.by_group.get(&wait.group)?;
        let shortest = hooks.iter().map(|hook| hook.heartbeat).min()?;
        Some(shortest.saturating_sub(wait.renewed.elapsed()))
    }

    /// Completes the waits of drained hosts, and extends the others before they time out.
    pub(crate) async fn serve(&mut self, account: &Account, name: Option<&str>) {
        for (id, wait) in &mut self.waits {
            let hooks = self
                .by_group
                .get(&wait.group)
                .map_or(&[][..], Vec::as_slice);
            let Ok(hook) = choose(hooks, name) else {
                continue;
            };
            if wait.completed {
                continue;
            }
            let result = if self.drained.contains(id) {
                let result = complete(account, id, wait, hook).await;
                wait.completed |= result.is_ok();
                result
            } else if is_due(
                hook.heartbeat,
                wait.renewed.elapsed(),
                wait.first_seen.elapsed(),
            ) {
                let now = Instant::now();
                let result = extend(account, id, wait, hook).await;
                if result.is_ok() {
                    wait.renewed = now;
                }
                result
            } else {
                Ok(())
            };
            if let Err(error) = result {
                tracing::warn!(host = id, hook = hook.name, "{error}");
            }
        }
    }
}

/// The hook to complete among those of a group.
fn choose<'a>(hooks: &'a [Hook], name: Option<&str>) -> Result<&'a Hook, String> {
    let names: Vec<_> = hooks.iter().map(|hook| hook.name.as_str()).collect();
    match (hooks, name) {
        ([], _) => Err("has no hook for EC2_INSTANCE_TERMINATING".into()),
        (hooks, Some(name)) => (hooks.iter().find(|hook| hook.name == name)).ok_or_else(|| {
            format!(
                "has no termination hook {name}; it has {}",
                names.join(", ")
            )
        }),
        ([hook], None) => Ok(hook),
        _ => Err(format!(
            "has several termination hooks ({}); say which is ours: hook=NAME",
            names.join(", ")
        )),
    }
}

/// Whether to send a heartbeat now: half of the timeout has passed, or will have by the poll after the next.
fn is_due(heartbeat: Duration, since_renewed: Duration, since_first_seen: Duration) -> bool {
    since_first_seen < MAX_EXTENSION && since_renewed + 2 * INTERVAL >= heartbeat / 2
}

async fn complete(
    account: &Account,
    id: &str,
    wait: &Wait,
    hook: &Hook,
) -> Result<(), PluginError> {
    let answer = account
        .scaling
        .complete_lifecycle_action()
        .auto_scaling_group_name(&wait.group)
        .lifecycle_hook_name(&hook.name)
        .lifecycle_action_result("CONTINUE")
        .instance_id(id)
        .send()
        .await;
    unless_over("CompleteLifecycleAction", account, answer)
}

async fn extend(account: &Account, id: &str, wait: &Wait, hook: &Hook) -> Result<(), PluginError> {
    let answer = account
        .scaling
        .record_lifecycle_action_heartbeat()
        .auto_scaling_group_name(&wait.group)
        .lifecycle_hook_name(&hook.name)
        .instance_id(id)
        .send()
        .await;
    unless_over("RecordLifecycleActionHeartbeat", account, answer)
}

/// The result of a call for a wait. It is no failure if the wait is over: it has timed out, or another client was faster.
fn unless_over<T, E>(
    call: &str,
    account: &Account,
    answer: Result<T, SdkError<E, HttpResponse>>,
) -> Result<(), PluginError>
where
    E: ProvideErrorMetadata + Error + 'static,
{
    match answer {
        Ok(_) => Ok(()),
        Err(error) if is_over(&error) => Ok(()),
        Err(error) => Err(classify(call, &account.place, error)),
    }
}

/// Whether the service reports that the wait is over.
fn is_over(error: &impl ProvideErrorMetadata) -> bool {
    let no_action = |message: &str| message.contains("No active Lifecycle Action");
    error.code() == Some("ValidationError") && error.message().is_some_and(no_action)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hook(name: &str) -> Hook {
        Hook {
            name: name.into(),
            heartbeat: Duration::from_secs(60),
        }
    }

    #[test]
    fn the_hook_is_the_only_one_or_the_named_one() {
        let two = [hook("drain"), hook("logs")];
        assert_eq!(choose(&two[..1], None).unwrap().name, "drain");
        assert_eq!(choose(&two, Some("logs")).unwrap().name, "logs");
        assert_eq!(
            choose(&two, None).unwrap_err(),
            "has several termination hooks (drain, logs); say which is ours: hook=NAME"
        );
        assert_eq!(
            choose(&two, Some("x")).unwrap_err(),
            "has no termination hook x; it has drain, logs"
        );
        assert!(choose(&[], None).is_err());
    }

    #[test]
    fn a_heartbeat_is_in_time_and_not_sent_forever() {
        let seconds = Duration::from_secs;
        assert!(!is_due(seconds(300), seconds(100), seconds(100)));
        assert!(is_due(seconds(300), seconds(140), seconds(140)));
        assert!(is_due(seconds(20), seconds(0), seconds(0)));
        assert!(!is_due(seconds(300), seconds(200), MAX_EXTENSION));
    }
}
