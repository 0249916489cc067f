//! A preview of a repartition, without a job: the plan that the workers would compute.

use std::{collections::BTreeMap, ops::Range};

use super::{EpochLayout, FormerMember, Member, Plan, Share, Split, repartition};

/// A worker of a hypothetical job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkerSlot {
    /// Its host.
    pub host: String,
    /// Its slot there. Before and after the change, a worker is identified by host and slot.
    pub slot: u32,
    /// Its share in proportion to the others.
    pub weight: u32,
}

/// Rows that go from one worker before the change to one worker after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// The worker before the change, as an index.
    pub from: usize,
    /// The worker after the change, as an index.
    pub to: usize,
    /// Number of rows.
    pub rows: u64,
}

/// The plan of a change of the workers, with figures about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanPreview {
    /// What each worker has left before the change.
    pub before: Vec<Share>,
    /// What each worker has left after the change.
    pub after: Vec<Share>,
    /// Where the rows go: sorted by worker after, then by worker before.
    pub flows: Vec<Flow>,
    /// Rows that move to another worker.
    pub moved: u64,
    /// Rows that would move if the remaining rows were divided from scratch.
    pub moved_from_scratch: u64,
    /// Row groups that more than one worker reads after the change.
    pub split_groups: usize,
}

/// Plans the change from the workers `before` to the workers `after`, when each has processed the fraction `done` of
/// its share.
///
/// Assumes that the epoch began with the workers `before`, and that each worker reads one row group at a time.
///
/// # Panics
/// If the weights of a list are all 0, or if a list names a worker twice.
pub fn preview_plan(
    layout: &EpochLayout,
    before: &[WorkerSlot],
    after: &[WorkerSlot],
    done: f64,
    split: Split,
) -> PlanPreview {
    let hosts = number_hosts(before.iter().chain(after));
    let hand_out = |rows: Share, workers: &[WorkerSlot]| {
        let unassigned = FormerMember {
            share: &rows,
            host: u64::MAX,
            zone: 0,
        };
        repartition(layout, &[unassigned], &members(workers, &[], &hosts), split).shares
    };
    let mut all = Share::EMPTY;
    all.push(0..layout.rows());
    let left: Vec<Share> = (hand_out(all, before).iter())
        .map(|share| share.without_first((share.rows() as f64 * done) as u64))
        .collect();
    let former: Vec<FormerMember<'_>> = (left.iter().zip(before))
        .map(|(share, worker)| FormerMember {
            share,
            host: hosts[&worker.host],
            zone: 0,
        })
        .collect();
    let members = members(after, before, &hosts);
    let Plan { shares, moved } = repartition(layout, &former, &members, split);
    let mut rest: Vec<_> = left.iter().flat_map(Share::ranges).cloned().collect();
    rest.sort_unstable_by_key(|range| range.start);
    let mut merged = Share::EMPTY;
    rest.into_iter().for_each(|range| merged.push(range));
    let stays = |shares: &[Share]| -> u64 {
        (flows(&left, shares).iter())
            .filter(|flow| members[flow.to].former == Some(flow.from))
            .map(|flow| flow.rows)
            .sum()
    };
    PlanPreview {
        moved_from_scratch: merged.rows() - stays(&hand_out(merged.clone(), after)),
        flows: flows(&left, &shares),
        split_groups: count_split_groups(layout, &shares),
        before: left,
        after: shares,
        moved,
    }
}

fn number_hosts<'a>(workers: impl Iterator<Item = &'a WorkerSlot>) -> BTreeMap<String, u64> {
    let mut hosts = BTreeMap::new();
    for worker in workers {
        let next = hosts.len() as u64;
        hosts.entry(worker.host.clone()).or_insert(next);
    }
    hosts
}

fn members(
    workers: &[WorkerSlot],
    former: &[WorkerSlot],
    hosts: &BTreeMap<String, u64>,
) -> Vec<Member> {
    let index_of: BTreeMap<(&str, u32), usize> = (former.iter().zip(0..))
        .map(|(worker, index)| ((worker.host.as_str(), worker.slot), index))
        .collect();
    (workers.iter())
        .map(|worker| Member {
            former: index_of.get(&(worker.host.as_str(), worker.slot)).copied(),
            weight: worker.weight,
            host: hosts[&worker.host],
            zone: 0,
        })
        .collect()
}

/// Rows that each worker after the change has from each worker before it. The shares of a list are disjoint.
fn flows(before: &[Share], after: &[Share]) -> Vec<Flow> {
    let mut owned: Vec<(Range<u64>, usize)> = (before.iter().zip(0..))
        .flat_map(|(share, owner)| share.ranges().iter().map(move |r| (r.clone(), owner)))
        .collect();
    owned.sort_unstable_by_key(|(range, _)| range.start);
    let mut flows = Vec::new();
    for (to, share) in after.iter().enumerate() {
        let mut rows: BTreeMap<usize, u64> = BTreeMap::new();
        for range in share.ranges() {
            let first = owned.partition_point(|(other, _)| other.end <= range.start);
            for (other, from) in owned[first..]
                .iter()
                .take_while(|(o, _)| o.start < range.end)
            {
                let common = other.end.min(range.end) - other.start.max(range.start);
                *rows.entry(*from).or_default() += common;
            }
        }
        flows.extend(rows.into_iter().map(|(from, rows)| Flow { from, to, rows }));
    }
    flows
}

fn count_split_groups(layout: &EpochLayout, shares: &[Share]) -> usize {
    let mut readers: BTreeMap<u32, (usize, bool)> = BTreeMap::new();
    for (worker, share) in shares.iter().enumerate() {
        for segment in share.clone().segments(layout) {
            let (first, more) = readers
                .entry(segment.piece.group)
                .or_insert((worker, false));
            *more |= *first != worker;
        }
    }
    readers.values().filter(|(_, more)| *more).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workers(host: &str, slots: u32) -> Vec<WorkerSlot> {
        (0..slots)
            .map(|slot| WorkerSlot {
                host: host.to_owned(),
                slot,
                weight: 1,
            })
            .collect()
    }

    #[test]
    fn a_lost_host_costs_what_it_had() {
        let layout = EpochLayout::new(&[100; 8], None);
        let before = [workers("a", 2), workers("b", 2)].concat();
        let preview = preview_plan(&layout, &before, &workers("a", 2), 0.5, Split::Rows);
        assert_eq!(
            preview.before.iter().map(Share::rows).collect::<Vec<_>>(),
            [100; 4]
        );
        assert_eq!(
            preview.after.iter().map(Share::rows).collect::<Vec<_>>(),
            [200; 2]
        );
        assert_eq!((preview.moved, preview.split_groups), (200, 0));
        let flow = |from, to| Flow {
            from,
            to,
            rows: 100,
        };
        assert_eq!(
            preview.flows,
            [flow(0, 0), flow(2, 0), flow(1, 1), flow(3, 1)]
        );
        // Divided from scratch, worker a:1 would only have rows of b.
        assert_eq!(preview.moved_from_scratch, 300);
    }

    #[test]
    fn nothing_moves_where_nothing_changes() {
        let layout = EpochLayout::new(&[7, 5, 3], None);
        let preview = preview_plan(
            &layout,
            &workers("a", 2),
            &workers("a", 2),
            0.0,
            Split::Rows,
        );
        assert_eq!(
            (
                preview.moved,
                preview.moved_from_scratch,
                preview.split_groups
            ),
            (0, 0, 1)
        );
        assert_eq!(preview.before, preview.after);
    }

    #[test]
    fn a_new_host_gets_from_all() {
        let layout = EpochLayout::new(&[100; 6], None);
        let after = [workers("a", 2), workers("b", 1)].concat();
        let preview = preview_plan(&layout, &workers("a", 2), &after, 0.0, Split::Rows);
        assert_eq!(
            preview.after.iter().map(Share::rows).collect::<Vec<_>>(),
            [200; 3]
        );
        assert_eq!(preview.moved, 200);
    }
}
