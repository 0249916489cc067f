//! The driver's clock, which all its tasks share.

use std::sync::{Arc, Mutex, PoisonError};

use elasticrun_core::{RunningTime, Time};
use std::time::Duration;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

/// Counts the time during which the driver ran ([`RunningTime`]). Cheap to clone.
///
/// The run loop ticks it on the runtime of the tasks that read from agents. While these tasks cannot read, the clock
/// stands still.
#[derive(Clone, Debug)]
pub struct Clock {
    began: Instant,
    time: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    time: RunningTime,
    /// A stall that is not yet reported.
    stall: Option<Duration>,
}

impl Clock {
    /// A clock at zero, of a job with this heartbeat timeout.
    pub fn start(heartbeat_timeout: Duration) -> Self {
        let time = RunningTime::new(RunningTime::threshold(heartbeat_timeout));
        Self {
            began: Instant::now(),
            time: Arc::new(Mutex::new(State { time, stall: None })),
        }
    }

    /// The time in which the driver ran.
    pub fn now(&self) -> Time {
        let mut state = self.time.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stall) = state.time.look(self.began.elapsed()) {
            state.stall = Some(stall);
        }
        state.time.now()
    }

    /// How long the driver stood still, if it did since the last call.
    pub fn take_stall(&self) -> Option<Duration> {
        self.now();
        let mut state = self.time.lock().unwrap_or_else(PoisonError::into_inner);
        state.stall.take()
    }

    /// When the clock reaches a time, if the driver does not stall until then. After a stall, the caller asks again.
    pub fn instant(&self, time: Time) -> Option<Instant> {
        Instant::now().checked_add(time.since(self.now()))
    }

    /// The interval at which the clock must be read.
    pub fn ticks(&self) -> Interval {
        let state = self.time.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ticks = interval(state.time.interval());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks
    }
}
