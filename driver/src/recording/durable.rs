//! Which reports of an agent are durable. An agent forgets a report once it is acknowledged, so a report is acknowledged when
//! the journal has its effects.

use std::collections::{BTreeMap, VecDeque};

use elasticrun_core::journal::{Applied, Change, Record};
use elasticrun_protocol::HostId;

/// How many records of a host wait for the disk one by one. While it does not answer, the newest one stands for all later ones.
const MAX_WAITING: usize = 16;

/// The reports of all agents that are durable.
#[derive(Debug, Default)]
pub(super) struct DurableReports {
    hosts: BTreeMap<HostId, Reports>,
}

/// The reports of the agent of one host.
#[derive(Debug)]
struct Reports {
    /// The random number of the agent's process.
    agent: u64,
    /// The number of the newest durable one.
    durable: u64,
    /// The number of the newest one in each record that waits for the disk, with the number of that write.
    waiting: VecDeque<(u64, u64)>,
}

impl DurableReports {
    /// Learns which reports the records of a write have.
    pub(super) fn written(&mut self, write: u64, changes: &[Change]) {
        for change in changes {
            if let Some(Record::Slots(slots)) = &change.record
                && let Some(applied) = slots.applied
            {
                self.applied(write, &slots.host, applied);
            }
        }
    }

    fn applied(&mut self, write: u64, host: &HostId, applied: Applied) {
        let new = || Reports {
            agent: applied.agent,
            durable: 0,
            waiting: VecDeque::new(),
        };
        let reports = self.hosts.entry(host.clone()).or_insert_with(new);
        if reports.agent != applied.agent {
            // Its numbers begin again.
            *reports = new();
        }
        if reports.waiting.len() == MAX_WAITING {
            reports.waiting.pop_back();
        }
        reports.waiting.push_back((write, applied.number));
    }

    /// The number of the newest report of a host that may be acknowledged once all writes up to `durable` are.
    pub(super) fn newest(&mut self, host: &HostId, durable: u64) -> u64 {
        let Some(reports) = self.hosts.get_mut(host) else {
            return 0;
        };
        while let Some((_, number)) = (reports.waiting).pop_front_if(|(write, _)| *write <= durable)
        {
            reports.durable = number;
        }
        reports.durable
    }
}

#[cfg(test)]
mod tests {
    use elasticrun_core::journal::SlotsEntry;

    use super::*;

    fn host() -> HostId {
        HostId::new("a")
    }

    fn change(agent: u64, number: u64) -> [Change; 1] {
        let slots = SlotsEntry {
            host: host(),
            starts: vec![1],
            done: Vec::new(),
            stopping: Vec::new(),
            memory: false,
            lost: false,
            agent: true,
            applied: Some(Applied { agent, number }),
        };
        [Change {
            key: "slots/a".to_owned(),
            record: Some(Record::Slots(slots)),
        }]
    }

    #[test]
    fn a_report_is_durable_with_the_write_that_has_it() {
        let mut reports = DurableReports::default();
        assert_eq!(reports.newest(&host(), 9), 0);
        reports.written(1, &change(7, 3));
        reports.written(2, &change(7, 5));
        assert_eq!(reports.newest(&host(), 0), 0);
        assert_eq!(reports.newest(&host(), 1), 3);
        assert_eq!(reports.newest(&host(), 2), 5);
    }

    #[test]
    fn the_numbers_of_a_later_agent_begin_again() {
        let mut reports = DurableReports::default();
        reports.written(1, &change(7, 100));
        assert_eq!(reports.newest(&host(), 1), 100);
        reports.written(2, &change(8, 1));
        assert_eq!(reports.newest(&host(), 1), 0);
        assert_eq!(reports.newest(&host(), 2), 1);
    }

    #[test]
    fn a_disk_that_does_not_answer_holds_few_numbers() {
        let mut reports = DurableReports::default();
        for write in 1..=1000 {
            reports.written(write, &change(7, write));
        }
        assert_eq!(reports.newest(&host(), 3), 3);
        assert_eq!(reports.newest(&host(), 999), MAX_WAITING as u64 - 1);
        assert_eq!(reports.newest(&host(), 1000), 1000);
    }
}
