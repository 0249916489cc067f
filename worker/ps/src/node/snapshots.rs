//! Snapshots of an elastic job: the scheduler begins and completes them, servers save and load ranges.
//!
//! A store may be slow, so a thread of its own ([`super::background`]) reads and writes. The scheduler takes one snapshot at a time. Workers that
//! ask while one is being taken get the next one, since it has what they have pushed.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use super::{Control, Elastic, Node, elastic::LONG, lock, scheduler::Scheduler};
use crate::{
    core::{
        elastic::{
            message::Report,
            snapshot::{Origin, SavedRange},
        },
        node::{NodeId, Role, SCHEDULER},
        ranges::KeyRange,
    },
    error::Error,
    options::Options,
    snapshot::{RangeFile, SnapshotStore, pieces},
};

/// How often the last snapshot is tried, and the pause between two attempts: there may be room on a disk, or a network again.
const LAST_ATTEMPTS: u32 = 4;
const AGAIN: Duration = Duration::from_secs(5);

/// The longest time that a snapshot may take: a store that hangs fails it then.
const LIMIT: Duration = Duration::from_secs(30 * 60);

/// The snapshots of a job, as its scheduler knows them.
#[derive(Debug)]
pub(super) struct Snapshots {
    place: String,
    /// A name of this job.
    job: String,
    /// The number of the next one.
    next: u64,
    newest: u64,
    interval: Option<Duration>,
    /// When the next one is due.
    due: Duration,
    /// The one that is being taken, and since when.
    taking: Option<(u64, Instant)>,
    /// Workers that get its result.
    asked: BTreeSet<NodeId>,
    /// Workers that have asked since it began.
    asked_later: BTreeSet<NodeId>,
    /// Workers that have finished. The last snapshot begins when all have.
    finished: BTreeSet<NodeId>,
    /// Those of them that get the result of the one that is being taken.
    last: BTreeSet<NodeId>,
    /// How often the last snapshot has failed in a row, and when it is tried again.
    failures: u32,
    again: Duration,
    /// All that workers have pushed is saved.
    is_saved: bool,
}

impl Snapshots {
    /// Opens the place of an elastic job, and looks for the newest snapshot.
    ///
    /// # Errors
    /// The place cannot be read or written, or the newest snapshot is damaged.
    pub(super) fn open(options: &Options) -> Result<Option<(Self, Option<Origin>)>, Error> {
        let Some(snapshots) = &options.snapshots else {
            return Ok(None);
        };
        let store = SnapshotStore::open(&snapshots.place)?;
        store.check()?;
        let (newest, next) = store.newest()?;
        let random = getrandom::u64().map_err(|error| Error::Snapshot(error.to_string()))?;
        let job = format!("{random:016x}");
        store.take_over(&job)?;
        store.clean(&job, next);
        let newest = newest.map(|manifest| Origin {
            number: manifest.number,
            apps: manifest.apps,
        });
        let opened = Self {
            place: snapshots.place.clone(),
            job,
            next,
            newest: newest.as_ref().map_or(0, |origin| origin.number),
            interval: snapshots.interval,
            due: snapshots.interval.unwrap_or(LONG),
            taking: None,
            asked: BTreeSet::new(),
            asked_later: BTreeSet::new(),
            finished: BTreeSet::new(),
            last: BTreeSet::new(),
            failures: 0,
            again: Duration::ZERO,
            is_saved: true,
        };
        Ok(Some((opened, newest)))
    }

    /// The number of the next snapshot, if it begins now. `workers` are those that live.
    fn begin(&mut self, now: Duration, serves: bool, workers: &BTreeSet<NodeId>) -> Option<u64> {
        if self.taking.is_some() || !serves {
            return None;
        }
        self.finished.retain(|node| workers.contains(node));
        let have_finished = !workers.is_empty() && self.finished.len() == workers.len();
        let is_last = have_finished && now >= self.again;
        if self.asked_later.is_empty() && now < self.due && !is_last {
            return None;
        }
        if is_last {
            self.last = std::mem::take(&mut self.finished);
        }
        let number = self.next;
        self.next += 1;
        self.taking = Some((number, Instant::now()));
        self.asked = std::mem::take(&mut self.asked_later);
        self.due = now + self.interval.unwrap_or(LONG);
        Some(number)
    }
}

impl Snapshots {
    /// A worker has come, and may push.
    pub(super) fn worker_came(&mut self) {
        self.is_saved = false;
    }

    /// The one that was taken has succeeded or failed. Returns the workers that are told.
    fn ended(&mut self, now: Duration, number: u64, succeeded: bool) -> Vec<NodeId> {
        self.taking = None;
        let mut told = std::mem::take(&mut self.asked);
        let mut last = std::mem::take(&mut self.last);
        if succeeded {
            self.newest = number;
            self.is_saved |= !last.is_empty();
            self.failures = 0;
        } else if !last.is_empty() {
            self.failures += 1;
            if self.failures < LAST_ATTEMPTS {
                self.finished.append(&mut last);
                self.again = now + AGAIN;
            }
        }
        told.append(&mut last);
        told.into_iter().collect()
    }

    /// What is lost if the job ends now.
    pub(super) fn unsaved(&self) -> Option<String> {
        let newest = match self.newest {
            0 => "there is no snapshot".to_owned(),
            newest => format!("the newest snapshot is {newest}"),
        };
        (!self.is_saved).then(|| {
            format!(
                "workers have ended without finalize: what they pushed last is not saved; {newest}"
            )
        })
    }
}

/// What a worker waits for.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// Held by the thread that has asked.
    turn: Mutex<()>,
    pub(super) answer: Mutex<Option<Result<u64, String>>>,
}

/// The scheduler.
impl Node {
    /// A worker asks for a snapshot.
    pub(super) fn snapshot_asked(
        self: &Arc<Self>,
        scheduler: &Mutex<Scheduler>,
        node: NodeId,
        last: bool,
    ) {
        if let Some(snapshots) = &mut lock(scheduler).snapshots {
            match last {
                true => snapshots.finished.insert(node),
                false => snapshots.asked_later.insert(node),
            };
        }
        if self.options.snapshots.is_some() {
            return self.follow_snapshots(scheduler);
        }
        let text = "this job takes none: set ELASTICRUN_PS_SNAPSHOTS for all its nodes";
        let error = Some(text.to_owned());
        self.send_to(&[node], &Control::SaveEnded { number: 0, error });
    }

    /// Begins a snapshot if one is due or wanted, and gives one up that takes too long.
    pub(super) fn follow_snapshots(self: &Arc<Self>, scheduler: &Mutex<Scheduler>) {
        let now = self.now();
        let (number, is_late) = {
            let mut scheduler = lock(scheduler);
            let serves = (scheduler.coordinator.as_ref()).is_some_and(|it| it.map().is_some());
            let living = scheduler.members.living();
            let workers = living
                .filter(|node| node.role() == Some(Role::Worker))
                .collect();
            let Some(snapshots) = &mut scheduler.snapshots else {
                return;
            };
            let taking = snapshots.taking;
            let is_late = taking.is_some_and(|(_, since)| since.elapsed() > LIMIT);
            (snapshots.begin(now, serves, &workers), is_late)
        };
        if let Some(number) = number {
            self.log(1, || format!("snapshot {number} begins"));
            self.coordinate(|coordinator| coordinator.save(number));
        } else if is_late {
            let reason = format!("it was not complete after {LIMIT:?}");
            self.coordinate(|coordinator| coordinator.give_up_saving(&reason));
        }
    }

    /// All ranges are saved, or one cannot be.
    pub(super) fn complete_snapshot(
        self: &Arc<Self>,
        scheduler: &Scheduler,
        number: u64,
        saved: Result<Vec<SavedRange>, String>,
    ) {
        let apps = (scheduler.coordinator.as_ref()).and_then(|it| it.map());
        let apps = apps.map(|map| map.apps.clone()).unwrap_or_default();
        let Some(snapshots) = &scheduler.snapshots else {
            return;
        };
        let (place, job) = (snapshots.place.clone(), snapshots.job.clone());
        self.in_background(
            move |_| {
                let store = SnapshotStore::open(&place)?;
                let completed = saved.map_err(Error::Snapshot).and_then(|ranges| {
                    let bytes: u64 = ranges.iter().map(|range| range.bytes).sum();
                    store.complete(&job, number, &apps, ranges).map(|()| bytes)
                });
                if completed.is_err() {
                    store.clean(&job, number);
                }
                completed
            },
            move |node, completed| node.snapshot_ended(number, completed),
        );
    }

    fn snapshot_ended(self: &Arc<Self>, number: u64, completed: Result<u64, Error>) {
        let Some(scheduler) = &self.scheduler else {
            return;
        };
        let error = completed.as_ref().err().map(reason_of);
        let asked = {
            let mut scheduler = lock(scheduler);
            let Some(snapshots) = &mut scheduler.snapshots else {
                return;
            };
            let took = match snapshots.taking {
                Some((taking, since)) if taking == number => since.elapsed(),
                // It was given up.
                _ => return,
            };
            match &completed {
                Ok(bytes) => {
                    let text = || format!("snapshot {number} has {bytes} bytes, and took {took:?}");
                    self.log(1, text);
                }
                Err(error) => {
                    let newest = snapshots.newest;
                    tracing::error!(number, newest, %error, "a snapshot has failed");
                    self.log(0, || format!("snapshot {number} has failed: {error}"));
                }
            }
            snapshots.ended(self.now(), number, completed.is_ok())
        };
        self.send_to(&asked, &Control::SaveEnded { number, error });
        self.follow_snapshots(scheduler);
    }
}

/// The text of an error, to be sent to another node, which adds what it is about.
fn reason_of(error: &Error) -> String {
    match error {
        Error::Snapshot(reason) => reason.clone(),
        other => other.to_string(),
    }
}

/// A server.
impl Node {
    /// Saves ranges, and tells the scheduler.
    pub(super) fn save_ranges(self: &Arc<Self>, number: u64, ticket: u64, ranges: Vec<KeyRange>) {
        self.in_background(
            move |node| node.write_ranges(number, ticket, &ranges),
            move |node, written| {
                let report = match written {
                    Ok(ranges) => Report::Saved { ticket, ranges },
                    Err(error) => Report::NotSaved {
                        ticket,
                        reason: reason_of(&error),
                    },
                };
                node.tell_scheduler(&Control::Report { report });
            },
        );
    }

    fn write_ranges(
        self: &Arc<Self>,
        number: u64,
        ticket: u64,
        ranges: &[KeyRange],
    ) -> Result<Vec<SavedRange>, Error> {
        let store = self.snapshot_store()?;
        let mut saved = Vec::new();
        for &keys in ranges {
            // Another server saves a range that this one does not serve any more, or the scheduler notices that none has.
            if let Some(file) = self.copy_range(ticket, keys) {
                saved.push(store.write_range(number, keys, &file)?);
            }
        }
        Ok(saved)
    }

    /// The values of a range, if this server serves it until all are copied.
    fn copy_range(self: &Arc<Self>, ticket: u64, keys: KeyRange) -> Option<RangeFile> {
        let mut file = RangeFile::default();
        let mut position = None;
        loop {
            let mut next = None;
            self.with_engine(|engine, _, _| {
                let position = position.get_or_insert_with(|| engine.saving(keys));
                next = engine.next_piece(ticket, keys, position).ok();
            });
            match next? {
                Some(piece) => file.push(piece.app, &piece.chunk),
                None => return Some(file),
            }
        }
    }

    /// Loads ranges, and tells the scheduler.
    pub(super) fn load_ranges(self: &Arc<Self>, number: u64, ticket: u64, ranges: Vec<KeyRange>) {
        self.in_background(
            move |node| node.read_ranges(number, ticket, &ranges),
            move |node, read| {
                let report = match read {
                    Ok(()) => Report::Loaded { ticket },
                    Err(error) => Report::NotLoaded {
                        ticket,
                        reason: reason_of(&error),
                    },
                };
                node.tell_scheduler(&Control::Report { report });
            },
        );
    }

    fn read_ranges(
        self: &Arc<Self>,
        number: u64,
        ticket: u64,
        ranges: &[KeyRange],
    ) -> Result<(), Error> {
        let store = self.snapshot_store()?;
        let manifest = store.manifest(number)?;
        let gone = || {
            Error::Snapshot(format!(
                "snapshot {number} is not in {} here",
                store.place()
            ))
        };
        let manifest = manifest.ok_or_else(gone)?;
        let started = Instant::now();
        let mut bytes = 0;
        for saved in &manifest.ranges {
            let mut own = ranges.iter();
            let overlaps = own.any(|own| own.first <= saved.last && saved.first <= own.last);
            if !overlaps || saved.file.is_empty() {
                continue;
            }
            let file = store.read_range(number, saved)?;
            bytes += saved.bytes;
            let unknown = || Error::Snapshot(format!("{} is of a later release", saved.file));
            for (app, chunk) in pieces(&file).ok_or_else(unknown)? {
                let mut loaded = Ok(true);
                self.with_engine(|engine, _, _| loaded = engine.load_piece(ticket, app, chunk));
                let goes_on = loaded.map_err(|reason| {
                    Error::Snapshot(format!("{} does not fit: {reason}", saved.file))
                })?;
                if !goes_on {
                    return Ok(());
                }
            }
        }
        let took = started.elapsed();
        self.log(1, || {
            format!("loaded {bytes} bytes of snapshot {number} in {took:?}")
        });
        Ok(())
    }

    fn snapshot_store(&self) -> Result<SnapshotStore, Error> {
        let snapshots = self.options.snapshots.as_ref().ok_or_else(|| {
            let text = "set ELASTICRUN_PS_SNAPSHOTS for all nodes of the job";
            Error::Snapshot(text.to_owned())
        })?;
        SnapshotStore::open(&snapshots.place)
    }
}

/// A worker.
impl Node {
    /// Waits until all requests are completed that nobody has waited for, at most for so long.
    pub(crate) fn wait_for_requests(&self, limit: Duration) {
        let start = Instant::now();
        // Their ends wake whoever waits for them, and nothing else.
        while self.in_flight.load(Ordering::SeqCst) > 0 && start.elapsed() < limit {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Has a snapshot taken, and waits for it. Returns its number.
    pub(crate) fn take_snapshot(
        self: &Arc<Self>,
        elastic: &Elastic,
        last: bool,
    ) -> Result<u64, Error> {
        // A job without elastic servers says so.
        elastic.wait_for_map(self.options.request_timeout)?;
        let _turn = lock(&elastic.snapshot.turn);
        *lock(&elastic.snapshot.answer) = None;
        let scheduler = self.connection(SCHEDULER)?;
        self.send_control(&scheduler, &Control::Save { last })?;
        // It answers after `LIMIT`, unless it waits for other workers to finish.
        let limit = if last { LONG } else { LIMIT * 3 };
        match self.wait_for_scheduler(elastic, &elastic.snapshot.answer, limit)? {
            Some(answer) => answer.map_err(Error::Snapshot),
            None => Err(Error::Snapshot("the scheduler does not answer".to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshots() -> Snapshots {
        Snapshots {
            place: String::new(),
            job: String::new(),
            next: 5,
            newest: 4,
            interval: Some(Duration::from_secs(10)),
            due: Duration::from_secs(10),
            taking: None,
            asked: BTreeSet::new(),
            asked_later: BTreeSet::new(),
            finished: BTreeSet::new(),
            last: BTreeSet::new(),
            failures: 0,
            again: Duration::ZERO,
            is_saved: false,
        }
    }

    fn workers(ranks: &[u32]) -> BTreeSet<NodeId> {
        ranks.iter().map(|rank| NodeId::worker(*rank)).collect()
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn one_is_taken_at_a_time_and_when_it_is_due() {
        let mut snapshots = snapshots();
        assert_eq!(snapshots.begin(at(9), true, &workers(&[0])), None);
        assert_eq!(snapshots.begin(at(10), false, &workers(&[0])), None);
        assert_eq!(snapshots.begin(at(10), true, &workers(&[0])), Some(5));
        assert_eq!(snapshots.begin(at(20), true, &workers(&[0])), None);
        snapshots.asked_later.insert(NodeId::worker(0));
        assert_eq!(snapshots.begin(at(21), true, &workers(&[0])), None);
        snapshots.taking = None;
        assert_eq!(snapshots.begin(at(21), true, &workers(&[0])), Some(6));
        assert_eq!(snapshots.asked, workers(&[0]));
    }

    #[test]
    fn the_last_one_begins_when_all_living_workers_have_finished() {
        let mut snapshots = snapshots();
        snapshots.finished.insert(NodeId::worker(0));
        assert_eq!(snapshots.begin(at(1), true, &workers(&[0, 1])), None);
        // The other one has died.
        assert_eq!(snapshots.begin(at(1), true, &workers(&[0])), Some(5));
        assert_eq!(snapshots.ended(at(2), 5, true), [NodeId::worker(0)]);
        assert_eq!(snapshots.unsaved(), None);
        // A worker that takes its place finishes later.
        snapshots.worker_came();
        assert!(snapshots.unsaved().unwrap().contains("snapshot is 5"));
        snapshots.finished.insert(NodeId::worker(1));
        assert_eq!(snapshots.begin(at(2), true, &workers(&[0, 1])), None);
        assert_eq!(snapshots.begin(at(2), true, &workers(&[1])), Some(6));
    }

    #[test]
    fn the_last_one_is_tried_again() {
        let mut snapshots = snapshots();
        snapshots.interval = None;
        snapshots.due = LONG;
        snapshots.finished.insert(NodeId::worker(0));
        let mut now = at(1);
        for attempt in 1..LAST_ATTEMPTS {
            let number = snapshots.begin(now, true, &workers(&[0]));
            let number = number.unwrap_or_else(|| panic!("attempt {attempt}"));
            assert_eq!(snapshots.ended(now, number, false), []);
            assert_eq!(snapshots.begin(now + AGAIN / 2, true, &workers(&[0])), None);
            now += AGAIN;
        }
        let number = snapshots.begin(now, true, &workers(&[0])).unwrap();
        assert_eq!(snapshots.ended(now, number, false), [NodeId::worker(0)]);
    }
}
