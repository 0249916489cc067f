//! A connection between driver and agent: two queues, each in order, each with a separate delay.

use std::collections::VecDeque;

use elasticrun_core::Time;
use elasticrun_protocol::{DriverEpoch, FromAgent, ToAgent, control::Adoption};

/// A message of an agent.
#[derive(Clone, Debug)]
pub(crate) enum Up {
    Register {
        /// The agent was part of the job before, and still keeps commits of it.
        keeps: bool,
        /// What the agent has kept, if it returns with workers.
        adoption: Option<Box<Adoption>>,
    },
    AgentReport(FromAgent),
    Closed,
}

/// A message of the driver.
#[derive(Clone, Debug)]
pub(crate) enum Down {
    AgentCommand(ToAgent),
    Closed,
}

/// One direction of a connection.
#[derive(Debug)]
pub(crate) struct InFlight<T> {
    queue: VecDeque<(Time, T)>,
    last: Time,
}

impl<T> Default for InFlight<T> {
    fn default() -> Self {
        Self {
            queue: VecDeque::new(),
            last: Time::ZERO,
        }
    }
}

impl<T> InFlight<T> {
    /// Queues a message. Gives when it arrives, which is never before the message sent before it.
    pub(crate) fn push(&mut self, at: Time, message: T) -> Time {
        self.last = self.last.max(at);
        self.queue.push_back((self.last, message));
        self.last
    }

    pub(crate) fn pop(&mut self, now: Time) -> Option<T> {
        let due = self.queue.front().is_some_and(|(at, _)| *at <= now);
        due.then(|| self.queue.pop_front())?
            .map(|(_, message)| message)
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) host: usize,
    /// The driver at its other end.
    pub(crate) driver: DriverEpoch,
    /// Number of the agent process on the host.
    pub(crate) agent: u64,
    /// Number that the driver gave the connection; none before the registration.
    pub(crate) instance: Option<u64>,
    pub(crate) up: InFlight<Up>,
    pub(crate) down: InFlight<Down>,
    pub(crate) driver_open: bool,
    pub(crate) agent_open: bool,
    /// When the last message arrived at the driver.
    pub(crate) heard: Time,
}
