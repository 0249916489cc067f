//! A connection between driver and agent: two queues, each in order, each with a delay of its own.

use std::collections::VecDeque;

use elasticrun_core::Time;
use elasticrun_protocol::{FromAgent, ToAgent};

/// What an agent sends.
#[derive(Clone, Debug)]
pub(crate) enum Up {
    Register {
        /// It has been part of the job before, and still keeps commits of it.
        keeps: bool,
    },
    AgentReport(FromAgent),
    Closed,
}

/// What the driver sends.
#[derive(Clone, Debug)]
pub(crate) enum Down {
    AgentCommand(ToAgent),
    Closed,
}

/// One direction.
#[derive(Debug)]
pub(crate) struct Lane<T> {
    queue: VecDeque<(Time, T)>,
    last: Time,
}

impl<T> Default for Lane<T> {
    fn default() -> Self {
        Self {
            queue: VecDeque::new(),
            last: Time::ZERO,
        }
    }
}

impl<T> Lane<T> {
    /// Puts a message in; gives when it arrives, which is never before the one sent before it.
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
    /// Which agent process of the host.
    pub(crate) agent: u64,
    /// Number that the driver gave it; none before it registered.
    pub(crate) instance: Option<u64>,
    pub(crate) up: Lane<Up>,
    pub(crate) down: Lane<Down>,
    pub(crate) driver_open: bool,
    pub(crate) agent_open: bool,
    /// When the driver heard from it last.
    pub(crate) heard: Time,
}
