use std::time::Duration;

use elasticrun_protocol::{CommitId, DriverEpoch, HostId, Round};

use super::Suspicion;
use crate::time::Time;

const LONG: Duration = Duration::from_secs(100);

fn at(seconds: u64) -> Time {
    Time::ZERO + Duration::from_secs(seconds)
}

fn commit(round: u64, count: u64) -> CommitId {
    CommitId {
        epoch: DriverEpoch(1),
        round: Round(round),
        count,
    }
}

/// Since when rounds form a row, after two that broke, one that `newest` was made in and a failure ended, and two that broke.
fn churns_since(newest: Option<CommitId>) -> Option<Time> {
    let host = HostId::new("a");
    let mut suspicion = Suspicion::default();
    for (number, breaks) in [(1, true), (2, true), (3, false), (4, true), (5, true)] {
        suspicion.started(at(number * 10), Round(number), None, vec![host.clone()]);
        suspicion.ended(at(number * 10 + 5));
        if breaks {
            suspicion.broke(Round(number), &host, &[]);
        } else {
            suspicion.failed(at(number * 10 + 5), &host);
        }
        suspicion.judge(None, newest, None, LONG);
    }
    suspicion.churns_since()
}

#[test]
fn a_commit_whose_shard_was_lost_ends_the_row_of_fruitless_rounds() {
    assert_eq!(churns_since(None), Some(at(15)));
    assert_eq!(
        churns_since(Some(commit(3, 0))),
        Some(at(15)),
        "the first commit of a round is its base"
    );
    assert_eq!(churns_since(Some(commit(3, 1))), Some(at(45)));
    assert_eq!(
        churns_since(Some(commit(2, 9))),
        Some(at(15)),
        "that round broke by itself"
    );
}
