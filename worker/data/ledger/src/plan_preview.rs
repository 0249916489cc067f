//! What a change of workers does to an epoch, asked without a job: the plan that its workers would make.

use std::{collections::BTreeMap, ops::Range};

use super::{Former, Line, Member, Plan, Share, Split, repartition};

/// A worker of a job that is only thought of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seat {
    /// Its host.
    pub host: String,
    /// Its slot there. Who has the same host and slot before and after is the same worker.
    pub slot: u32,
    /// How much it gets in proportion to the others.
    pub weight: u32,
}

/// Rows that one worker has before the change, and one after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// The worker before, by its place in the list.
    pub from: usize,
    /// The worker after.
    pub to: usize,
    /// How many rows.
    pub rows: u64,
}

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Forecast {
    /// What each worker has left before the change.
    pub before: Vec<Share>,
    /// What each has after it.
    pub after: Vec<Share>,
    /// Where the rows of each go: by worker after, then by worker before.
    pub flows: Vec<Flow>,
    /// Rows that go to another worker.
    pub moved: u64,
    /// Rows that would, if what is left were dealt out from the beginning.
    pub anew: u64,
    /// Row groups that more than one worker reads after the change.
    pub cut: usize,
}

/// The change from the workers `before` to those `after`, when each has processed `done` of its share, from 0 to 1.
/// The epoch began with the workers `before`. That a worker reads several row groups in turn is left out.
///
/// # Panics
/// If workers of a list have no weight at all, or if a list names a worker twice.
pub fn forecast(line: &Line, before: &[Seat], after: &[Seat], done: f64, split: Split) -> Forecast {
    let hosts = number_hosts(before.iter().chain(after));
    let deal = |rows: Share, seats: &[Seat]| {
        let nobody = Former {
            share: &rows,
            host: u64::MAX,
            zone: 0,
        };
        repartition(line, &[nobody], &members(seats, &[], &hosts), split).shares
    };
    let mut all = Share::EMPTY;
    all.push(0..line.rows());
    let left: Vec<Share> = (deal(all, before).iter())
        .map(|share| share.behind((share.rows() as f64 * done) as u64))
        .collect();
    let former: Vec<Former<'_>> = (left.iter().zip(before))
        .map(|(share, seat)| Former {
            share,
            host: hosts[&seat.host],
            zone: 0,
        })
        .collect();
    let members = members(after, before, &hosts);
    let Plan { shares, moved } = repartition(line, &former, &members, split);
    let mut rest: Vec<_> = left.iter().flat_map(Share::ranges).cloned().collect();
    rest.sort_unstable_by_key(|range| range.start);
    let mut together = Share::EMPTY;
    rest.into_iter().for_each(|range| together.push(range));
    let stays = |shares: &[Share]| -> u64 {
        (flows(&left, shares).iter())
            .filter(|flow| members[flow.to].former == Some(flow.from))
            .map(|flow| flow.rows)
            .sum()
    };
    Forecast {
        anew: together.rows() - stays(&deal(together.clone(), after)),
        flows: flows(&left, &shares),
        cut: cut(line, &shares),
        before: left,
        after: shares,
        moved,
    }
}

fn number_hosts<'a>(seats: impl Iterator<Item = &'a Seat>) -> BTreeMap<String, u64> {
    let mut hosts = BTreeMap::new();
    for seat in seats {
        let next = hosts.len() as u64;
        hosts.entry(seat.host.clone()).or_insert(next);
    }
    hosts
}

fn members(seats: &[Seat], former: &[Seat], hosts: &BTreeMap<String, u64>) -> Vec<Member> {
    let places: BTreeMap<(&str, u32), usize> = (former.iter().zip(0..))
        .map(|(seat, place)| ((seat.host.as_str(), seat.slot), place))
        .collect();
    (seats.iter())
        .map(|seat| Member {
            former: places.get(&(seat.host.as_str(), seat.slot)).copied(),
            weight: seat.weight,
            host: hosts[&seat.host],
            zone: 0,
        })
        .collect()
}

/// How many rows each has from each. Shares of a list are disjoint.
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

fn cut(line: &Line, shares: &[Share]) -> usize {
    let mut readers: BTreeMap<u32, (usize, bool)> = BTreeMap::new();
    for (worker, share) in shares.iter().enumerate() {
        for stretch in share.clone().stretches(line) {
            let (first, more) = readers
                .entry(stretch.piece.group)
                .or_insert((worker, false));
            *more |= *first != worker;
        }
    }
    readers.values().filter(|(_, more)| *more).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seats(host: &str, slots: u32) -> Vec<Seat> {
        (0..slots)
            .map(|slot| Seat {
                host: host.to_owned(),
                slot,
                weight: 1,
            })
            .collect()
    }

    #[test]
    fn a_lost_host_costs_what_it_had() {
        let line = Line::new(&[100; 8], None);
        let before = [seats("a", 2), seats("b", 2)].concat();
        let told = forecast(&line, &before, &seats("a", 2), 0.5, Split::Rows);
        assert_eq!(
            told.before.iter().map(Share::rows).collect::<Vec<_>>(),
            [100; 4]
        );
        assert_eq!(
            told.after.iter().map(Share::rows).collect::<Vec<_>>(),
            [200; 2]
        );
        assert_eq!((told.moved, told.cut), (200, 0));
        let flow = |from, to| Flow {
            from,
            to,
            rows: 100,
        };
        assert_eq!(told.flows, [flow(0, 0), flow(2, 0), flow(1, 1), flow(3, 1)]);
        // Dealt out anew, worker a:1 would have rows of b alone.
        assert_eq!(told.anew, 300);
    }

    #[test]
    fn nothing_moves_where_nothing_changes() {
        let line = Line::new(&[7, 5, 3], None);
        let told = forecast(&line, &seats("a", 2), &seats("a", 2), 0.0, Split::Rows);
        assert_eq!((told.moved, told.anew, told.cut), (0, 0, 1));
        assert_eq!(told.before, told.after);
    }

    #[test]
    fn a_new_host_gets_from_all() {
        let line = Line::new(&[100; 6], None);
        let after = [seats("a", 2), seats("b", 1)].concat();
        let told = forecast(&line, &seats("a", 2), &after, 0.0, Split::Rows);
        assert_eq!(
            told.after.iter().map(Share::rows).collect::<Vec<_>>(),
            [200; 3]
        );
        assert_eq!(told.moved, 200);
    }
}
