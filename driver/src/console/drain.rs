//! When the end of a job stops waiting for output: a state machine over what moves.
//!
//! - D1 A connection of an agent is waited for while bytes move. It is given up after [`QUIET`] without one.
//! - D2 Output is written as long as its reader takes bytes. It is given up after [`PATIENCE`] without one.
//! - D3 After [`SILENT`], one line says what the end waits for.
//! - D4 A time in which the driver stood still, as while it is suspended, does not count.

use std::time::Duration;

use tokio::time::Instant;

/// How long connections of agents may send nothing, as those of a host that is gone.
const QUIET: Duration = Duration::from_secs(3);

/// How long the readers of the output may take nothing.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long the end of the job waits without a word.
const SILENT: Duration = Duration::from_secs(3);

/// How late a wait may end before the driver counts as having stood still.
const LATE: Duration = Duration::from_secs(2);

/// What is left.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    /// Connections of agents may still have output.
    pub(super) connected: bool,
    /// A connection waits for room in a queue.
    pub(super) blocked: bool,
    /// Bytes that are not written.
    pub(super) left: u64,
    /// When bytes last came from an agent, or were written.
    pub(super) moved: Instant,
}

/// What to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// Wait until then, or until something is done.
    Wait(Instant),
    /// Say what the end waits for.
    Announce,
    /// Do not wait for connections any more.
    Disconnect,
    /// Do not wait for the readers any more.
    GiveUp,
}

/// The state machine.
#[derive(Debug)]
pub(super) struct Drain {
    began: Instant,
    announced: bool,
    /// Time before this does not count.
    counts_from: Instant,
    /// The last wait.
    until: Option<Instant>,
}

impl Drain {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            began: now,
            announced: false,
            counts_from: now,
            until: None,
        }
    }

    pub(super) fn step(&mut self, now: Instant, view: View) -> Step {
        if self.until.is_some_and(|until| now > until + LATE) {
            self.counts_from = now;
        }
        let moved = view.moved.max(self.counts_from);
        let mut until = moved + PATIENCE;
        if view.connected && !view.blocked {
            if moved + QUIET <= now {
                return Step::Disconnect;
            }
            until = until.min(moved + QUIET);
        }
        if !self.announced && view.left > 0 {
            let due = self.began + SILENT;
            if due <= now {
                self.announced = true;
                return Step::Announce;
            }
            until = until.min(due);
        }
        if moved + PATIENCE <= now {
            return Step::GiveUp;
        }
        self.until = Some(until);
        Step::Wait(until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps in virtual time. `change` is called before each step with the time since the beginning.
    fn steps(change: impl Fn(Duration) -> (bool, bool, u64, Duration)) -> Vec<(u64, Step)> {
        let began = Instant::now();
        let (mut now, mut connected, mut drain) = (began, true, Drain::new(began));
        let mut done = Vec::new();
        while done.len() < 20 {
            let (has_connections, blocked, left, moved) = change(now - began);
            let view = View {
                connected: connected && has_connections,
                blocked,
                left,
                moved: began + moved,
            };
            let step = drain.step(now, view);
            if let Step::Wait(until) = step {
                assert!(until > now);
                now = until;
                continue;
            }
            done.push(((now - began).as_secs(), step));
            connected &= step != Step::Disconnect;
            if step == Step::GiveUp {
                break;
            }
        }
        done
    }

    #[test]
    fn a_reader_that_takes_nothing_is_named_and_given_up() {
        let steps = steps(|_| (false, false, 1000, Duration::ZERO));
        assert_eq!(steps, [(3, Step::Announce), (60, Step::GiveUp)]);
    }

    #[test]
    fn a_slow_reader_is_waited_for() {
        // It takes some bytes every 50 seconds, for ten minutes.
        let steps = steps(|now| {
            let moved = now.as_secs().min(600) / 50 * 50;
            (false, false, 1000, Duration::from_secs(moved))
        });
        assert_eq!(steps, [(3, Step::Announce), (660, Step::GiveUp)]);
    }

    #[test]
    fn a_connection_without_bytes_is_given_up_soon() {
        let steps = steps(|_| (true, false, 0, Duration::ZERO));
        assert_eq!(steps[0], (3, Step::Disconnect));
    }

    #[test]
    fn a_connection_that_waits_for_the_reader_is_not_given_up() {
        let steps = steps(|_| (true, true, 1000, Duration::ZERO));
        assert_eq!(steps, [(3, Step::Announce), (60, Step::GiveUp)]);
    }

    #[test]
    fn time_in_which_the_driver_was_suspended_does_not_count() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let view = View {
            connected: false,
            blocked: false,
            left: 1000,
            moved: began,
        };
        let mut drain = Drain::new(began);
        assert_eq!(drain.step(at(0), view), Step::Wait(at(3)));
        assert_eq!(drain.step(at(3), view), Step::Announce);
        assert_eq!(drain.step(at(3), view), Step::Wait(at(60)));
        assert_eq!(drain.step(at(500), view), Step::Wait(at(560)));
        assert_eq!(drain.step(at(560), view), Step::GiveUp);
    }
}
