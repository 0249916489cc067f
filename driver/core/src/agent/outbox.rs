//! The reports of an agent, from their number to their acknowledgement.
//!
//! - Numbers grow over all connections of an agent, so a driver applies each report once.
//! - A report is kept until a driver has acknowledged it. After a broken connection, the agent repeats what it keeps.
//! - Heartbeats are not kept: they change nothing. Reports about the durable store and replicas are not kept either: the driver
//!   asks again after a broken connection, and a driver of an earlier release may not know them.
//!
//! Without a driver no process is started, so an agent keeps at most a few reports for each of its processes.

use std::collections::VecDeque;

use elasticrun_protocol::{AgentReport, DriverEpoch, FromAgent};

/// The reports that no driver has acknowledged.
#[derive(Clone, Debug, Default)]
pub(super) struct Outbox {
    /// The number of the last report.
    last: u64,
    acknowledged: u64,
    kept: VecDeque<FromAgent>,
    /// The driver acknowledges reports.
    pub(super) keeps: bool,
}

impl Outbox {
    /// Numbers a report, and keeps it if a driver needs it after a broken connection.
    pub(super) fn number(&mut self, epoch: DriverEpoch, report: AgentReport) -> FromAgent {
        self.last += 1;
        let report = FromAgent {
            epoch,
            number: self.last,
            report,
        };
        if self.keeps && is_kept(&report.report) {
            self.kept.push_back(report.clone());
        }
        report
    }

    /// Drops the reports up to this number: the driver has applied them.
    pub(super) fn acknowledge(&mut self, applied: u64) {
        self.acknowledged = self.acknowledged.max(applied.min(self.last));
        while (self.kept.front()).is_some_and(|report| report.number <= applied) {
            self.kept.pop_front();
        }
    }

    /// The number of the newest report that is acknowledged.
    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// The reports that are not acknowledged, as from an agent that obeys this driver.
    pub(super) fn unacknowledged(
        &self,
        epoch: DriverEpoch,
    ) -> impl Iterator<Item = FromAgent> + '_ {
        (self.kept.iter()).map(move |report| FromAgent {
            epoch,
            ..report.clone()
        })
    }
}

fn is_kept(report: &AgentReport) -> bool {
    !matches!(
        report,
        AgentReport::Heartbeat { .. }
            | AgentReport::DurableWritten { .. }
            | AgentReport::DurableFailed { .. }
            | AgentReport::DurableFound { .. }
            | AgentReport::DurableLoaded { .. }
            | AgentReport::CutHeld { .. }
            | AgentReport::Replicated { .. }
            | AgentReport::ReplicaFailed { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: DriverEpoch = DriverEpoch(1);

    fn offer(port: u16) -> AgentReport {
        AgentReport::FreePort { port }
    }

    fn numbers(outbox: &Outbox) -> Vec<u64> {
        let reports = outbox.unacknowledged(EPOCH);
        reports.map(|report| report.number).collect()
    }

    #[test]
    fn what_changes_something_is_kept_until_it_is_acknowledged() {
        let mut outbox = Outbox {
            keeps: true,
            ..Outbox::default()
        };
        let (commits, count, held, sealed) = (0, 1, None, None);
        for report in [
            offer(1),
            AgentReport::Heartbeat {
                commits,
                count,
                held,
                sealed,
            },
            offer(2),
        ] {
            outbox.number(EPOCH, report);
        }
        assert_eq!(numbers(&outbox), [1, 3]);
        outbox.acknowledge(2);
        assert_eq!(numbers(&outbox), [3]);
        outbox.acknowledge(1);
        assert_eq!((numbers(&outbox), outbox.acknowledged()), (vec![3], 2));
        outbox.acknowledge(u64::MAX);
        assert_eq!((numbers(&outbox), outbox.acknowledged()), (Vec::new(), 3));
        assert_eq!(outbox.number(EPOCH, offer(3)).number, 4);
    }

    #[test]
    fn nothing_is_kept_for_a_driver_that_acknowledges_nothing() {
        let mut outbox = Outbox::default();
        assert_eq!(outbox.number(EPOCH, offer(1)).number, 1);
        assert_eq!(numbers(&outbox), Vec::<u64>::new());
    }
}
