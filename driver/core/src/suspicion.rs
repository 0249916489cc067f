//! Suspicion: which host is to blame when rounds end because workers cannot reach each other.
//!
//! A round is *fruitless* if a worker broke away from it, no failure explains that, no member has committed, and it was
//! shorter than the elastic timeout, or than the time in which a path that is cut is found out. Each report of a broken round names the hosts that its worker could not reach. A
//! name is a broken link between two hosts; which end is at fault is judged when the next round is about to start:
//!
//! 1. A broken link between a newcomer and a host of the last round that left a commit: the newcomer is blamed at once,
//!    since the others are known to work. A host that has lost its link with another of them is not.
//! 2. After [`PATIENCE`] fruitless rounds in a row the host with most broken links is blamed. Of several it is a newcomer
//!    rather than a proven host, then the one that most others name, then the last in the order of ranks. If no report
//!    names a host, it is the one that alone reported each time.
//!
//! Whoever commits, or trains for the elastic timeout, ends the row and clears all names. Not promised: that the right
//! one of two hosts is blamed which name each other; a cooldown later the other order is tried.

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

/// How long to wait for news of a death after a round broke.
const PAUSE: Duration = Duration::from_millis(100);

/// The longest pause between fruitless rounds.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A host that is blamed, and the hosts it has no link with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blame {
    /// The host.
    pub host: HostId,
    /// The other ends.
    pub others: Vec<HostId>,
    /// It was blamed since training can go on without it, not since it is known to be at fault.
    pub replaceable: bool,
}

/// What the round that is over was good for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// It left a commit, or lasted.
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
    /// It broke for a worker or host that failed, or is judged: what is said of it now is late.
    closed: bool,
    /// Its hosts in the order of ranks: the indices of reports.
    order: Vec<HostId>,
}

/// What is known of a round that broke.
#[derive(Clone, Debug)]
struct Broken {
    /// Who said it first, if it named no host.
    reporter: Option<HostId>,
    /// `(who says it, whom it could not reach)`.
    names: BTreeSet<(HostId, HostId)>,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Suspicion {
    last: Option<Last>,
    broken: Option<Broken>,
    /// Hosts of the last round that left a commit.
    proven: BTreeSet<HostId>,
    /// Fruitless rounds in a row, since somebody was blamed.
    fruitless: u32,
    /// When the first of them ended, whoever was blamed since.
    since: Option<Time>,
    /// How many have followed it.
    more: u32,
    names: BTreeSet<(HostId, HostId)>,
    /// Hosts that broke away first and named no host, and how often.
    unnamed: BTreeMap<HostId, u32>,
    /// The last round was fruitless and none has started since.
    idle: bool,
    /// The operator knows that nobody can be blamed.
    told: bool,
}

impl Suspicion {
    /// A round has started with these hosts, in the order of ranks.
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

    /// The round that started last is over.
    pub fn ended(&mut self, now: Time) {
        if let Some(last) = &mut self.last {
            last.ended.get_or_insert(now);
        }
    }

    /// A worker of `host` broke away from a round and could not reach the hosts of these indices.
    pub fn broke(&mut self, round: Round, host: &HostId, unreachable: &[u32]) {
        let current = |last: &&Last| last.round == round && !last.closed;
        let Some(last) = self.last.as_ref().filter(current) else {
            return;
        };
        let broken = self.broken.get_or_insert_with(|| Broken {
            reporter: Some(host.clone()),
            names: BTreeSet::new(),
        });
        let named = unreachable
            .iter()
            .filter_map(|i| last.order.get(*i as usize));
        (broken.names).extend(named.map(|named| (host.clone(), named.clone())));
    }

    /// A host could not begin a round. It has failed; but the round was fruitless, and one more may be.
    pub fn unable(&mut self, round: Round) {
        if self
            .last
            .as_ref()
            .is_some_and(|last| last.round == round && !last.closed)
        {
            self.broken.get_or_insert_with(|| Broken {
                reporter: None,
                names: BTreeSet::new(),
            });
        }
    }

    /// A worker or host failed: the round broke for that.
    pub fn explained(&mut self) {
        self.broken = None;
        if let Some(last) = &mut self.last {
            last.closed = true;
        }
    }

    /// All that the last round left is out of reach, and nobody knows whether it was fruitful: its members had found
    /// each other, and were lost. The fruitless rounds before it and after it do not follow each other.
    pub fn unknown(&mut self) {
        (self.since, self.more, self.idle) = (None, 0, false);
    }

    /// How long to wait for news of a death: longer if rounds break again and again.
    pub fn pause(&self) -> Duration {
        let more = (self.fruitless + 1).saturating_sub(PATIENCE).min(6);
        (PAUSE * 2u32.pow(more)).min(LONGEST_PAUSE)
    }

    /// Since when fruitless rounds follow each other. One alone is a round that broke, however long it took to come back.
    pub fn churns_since(&self) -> Option<Time> {
        self.since.filter(|_| self.more > 0)
    }

    /// Since when there was no fruit, if no round has started since the last one.
    pub fn idle_since(&self) -> Option<Time> {
        self.since.filter(|_| self.idle)
    }

    /// Whether the operator is to be told, once, that the host to blame cannot be spared.
    pub fn tells(&mut self) -> bool {
        !std::mem::replace(&mut self.told, true)
    }

    /// The next round is about to start from `base`: judges the last one, once. One that lasted for `long` was good.
    pub fn judge(&mut self, base: Option<CommitId>, long: Duration) -> Verdict {
        let Some(last) = &mut self.last else {
            return Verdict::default();
        };
        last.closed = true;
        let left_a_commit = base > last.base && base.is_some_and(|base| base.count > 0);
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
            return Verdict::default();
        };
        self.fruitless += 1;
        self.more += u32::from(self.since.is_some());
        self.since.get_or_insert(last.ended.unwrap_or(last.started));
        self.idle = true;
        if let Some(reporter) = broken.reporter.filter(|_| broken.names.is_empty()) {
            *self.unnamed.entry(reporter).or_default() += 1;
        }
        self.names.extend(broken.names);
        Verdict {
            fruitful: false,
            fruitless: true,
            blamed: self.blamed(),
        }
    }

    /// The blamed hosts were failed: the others are given the same patience.
    pub fn blame_done(&mut self) {
        self.fruitless = 0;
        self.names.clear();
        self.unnamed.clear();
    }

    fn clear(&mut self) {
        self.blame_done();
        (self.since, self.more, self.idle, self.told) = (None, 0, false, false);
    }

    fn blamed(&self) -> Vec<Blame> {
        if planted(Mutant::BlameNever) {
            return Vec::new();
        }
        let order = self.last.as_ref().map_or(&[][..], |last| &last.order);
        let is_newcomer = |host: &HostId| !self.proven.is_empty() && !self.proven.contains(host);
        let links = self.links(order);
        let linked = |host: &HostId| links.get(host).cloned().unwrap_or_default();
        // What other proven hosts cannot reach either is no newcomer's fault.
        let works = |host: &HostId| {
            let reaches = linked(host).iter().all(is_newcomer) || planted(Mutant::BlameNewcomer);
            !is_newcomer(host) && reaches
        };
        let certain: Vec<_> = (order.iter())
            .filter(|host| is_newcomer(host))
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
            .filter(|(_, host)| links.contains_key(*host))
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

    /// For each host of the round those with which it has no link, whoever of both says so.
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

    /// The host that reported each of the fruitless rounds, if nobody else reported one.
    fn lone_reporter(&self) -> Option<&HostId> {
        let alone = self.unnamed.len() == 1 && self.names.is_empty();
        let (host, times) = self.unnamed.first_key_value()?;
        (alone && *times >= PATIENCE).then_some(host)
    }
}
