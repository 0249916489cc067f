//! The driver's clock, as all its tasks read it.

use std::sync::{Arc, Mutex, PoisonError};

use elasticrun_core::{RunningTime, Time};
use std::time::Duration;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

/// Counts the time in which the driver ran ([`RunningTime`]). Cheap to clone.
///
/// The run loop ticks it on the runtime of the tasks that read from agents: what keeps these from reading, keeps the
/// clock from counting.
#[derive(Clone, Debug)]
pub struct Clock {
    began: Instant,
    time: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    time: RunningTime,
    /// A stall of which nobody has been told.
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

    /// How long the driver stood still, if it did and that was not asked for before.
    pub fn take_stall(&self) -> Option<Duration> {
        self.now();
        let mut state = self.time.lock().unwrap_or_else(PoisonError::into_inner);
        state.stall.take()
    }

    /// When a time will have come, if the driver runs until then. A driver that stood still looks again.
    pub fn instant(&self, time: Time) -> Option<Instant> {
        Instant::now().checked_add(time.since(self.now()))
    }

    /// How often to look.
    pub fn ticks(&self) -> Interval {
        let state = self.time.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ticks = interval(state.time.interval());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks
    }
}
