//! Snapshots of an elastic job: the scheduler begins and completes them, and workers ask for them. Servers: [`super::saved_ranges`].
//!
//! A store may be slow, so a thread of its own ([`super::background`]) reads and writes. The scheduler takes one snapshot at a time. Workers that
//! ask while one is being taken get the next one, since it has what they have pushed.

use std::{
    sync::{Arc, Mutex, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use super::{Control, Elastic, Node, elastic::LONG, lock, scheduler::Scheduler};
use crate::{
    core::{
        elastic::{
            snapshot::{Origin, SavedRange},
            snapshot_schedule::{LIMIT, Schedule},
        },
        node::{NodeId, Role, SCHEDULER},
    },
    error::Error,
    options::Options,
    snapshot::SnapshotStore,
};

/// The snapshots of a job, as its scheduler knows them.
#[derive(Debug)]
pub(super) struct Snapshots {
    place: String,
    /// A name of this job.
    job: String,
    pub(super) schedule: Schedule,
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
        let number = newest.as_ref().map_or(0, |origin| origin.number);
        let opened = Self {
            place: snapshots.place.clone(),
            job,
            schedule: Schedule::new(snapshots.interval, number, next),
        };
        Ok(Some((opened, newest)))
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
            snapshots.schedule.ask(node, last);
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
        let (number, late) = {
            let mut scheduler = lock(scheduler);
            let serves = (scheduler.coordinator.as_ref()).is_some_and(|it| it.map().is_some());
            let living = scheduler.members.living();
            let workers = living
                .filter(|node| node.role() == Some(Role::Worker))
                .collect();
            let Some(snapshots) = &mut scheduler.snapshots else {
                return;
            };
            let schedule = &mut snapshots.schedule;
            (schedule.begin(now, serves, &workers), schedule.late(now))
        };
        if let Some(number) = number {
            self.log(1, || format!("snapshot {number} begins"));
            self.coordinate(|coordinator| coordinator.save(number));
        } else if let Some(number) = late {
            let reason = format!("it was not complete after {LIMIT:?}");
            self.coordinate(|coordinator| coordinator.give_up_saving(&reason));
            // Servers may be done, and the store of this node hangs: then nothing else ends it.
            self.snapshot_ended(number, Err(Error::Snapshot(reason)));
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
        let error = completed.as_ref().err().map(Error::snapshot_reason);
        let asked = {
            let mut scheduler = lock(scheduler);
            let Some(snapshots) = &mut scheduler.snapshots else {
                return;
            };
            let schedule = &mut snapshots.schedule;
            // `None`: it was given up.
            let Some(took) = schedule.took(self.now(), number) else {
                return;
            };
            match &completed {
                Ok(bytes) => {
                    let text = || format!("snapshot {number} has {bytes} bytes, and took {took:?}");
                    self.log(1, text);
                }
                Err(error) => {
                    let newest = schedule.newest();
                    tracing::error!(number, newest, %error, "a snapshot has failed");
                    self.log(0, || format!("snapshot {number} has failed: {error}"));
                }
            }
            schedule.ended(self.now(), number, completed.is_ok())
        };
        self.send_to(&asked, &Control::SaveEnded { number, error });
        self.follow_snapshots(scheduler);
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
