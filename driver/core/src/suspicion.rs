//! Suspicion: which host is at fault when rounds end because workers cannot reach each other.
//!
//! A round is *fruitless* if a worker broke away from it, no failure explains that, no member has committed, and the
//! round was short. Short means shorter than the elastic timeout and than the time that the detection of a cut path
//! takes. Each report of a broken round names the hosts that its worker could not reach. A name is a broken link
//! between two hosts. The end at fault is decided when the next round is about to start:
//!
//! 1. If the link between a newcomer and a host of the last round with a commit is broken, the newcomer is blamed at
//!    once: the other hosts are known to work. A host that has also lost its link to another such host does not count
//!    as evidence.
//! 2. After [`PATIENCE`] fruitless rounds in a row, the host with the most broken links is blamed. Ties are broken in
//!    this order: a newcomer before a proven host, then the host that most other hosts name, then the last in the order
//!    of ranks. If no report names a host, the host that alone reported each time is blamed.
//!
//! A failure explains a broken round if it is noticed before the wait for it ends ([`Suspicion::pause`]). A later one
//! explains only the names of the host that failed, because the others may have lost a path long before it. A host that
//! has named a failed host does not count as evidence either: it may have waited for that host in vain.
//!
//! A commit that the next round begins from, or a round that lasts long enough, ends the row and clears all names. If a
//! failure explains the end of a round, and has taken a shard of its commits, the round ends the row for the elastic
//! timeout only. Not promised: that the right one of two hosts that name each other is blamed; after a cooldown the
//! other one is.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use elasticrun_protocol::{CommitId, HostId, Round};

use crate::{
    mutant::{Mutant, planted},
    time::Time,
};

/// Fruitless rounds in a row after which a proven host is blamed.
pub const PATIENCE: u32 = 3;

/// How long to wait for a report of a death after a round broke.
const PAUSE: Duration = Duration::from_millis(100);

/// The longest pause between fruitless rounds.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A host that is blamed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blame {
    /// The host at fault, or with `replaceable` one of the hosts that may be.
    pub host: HostId,
    /// The hosts to which its links are broken.
    pub others: Vec<HostId>,
    /// It is blamed because training can continue without it, and not because it is known to be at fault.
    pub replaceable: bool,
}

/// The judgement of a round that is over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// It left a commit, or lasted long enough.
    pub fruitful: bool,
    /// It was fruitless.
    pub fruitless: bool,
    /// The hosts to blame.
    pub blamed: Vec<Blame>,
}

/// The round that started last.
#[derive(Clone, Debug)]
struct Last {
    round: Round,
    base: Option<CommitId>,
    started: Time,
    ended: Option<Time>,
    /// It broke because of a failed worker or host, or is judged: further reports are late.
    closed: bool,
    /// Its hosts in the order of ranks. Reports contain indices of this list.
    order: Vec<HostId>,
}

/// The reports of a round that broke.
#[derive(Clone, Debug)]
struct Broken {
    /// The host that reported first, unless the round broke without a report.
    reporter: Option<HostId>,
    /// Pairs of a reporting host and a host that it could not reach.
    names: BTreeSet<(HostId, HostId)>,
    /// Hosts that failed after the wait for a failure. They are not blamed, and their names do not outlive the round.
    failed: BTreeSet<HostId>,
}

impl Broken {
    fn new(reporter: Option<HostId>) -> Self {
        Broken {
            reporter,
            names: BTreeSet::new(),
            failed: BTreeSet::new(),
        }
    }

    fn is_explained(&self, (one, other): &(HostId, HostId)) -> bool {
        self.failed.contains(one) || self.failed.contains(other)
    }
}

/// The broken links, and the hosts that are known to work.
#[derive(Clone, Debug, Default)]
pub struct Suspicion {
    last: Option<Last>,
    broken: Option<Broken>,
    /// Hosts of the last round with a commit.
    proven: BTreeSet<HostId>,
    /// Fruitless rounds in a row since a host was last blamed.
    fruitless: u32,
    /// When the first fruitless round in a row ended, even if hosts were blamed since.
    since: Option<Time>,
    /// The number of fruitless rounds after that one.
    more: u32,
    names: BTreeSet<(HostId, HostId)>,
    /// Hosts that reported first without a name, and how often.
    unnamed: BTreeMap<HostId, u32>,
    /// The last round was fruitless and no round has started since.
    idle: bool,
    /// It was announced that the host to blame cannot be spared.
    told: bool,
}

impl Suspicion {
    /// Records the start of a round with its hosts in the order of ranks.
    pub fn started(&mut self, now: Time, round: Round, base: Option<CommitId>, order: Vec<HostId>) {
        (self.broken, self.idle) = (None, false);
        self.last = Some(Last {
            round,
            base,
            started: now,
            ended: None,
            closed: false,
            order,
        });
    }

    /// Records the end of the round that started last.
    pub fn ended(&mut self, now: Time) {
        if let Some(last) = &mut self.last {
            last.ended.get_or_insert(now);
        }
    }

    /// Records that a worker of `host` broke away from a round and could not reach the hosts with these indices.
    pub fn broke(&mut self, round: Round, host: &HostId, unreachable: &[u32]) {
        let current = |last: &&Last| last.round == round && !last.closed;
        let Some(last) = self.last.as_ref().filter(current) else {
            return;
        };
        let broken = (self.broken).get_or_insert_with(|| Broken::new(Some(host.clone())));
        let named = unreachable
            .iter()
            .filter_map(|i| last.order.get(*i as usize));
        (broken.names).extend(named.map(|named| (host.clone(), named.clone())));
    }

    /// The hosts of a round with these indices, as far as the round is known.
    pub fn named(&self, round: Round, indices: &[u32]) -> impl Iterator<Item = &HostId> {
        let last = self.last.as_ref().filter(|last| last.round == round);
        let order = last.map_or(&[][..], |last| &last.order);
        indices.iter().filter_map(|i| order.get(*i as usize))
    }

    /// Records that a host could not begin a round. The host has failed, but the round counts as fruitless, and so may
    /// the next.
    pub fn unable(&mut self, round: Round) {
        if self
            .last
            .as_ref()
            .is_some_and(|last| last.round == round && !last.closed)
        {
            self.broken.get_or_insert_with(|| Broken::new(None));
        }
    }

    /// Records that this host, or a worker on it, failed as a member of the last round. That explains why the round
    /// broke, if it is noticed in time.
    pub fn failed(&mut self, now: Time, host: &HostId) {
        let pause = self.pause();
        let Some(last) = &mut self.last else {
            return;
        };
        last.closed = true;
        let late = last.ended.is_some_and(|ended| ended + pause < now);
        if let Some(broken) = &mut self.broken {
            broken.failed.insert(host.clone());
            let explained = broken.names.iter().all(|pair| broken.is_explained(pair));
            if explained || !late || planted(Mutant::LateExplains) {
                self.broken = None;
            }
        }
    }

    /// Records that all traces of the last round, or parts of its commits, are unreachable, so it is unknown whether it was fruitful. Its members
    /// had found each other and were then lost. The fruitless rounds before and after it do not form a row.
    pub fn unknown(&mut self) {
        (self.since, self.more, self.idle) = (None, 0, false);
    }

    /// How long to wait for a report of a death; longer if rounds break repeatedly.
    pub fn pause(&self) -> Duration {
        let more = (self.fruitless + 1).saturating_sub(PATIENCE).min(6);
        (PAUSE * 2u32.pow(more)).min(LONGEST_PAUSE)
    }

    /// Since when fruitless rounds follow each other. A single one does not count, however long the recovery took.
    pub fn churns_since(&self) -> Option<Time> {
        self.since.filter(|_| self.more > 0)
    }

    /// Since when rounds are fruitless, if no round has started since the last one.
    pub fn idle_since(&self) -> Option<Time> {
        self.since.filter(|_| self.idle)
    }

    /// Whether to announce that the host to blame cannot be spared; true once.
    pub fn tells(&mut self) -> bool {
        !std::mem::replace(&mut self.told, true)
    }

    /// Judges the last round, once, when the next round is about to start from `base`. A round that lasted for `long`
    /// is fruitful. Of the last round of a former driver, only its base is known: `former`. `newest` is the newest commit that is held,
    /// even if shards of it are lost.
    pub fn judge(
        &mut self,
        base: Option<CommitId>,
        newest: Option<CommitId>,
        former: Option<CommitId>,
        long: Duration,
    ) -> Verdict {
        let left_a_commit = |from| base > from && base.is_some_and(|base| base.count > 0);
        let Some(last) = &mut self.last else {
            return Verdict {
                fruitful: left_a_commit(former),
                ..Verdict::default()
            };
        };
        last.closed = true;
        let committed = newest.is_some_and(|newest| newest.round == last.round && newest.count > 0);
        let left_a_commit = left_a_commit(last.base);
        let broken = self.broken.take();
        let lasted = last
            .ended
            .map_or(Duration::ZERO, |ended| ended.since(last.started));
        if left_a_commit {
            self.proven = last.order.iter().cloned().collect();
        }
        if left_a_commit || lasted >= long {
            self.clear();
            return Verdict {
                fruitful: true,
                ..Verdict::default()
            };
        }
        let Some(broken) = broken else {
            if committed {
                // It worked, and a failure has taken a shard of its commits: fruitless rounds before and after it form no row.
                self.unknown();
            }
            return Verdict::default();
        };
        self.fruitless += 1;
        self.more += u32::from(self.since.is_some());
        self.since.get_or_insert(last.ended.unwrap_or(last.started));
        self.idle = true;
        if let Some(reporter) = &broken.reporter
            && broken.names.is_empty()
        {
            *self.unnamed.entry(reporter.clone()).or_default() += 1;
        }
        let earlier = self.names.clone();
        self.names.extend(broken.names.iter().cloned());
        let blamed = self.blamed(&broken.failed);
        // Names that a failure explains count only in this judgement.
        (self.names).retain(|pair| earlier.contains(pair) || !broken.is_explained(pair));
        Verdict {
            fruitful: false,
            fruitless: true,
            blamed,
        }
    }

    /// Resets the patience after the blamed hosts were failed.
    pub fn blame_done(&mut self) {
        self.fruitless = 0;
        self.names.clear();
        self.unnamed.clear();
    }

    fn clear(&mut self) {
        self.blame_done();
        (self.since, self.more, self.idle, self.told) = (None, 0, false, false);
    }

    /// The hosts to blame, except those that have failed.
    fn blamed(&self, failed: &BTreeSet<HostId>) -> Vec<Blame> {
        if planted(Mutant::BlameNever) {
            return Vec::new();
        }
        let order = self.last.as_ref().map_or(&[][..], |last| &last.order);
        let is_newcomer = |host: &HostId| !self.proven.is_empty() && !self.proven.contains(host);
        let links = self.links(order);
        let linked = |host: &HostId| links.get(host).cloned().unwrap_or_default();
        // A host that other proven hosts cannot reach either is not the fault of a newcomer.
        let works = |host: &HostId| {
            let reaches = linked(host).iter().all(is_newcomer) || planted(Mutant::BlameNewcomer);
            !is_newcomer(host) && reaches
        };
        let certain: Vec<_> = (order.iter())
            .filter(|host| is_newcomer(host) && !failed.contains(*host))
            .map(|host| Blame {
                host: host.clone(),
                others: (linked(host).into_iter()).filter(works).collect(),
                replaceable: false,
            })
            .filter(|blame| !blame.others.is_empty())
            .collect();
        if planted(Mutant::BlameProven) && !certain.is_empty() {
            let others = certain.iter().flat_map(|blame| &blame.others);
            return others
                .take(1)
                .map(|host| Blame {
                    host: host.clone(),
                    others: linked(host).into_iter().collect(),
                    replaceable: false,
                })
                .collect();
        }
        let patience = match planted(Mutant::BlameAtOnce) {
            true => 1,
            false => PATIENCE,
        };
        if !certain.is_empty() || self.fruitless < patience {
            return certain;
        }
        let named_by = |host: &HostId| self.names.iter().filter(|(_, named)| named == host).count();
        let worst = (order.iter().enumerate())
            .filter(|(_, host)| links.contains_key(*host) && !failed.contains(*host))
            .max_by_key(|(place, host)| {
                let broken = match () {
                    () if planted(Mutant::BlameFirst) => order.len() - place,
                    () if planted(Mutant::BlameAccuser) => order.len() - linked(host).len(),
                    () => linked(host).len(),
                };
                (broken, is_newcomer(host), named_by(host), *place)
            })
            .map(|(_, host)| host);
        let worst = worst.or_else(|| self.lone_reporter());
        let blame = |host: &HostId| Blame {
            host: host.clone(),
            others: linked(host).into_iter().collect(),
            replaceable: true,
        };
        worst.map(blame).into_iter().collect()
    }

    /// For each host of the round, the hosts to which its link is broken, whichever end reported it.
    fn links(&self, order: &[HostId]) -> BTreeMap<HostId, BTreeSet<HostId>> {
        let mut links: BTreeMap<HostId, BTreeSet<HostId>> = BTreeMap::new();
        let members = |host: &HostId| order.contains(host);
        for (one, other) in &self.names {
            if one != other && members(one) && members(other) {
                links.entry(one.clone()).or_default().insert(other.clone());
                links.entry(other.clone()).or_default().insert(one.clone());
            }
        }
        links
    }

    /// The host that reported each of the fruitless rounds, if no other host reported one.
    fn lone_reporter(&self) -> Option<&HostId> {
        let alone = self.unnamed.len() == 1 && self.names.is_empty();
        let (host, times) = self.unnamed.first_key_value()?;
        (alone && *times >= PATIENCE).then_some(host)
    }
}

#[cfg(test)]
mod tests;
