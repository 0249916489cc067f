//! Termination hooks: how long a member stays in Terminating:Wait, and its end when the job has left it.
//!
//! A member that is to go waits for its group's hook as long as the hook's heartbeat timeout, counted from the
//! last heartbeat. With `complete_hook` the wait is prolonged while the job drains the host, and ended when it has.
//! Nothing here fails a poll: that a host is draining must be known even if its hook cannot be reached.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    time::{Duration, Instant},
};

use aws_sdk_autoscaling::{error::ProvideErrorMetadata, types::LifecycleState};
use aws_smithy_runtime_api::client::{orchestrator::HttpResponse, result::SdkError};
use elasticrun_plugin_sdk::{PluginError, tracing};

use crate::{account::Account, failure, groups::Member, plugin::INTERVAL};

const TERMINATING: &str = "autoscaling:EC2_INSTANCE_TERMINATING";
/// No wait is prolonged beyond it: a job that never says that it has left must not pay for a host for days.
const LONGEST: Duration = Duration::from_secs(3600);

/// What is known of hooks and of those that wait for one.
#[derive(Debug, Default)]
pub(crate) struct Hooks {
    /// The termination hooks of a group. A group is asked when first needed.
    of_group: BTreeMap<String, Vec<Hook>>,
    /// Members in Terminating:Wait.
    waits: BTreeMap<String, Wait>,
    /// Hosts that the job has left, as long as they are members.
    left: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq)]
struct Hook {
    name: String,
    /// Without a heartbeat the wait ends after this.
    heartbeat: Duration,
}

#[derive(Debug)]
struct Wait {
    group: String,
    /// When it was seen first.
    seen: Instant,
    /// Not after the last heartbeat, or the start of the wait.
    renewed: Instant,
    completed: bool,
}

impl Hooks {
    /// Asks for the hooks of groups whose hooks are not known yet.
    ///
    /// # Errors
    /// When AWS does not tell.
    pub(crate) async fn learn(
        &mut self,
        account: &Account,
        groups: impl Iterator<Item = &str>,
    ) -> Result<(), PluginError> {
        for group in groups {
            if self.of_group.contains_key(group) {
                continue;
            }
            let answer = account
                .scaling
                .describe_lifecycle_hooks()
                .auto_scaling_group_name(group)
                .send()
                .await
                .map_err(|error| failure::of("DescribeLifecycleHooks", &account.place, error))?;
            let hooks = answer.lifecycle_hooks().iter();
            let hooks = hooks.filter(|hook| hook.lifecycle_transition() == Some(TERMINATING));
            let hooks = hooks.filter_map(|hook| {
                let seconds = u64::try_from(hook.heartbeat_timeout().unwrap_or(3600));
                Some(Hook {
                    name: hook.lifecycle_hook_name()?.to_owned(),
                    heartbeat: Duration::from_secs(seconds.unwrap_or(0)),
                })
            });
            self.of_group.insert(group.to_owned(), hooks.collect());
        }
        Ok(())
    }

    /// Whether each group has one termination hook that is ours to complete.
    pub(crate) fn check(&self, ours: Option<&str>) -> Result<(), PluginError> {
        for (group, hooks) in &self.of_group {
            if let Err(why) = choose(hooks, ours) {
                return Err(PluginError::bad_config(format!(
                    "complete_hook: group {group} {why}"
                )));
            }
        }
        Ok(())
    }

    /// The job has left a host.
    pub(crate) fn left(&mut self, id: String) {
        self.left.insert(id);
    }

    /// Learns who waits now. `before` is the time of the last look: a wait that is new may have begun then.
    pub(crate) fn see(&mut self, members: &[Member], before: Instant) {
        let now = Instant::now();
        let ids: BTreeSet<_> = members.iter().map(|member| member.id.as_str()).collect();
        self.left.retain(|id| ids.contains(id.as_str()));
        let mut known = std::mem::take(&mut self.waits);
        for member in members {
            if member.life == LifecycleState::TerminatingWait {
                let wait = known.remove(&member.id).unwrap_or_else(|| Wait {
                    group: member.group.clone(),
                    seen: now,
                    renewed: before,
                    completed: false,
                });
                self.waits.insert(member.id.clone(), wait);
            }
        }
    }

    /// The groups somebody of which waits.
    pub(crate) fn waiting_groups(&self) -> BTreeSet<String> {
        self.waits.values().map(|wait| wait.group.clone()).collect()
    }

    /// Time until a member's wait ends by itself; none if it does not wait, or its hook is not known. Of several
    /// hooks the first to run out counts.
    pub(crate) fn deadline(&self, id: &str) -> Option<Duration> {
        let wait = self.waits.get(id)?;
        let hooks = self.of_group.get(&wait.group)?;
        let shortest = hooks.iter().map(|hook| hook.heartbeat).min()?;
        Some(shortest.saturating_sub(wait.renewed.elapsed()))
    }

    /// Ends the waits of hosts that the job has left, and prolongs those that would soon run out.
    pub(crate) async fn serve(&mut self, account: &Account, ours: Option<&str>) {
        for (id, wait) in &mut self.waits {
            let hooks = self
                .of_group
                .get(&wait.group)
                .map_or(&[][..], Vec::as_slice);
            let Ok(hook) = choose(hooks, ours) else {
                continue;
            };
            if wait.completed {
                continue;
            }
            let result = if self.left.contains(id) {
                let result = complete(account, id, wait, hook).await;
                wait.completed |= result.is_ok();
                result
            } else if is_due(hook.heartbeat, wait.renewed.elapsed(), wait.seen.elapsed()) {
                let asked = Instant::now();
                let result = prolong(account, id, wait, hook).await;
                if result.is_ok() {
                    wait.renewed = asked;
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

/// Our hook among those of a group.
fn choose<'a>(hooks: &'a [Hook], ours: Option<&str>) -> Result<&'a Hook, String> {
    let names: Vec<_> = hooks.iter().map(|hook| hook.name.as_str()).collect();
    match (hooks, ours) {
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

/// Whether to send a heartbeat now: half of the time is over, or would be by the second next poll.
fn is_due(heartbeat: Duration, since_renewed: Duration, since_seen: Duration) -> bool {
    since_seen < LONGEST && since_renewed + 2 * INTERVAL >= heartbeat / 2
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

async fn prolong(account: &Account, id: &str, wait: &Wait, hook: &Hook) -> Result<(), PluginError> {
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

/// What came of a call for somebody who waits. That nobody waits any more is no failure: another was faster, or the wait
/// has run out.
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
        Err(error) => Err(failure::of(call, &account.place, error)),
    }
}

/// Whether the service says that nobody waits any more.
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
    fn our_hook_is_the_only_one_or_the_one_that_is_named() {
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
    fn a_heartbeat_comes_in_time_and_not_for_ever() {
        let seconds = Duration::from_secs;
        assert!(!is_due(seconds(300), seconds(100), seconds(100)));
        assert!(is_due(seconds(300), seconds(140), seconds(140)));
        assert!(is_due(seconds(20), seconds(0), seconds(0)));
        assert!(!is_due(seconds(300), seconds(200), LONGEST));
    }
}
