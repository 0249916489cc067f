//! Groups: workers without the SDK, whose processes are started and ended together (process mode).
//!
//! ```text
//!           enough slots, none of the last group left           a failure, or a change of the members
//!   none ------------------------------------------> running ------------------------------------------> none
//! ```
//! A script without the SDK reads its rank and the size of the world once, at its start. So every change of the members
//! restarts all processes, with ranks and a coordinator that belong together.
//!
//! # Invariants
//! - A group is started only when no process of the previous group is left (R4).
//! - Groups lead from the start of a job, or never. Once a worker has attached, rounds lead for good.
//! - A growth ends the group once, after the last call. While it is unknown whether the workers have the SDK, the
//!   growth also waits until the group has run for [`UNDECIDED`]. A worker that imports its libraries during that time
//!   loses nothing.
//! - A failure that would end the job may be of a worker whose siblings have the SDK and continue without it. So in
//!   [`RestartMode::Auto`] the verdict waits for an attach, until the group has run for [`UNDECIDED`] at most.
//!
//! Not promised: that the processes of a group have met each other. That is the task of their own library.

use std::time::Duration;

use elasticrun_protocol::Round;

use crate::{
    mutant::{Mutant, planted},
    rounds::Cause,
    settings::{RestartMode, Settings},
    time::{Time, earliest},
};

/// How long a group runs in [`RestartMode::Auto`] before a growth restarts it and the mode is announced.
pub const UNDECIDED: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug)]
struct Running {
    round: Round,
    size: u32,
    began: Time,
}

/// The workers that are available to start a group, or to replace one by a larger one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Supply {
    /// Workers that a group could have now.
    pub there: u32,
    /// Workers that the group needs.
    pub needed: u32,
    /// Workers that may be available soon, including those available now.
    pub expected: u32,
}

/// The decisions about groups.
#[derive(Clone, Debug)]
pub struct Groups {
    leads: bool,
    auto: bool,
    running: Option<Running>,
    round: Round,
    /// When the first cause of the next group was seen.
    cause: Option<(Time, Cause)>,
    /// Since when enough workers are available.
    enough_since: Option<Time>,
    /// When the last call ends.
    due: Option<Time>,
    last_call: Duration,
    /// Workers available when the last group was ended. The last call for them is already over.
    called: u32,
    /// A member has failed, no restart is left, and other members may still attach.
    verdict_waits: bool,
    /// A member of the last group is known to have ended, so the others cannot continue.
    reaped: bool,
    /// The mode was announced.
    told: bool,
}

impl Groups {
    /// No group has started yet.
    pub fn new(settings: &Settings) -> Self {
        Self {
            leads: settings.elastic && settings.restart_mode != RestartMode::InProcess,
            auto: settings.restart_mode == RestartMode::Auto,
            running: None,
            round: Round(0),
            cause: None,
            enough_since: None,
            due: None,
            last_call: settings.last_call,
            called: u32::MAX,
            verdict_waits: false,
            reaped: false,
            told: false,
        }
    }

    /// Whether processes are started in groups.
    pub fn leads(&self) -> bool {
        self.leads
    }

    /// Whether a worker may still attach and so end process mode.
    pub fn is_undecided(&self) -> bool {
        self.leads && self.auto
    }

    /// Hands over to rounds, since a worker has attached. Returns `false` if rounds lead already.
    pub fn give_way(&mut self) -> bool {
        self.running = None;
        std::mem::replace(&mut self.leads, false)
    }

    /// Whether a group runs.
    pub fn is_running(&self) -> bool {
        self.leads && self.running.is_some()
    }

    /// The number of members of the running group; 0 if none runs.
    pub fn size(&self) -> u32 {
        self.running.map_or(0, |running| running.size)
    }

    /// The number of the newest group. One that an earlier driver has started may run instead.
    pub fn newest(&self) -> Round {
        self.round
    }

    /// The number of the running group.
    pub fn running(&self) -> Option<Round> {
        let running = self.running.filter(|_| self.leads)?;
        Some(running.round)
    }

    /// Forgets the wait for more workers. It begins anew once no process is left.
    pub fn postpone(&mut self) {
        (self.enough_since, self.due) = (None, None);
    }

    /// Whether enough workers are available and the wait for more is over.
    pub fn is_ripe(&mut self, now: Time, supply: Supply) -> bool {
        self.due = None;
        if supply.there < supply.needed {
            self.enough_since = None;
            return false;
        }
        let since = *self.enough_since.get_or_insert(now);
        let called = if supply.there >= supply.expected.min(self.called) {
            since
        } else {
            since + self.last_call
        };
        let undecided = self.undecided_until();
        let undecided = undecided.filter(|_| !planted(Mutant::GroupGrowsEarly));
        let due = undecided.map_or(called, |until| called.max(until));
        if due > now {
            self.due = Some(due);
        }
        due <= now
    }

    /// Until when a growth waits because the running workers may still attach.
    fn undecided_until(&self) -> Option<Time> {
        let running = self.running.filter(|_| self.auto)?;
        Some(running.began + UNDECIDED)
    }

    /// Starts the next group. Gives its number, its cause, and when the first cause was seen.
    pub fn start(&mut self, now: Time, size: u32) -> (Round, Cause, Time) {
        self.round = self.round.next();
        self.running = Some(Running {
            round: self.round,
            size,
            began: now,
        });
        self.reaped = false;
        (self.enough_since, self.due, self.called) = (None, None, u32::MAX);
        let first = (now, Cause::First);
        let (since, cause) = self.cause.take().unwrap_or(first);
        (self.round, cause, since)
    }

    /// Leaves the numbers up to this one unused: earlier drivers may have used them.
    pub fn skip_to(&mut self, round: Round) {
        self.round = self.round.max(round);
    }

    /// Continues with a group that an earlier driver started. The time in which its workers may attach begins anew.
    pub fn adopt(&mut self, now: Time, round: Round, size: u32) {
        self.running = Some(Running {
            round,
            size,
            began: now,
        });
    }

    /// Records that an agent has reported the end of a member of the last group.
    pub fn member_reaped(&mut self) {
        self.reaped = true;
    }

    /// Whether a member of the last group is known to have ended.
    pub fn is_reaped(&self) -> bool {
        self.reaped
    }

    /// Ends the running group while `there` workers are available for the next one. Gives its number.
    pub fn end(&mut self, now: Time, cause: Cause, there: u32) -> Option<Round> {
        let ended = self.running.take()?;
        self.called = there;
        (self.enough_since, self.due) = (None, None);
        self.cause.get_or_insert((now, cause));
        Some(ended.round)
    }

    /// A member has failed and no restart is left. Returns whether the verdict waits for other members to attach.
    pub fn defer_verdict(&mut self, now: Time) -> bool {
        let waits = self.undecided_until().is_some_and(|until| now < until);
        let waits = waits && !planted(Mutant::GroupVerdictHasty);
        self.verdict_waits |= waits;
        waits
    }

    /// Whether a failure waits for its verdict.
    pub fn verdict_waits(&self) -> bool {
        self.leads && self.verdict_waits
    }

    /// Whether the wait for the verdict is over.
    pub fn verdict_is_due(&self, now: Time) -> bool {
        let never = planted(Mutant::GroupVerdictNever);
        !never && self.verdict_waits() && self.undecided_until().is_none_or(|until| until <= now)
    }

    /// Whether the mode must be announced now; true once. `certain` means that the mode already matters.
    pub fn tell(&mut self, now: Time, certain: bool) -> bool {
        let runs_on = self.running.is_some() && self.undecided_until().is_none_or(|t| t <= now);
        let tell = self.leads && !self.told && (certain || runs_on);
        self.told |= tell;
        tell
    }

    /// When the next decision is due, if nothing else happens.
    pub fn next_deadline(&self) -> Option<Time> {
        let tell = self
            .undecided_until()
            .filter(|_| !self.told || self.verdict_waits);
        earliest([self.due, tell]).filter(|_| self.leads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(mode: RestartMode) -> Groups {
        Groups::new(&Settings {
            restart_mode: mode,
            ..Settings::elastic(2, 1, None)
        })
    }

    fn at(seconds: u64) -> Time {
        Time::from_start(Duration::from_secs(seconds))
    }

    fn supply(there: u32, needed: u32, expected: u32) -> Supply {
        Supply {
            there,
            needed,
            expected,
        }
    }

    #[test]
    fn all_that_can_come_are_not_waited_for() {
        let mut groups = groups(RestartMode::Process);
        assert!(!groups.is_ripe(at(0), supply(1, 2, 2)));
        assert!(groups.is_ripe(at(5), supply(2, 2, 2)));
    }

    #[test]
    fn others_are_waited_for_until_the_last_call_is_over() {
        let mut groups = groups(RestartMode::Process);
        assert!(!groups.is_ripe(at(5), supply(2, 2, 4)));
        assert_eq!(groups.next_deadline(), Some(at(6)));
        assert!(groups.is_ripe(at(6), supply(3, 2, 4)));
    }

    #[test]
    fn a_growth_waits_while_the_workers_may_still_attach() {
        for (mode, due) in [(RestartMode::Process, 11), (RestartMode::Auto, 40)] {
            let mut groups = groups(mode);
            groups.start(at(10), 2);
            assert!(!groups.is_ripe(at(10), supply(3, 3, 4)));
            assert!(!groups.is_ripe(at(due - 1), supply(3, 3, 4)));
            assert!(groups.is_ripe(at(due), supply(3, 3, 4)));
        }
    }

    #[test]
    fn the_mode_is_told_once_it_matters() {
        let mut groups = groups(RestartMode::Auto);
        groups.start(at(0), 2);
        assert!(!groups.tell(at(29), false));
        assert!(groups.tell(at(29), true));
        assert!(!groups.tell(at(30), true));
    }

    #[test]
    fn once_given_way_groups_never_lead_again() {
        let mut groups = groups(RestartMode::Auto);
        groups.start(at(0), 2);
        assert!(groups.is_running() && groups.give_way());
        assert!(!groups.is_running() && !groups.give_way());
        assert_eq!(groups.next_deadline(), None);
    }
}
