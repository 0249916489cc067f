//! Laws of the repartition over random histories of a data set: 20,000 cases. Each is compared with the formula of the
//! lower bound and with the enumeration of all even plans.

use std::{collections::BTreeMap, iter};

use elasticrun_core::random::Random;
use elasticrun_ledger::{
    EpochLayout, FormerMember, Member, Plan, Share, Shuffle, Split, repartition,
};
use proptest::prelude::*;

/// What is left of an epoch after some rounds, and the members of the next one.
#[derive(Debug)]
struct Case {
    layout: EpochLayout,
    largest: u64,
    former: Vec<(Share, u64)>,
    members: Vec<Member>,
    split: Split,
}

impl Case {
    fn new(seed: u64) -> Self {
        let random = &mut Random::from_seed(seed);
        let max_rows = [1, 8, 60][random.below(3) as usize];
        let groups: Vec<u32> = (0..random.below(20))
            .map(|_| random.below(max_rows) as u32)
            .collect();
        let layout = EpochLayout::new(&groups, Some(Shuffle { seed, epoch: 0 }));
        let split = if random.below(4) == 0 {
            Split::Never
        } else {
            Split::Rows
        };
        // At first one worker has everything.
        let all = iter::once(0..layout.rows()).collect();
        let mut case = Case {
            largest: groups.iter().copied().max().unwrap_or(0).into(),
            layout,
            former: vec![(all, 0)],
            members: Vec::new(),
            split,
        };
        case.members = case.next(random);
        for _ in 0..random.below(4) {
            let plan = case.plan();
            case.former = (plan.shares.into_iter().zip(&case.members))
                .map(|(share, member)| (case.work(share, random), member.host))
                .collect();
            case.members = case.next(random);
        }
        case
    }

    /// The members of the next round: some stay and some are new, in any order of ranks.
    fn next(&self, random: &mut Random) -> Vec<Member> {
        let (hosts, weights) = (1 + random.below(3), 1 + random.below(3));
        let mut member = |former: Option<usize>| Member {
            former,
            weight: if weights == 3 {
                1 + random.below(4) as u32
            } else {
                1
            },
            host: former.map_or(random.below(hosts), |former| self.former[former].1),
            zone: 0,
        };
        let mut members: Vec<Member> = (0..self.former.len())
            .map(|former| member(Some(former)))
            .collect();
        members.extend((0..3).map(|_| member(None)));
        for index in (1..members.len()).rev() {
            members.swap(index, random.below(index as u64 + 1) as usize);
        }
        members.truncate(1 + random.below(members.len().min(6) as u64) as usize);
        members
    }

    /// What is left after a worker has processed a part: it opens pieces in order, and reads from the open ones in
    /// turn.
    fn work(&self, share: Share, random: &mut Random) -> Share {
        let pieces: Vec<_> = share.segments(&self.layout).collect();
        let opened = random.below(pieces.len() as u64 + 1) as usize;
        (pieces.into_iter().enumerate())
            .map(|(index, piece)| {
                let range = piece.range();
                let len = range.end - range.start;
                let done = if index < opened {
                    random.below(len + 1)
                } else {
                    0
                };
                range.start + done..range.end
            })
            .collect()
    }

    fn plan(&self) -> Plan {
        let former: Vec<_> = (self.former.iter())
            .map(|(share, host)| FormerMember {
                share,
                host: *host,
                zone: 0,
            })
            .collect();
        repartition(&self.layout, &former, &self.members, self.split)
    }

    fn total(&self) -> u64 {
        self.former.iter().map(|(share, _)| share.rows()).sum()
    }

    fn held(&self, member: &Member) -> u64 {
        member
            .former
            .map_or(0, |former| self.former[former].0.rows())
    }

    /// The rows of departed workers, which move in any plan.
    fn orphans(&self) -> u64 {
        self.total()
            - self
                .members
                .iter()
                .map(|member| self.held(member))
                .sum::<u64>()
    }

    /// For each member, its proportion rounded down, and whether it was rounded.
    fn proportions(&self) -> Vec<(u64, bool)> {
        let sum: u64 = self
            .members
            .iter()
            .map(|member| u64::from(member.weight))
            .sum();
        (self.members.iter())
            .map(|member| {
                let exact = self.total() * u64::from(member.weight);
                (exact / sum, !exact.is_multiple_of(sum))
            })
            .collect()
    }

    /// The lower bound of the documentation.
    fn bound(&self) -> u64 {
        let proportions = self.proportions();
        let remaining = self.total() - proportions.iter().map(|(rows, _)| rows).sum::<u64>();
        let all = || {
            self.members
                .iter()
                .map(|member| self.held(member))
                .zip(&proportions)
        };
        let surplus: u64 = all()
            .map(|(held, (rows, _))| held.saturating_sub(*rows))
            .sum();
        let keepers = all()
            .filter(|(held, (rows, rounded))| *rounded && held > rows)
            .count();
        self.orphans() + surplus - remaining.min(keepers as u64)
    }

    /// The fewest rows that any even plan moves, over all choices of the members that get one row more.
    fn fewest(&self) -> u64 {
        let proportions = self.proportions();
        let remaining = self.total() - proportions.iter().map(|(rows, _)| rows).sum::<u64>();
        (0_u32..1 << self.members.len())
            .filter(|choice| u64::from(choice.count_ones()) == remaining)
            .filter(|choice| {
                proportions
                    .iter()
                    .enumerate()
                    .all(|(index, (_, rounded))| *rounded || choice >> index & 1 == 0)
            })
            .map(|choice| {
                let moved = self.members.iter().enumerate().map(|(index, member)| {
                    let quota = proportions[index].0 + u64::from(choice >> index & 1);
                    self.held(member).saturating_sub(quota)
                });
                self.orphans() + moved.sum::<u64>()
            })
            .min()
            .expect("one choice fits")
    }
}

/// The reader of each row.
fn readers<'a>(shares: impl Iterator<Item = &'a Share>) -> BTreeMap<u64, usize> {
    let mut readers = BTreeMap::new();
    for (reader, share) in shares.enumerate() {
        for row in share.ranges().iter().cloned().flatten() {
            assert_eq!(
                readers.insert(row, reader),
                None,
                "row {row} has two readers"
            );
        }
    }
    readers
}

fn pieces<'a>(layout: &EpochLayout, shares: impl Iterator<Item = &'a Share>) -> usize {
    shares
        .map(|share| share.clone().segments(layout).count())
        .sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn a_plan_is_even_whole_and_moves_the_fewest_rows(seed: u64) {
        let case = Case::new(seed);
        let plan = case.plan();
        let before = readers(case.former.iter().map(|(share, _)| share));
        let after = readers(plan.shares.iter());
        prop_assert!(before.keys().eq(after.keys()), "rows came or went");

        let moved = (after.iter())
            .filter(|(row, reader)| case.members[**reader].former != Some(before[row]))
            .count() as u64;
        prop_assert_eq!(plan.moved, moved);

        let pieces_before = pieces(&case.layout, case.former.iter().map(|(share, _)| share));
        let pieces_after = pieces(&case.layout, plan.shares.iter());
        let loads: Vec<u64> = plan.shares.iter().map(Share::rows).collect();
        match case.split {
            Split::Rows => {
                for (load, (rows, rounded)) in loads.iter().zip(case.proportions()) {
                    prop_assert!(*load == rows || rounded && *load == rows + 1, "{loads:?}");
                }
                prop_assert_eq!(moved, case.bound());
                prop_assert_eq!(moved, case.fewest());
                prop_assert!(pieces_after < pieces_before + case.members.len());
            }
            Split::Never => {
                prop_assert!(pieces_after <= pieces_before);
                for (load, (rows, _)) in loads.iter().zip(case.proportions()) {
                    prop_assert!(*load <= rows + case.largest, "{loads:?}");
                }
            }
        }
    }

    #[test]
    fn rows_stay_on_their_host_if_they_can(seed: u64) {
        let mut case = Case::new(seed);
        case.split = Split::Rows;
        let plan = case.plan();
        let before = readers(case.former.iter().map(|(share, _)| share));
        let after = readers(plan.shares.iter());
        // Given and received rows, by host.
        let (mut given, mut received, mut stayed) = (BTreeMap::new(), BTreeMap::new(), 0_u64);
        for (row, reader) in &after {
            let (member, owner) = (&case.members[*reader], before[row]);
            if member.former != Some(owner) {
                *given.entry(case.former[owner].1).or_insert(0_u64) += 1;
                *received.entry(member.host).or_insert(0_u64) += 1;
                stayed += u64::from(case.former[owner].1 == member.host);
            }
        }
        let possible: u64 = given.iter().map(|(host, rows)| rows.min(received.get(host).unwrap_or(&0))).sum();
        prop_assert_eq!(stayed, possible);
    }
}
