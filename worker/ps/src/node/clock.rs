//! The thread of a node for all that happens at a time: heartbeats, resends, requests without a handler.

use std::{
    sync::{Arc, PoisonError, atomic::Ordering},
    time::Duration,
};

use super::{Control, Node, OF_NODE, lock};
use crate::{core::node::SCHEDULER, net::Pace};

impl Node {
    pub(super) fn run_clock(self: &Arc<Self>) {
        OF_NODE.set(true);
        let interval = self.options.heartbeat_interval;
        let mut next_beat = self.now() + interval;
        let mut guard = lock(&self.alarm.0);
        while !self.is_stopped() {
            drop(guard);
            if self.now() >= next_beat {
                next_beat = self.now() + interval;
                self.beat();
            }
            let mut next = next_beat;
            if let Some(resends) = &self.resends {
                let (due, next_due) = resends.due(self.now());
                for (process, frame) in due {
                    let connection = lock(&self.connections).get(&process.0).cloned();
                    if let Some(connection) = connection.filter(|it| it.process() == Some(process))
                    {
                        let _ = connection.send(frame, Pace::Now);
                    }
                }
                next = next.min(next_due.unwrap_or(next));
                // A message that is sent meanwhile is due after the timeout at the earliest.
                next = next.min(self.now() + resends.timeout());
            }
            for request in self.registry.expired(self.options.handler_timeout) {
                self.refuse_parked(&request);
            }
            for app in self.registry.apps() {
                app.on_time();
            }
            guard = lock(&self.alarm.0);
            if self.is_stopped() {
                break;
            }
            let wait = next
                .saturating_sub(self.now())
                .max(Duration::from_millis(1));
            let woken = self.alarm.1.wait_timeout(guard, wait);
            guard = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Wakes the clock.
    pub(super) fn alarm(&self) {
        drop(lock(&self.alarm.0));
        self.alarm.1.notify_all();
    }

    fn beat(self: &Arc<Self>) {
        if let Some(scheduler) = &self.scheduler {
            self.expire_members();
            self.follow_snapshots(scheduler);
            return;
        }
        if let Some(lost) = self.scheduler_lost() {
            for customer in self.registry.customers() {
                customer.end_overdue(self.options.heartbeat_timeout, &lost);
            }
        }
        let connection = lock(&self.connections).get(&SCHEDULER).cloned();
        let Some(connection) = connection else { return };
        self.beat_sent();
        let _ = self.send_control(&connection, &Control::Heartbeat);
        self.elastic_beat();
        let heard = Duration::from_millis(self.scheduler_heard.load(Ordering::Relaxed));
        let timeout = self.options.heartbeat_timeout;
        if self.now() >= heard + timeout {
            self.lose_node(
                SCHEDULER,
                &format!("nothing was heard of it for {timeout:?}"),
            );
            self.elastic_death(SCHEDULER);
        }
    }
}
