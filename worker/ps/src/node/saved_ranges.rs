//! Elastic servers save the ranges that they serve, and load those that they are about to serve.

use std::{sync::Arc, time::Instant};

use super::{Control, Node};
use crate::core::elastic::snapshot::SavedRange;
use crate::{
    core::{elastic::message::Report, ranges::KeyRange},
    error::Error,
    snapshot::{RangeFile, SnapshotStore, pieces},
};

impl Node {
    /// Saves ranges, and tells the scheduler.
    pub(super) fn save_ranges(self: &Arc<Self>, number: u64, ticket: u64, ranges: Vec<KeyRange>) {
        self.report_later(
            move |node| {
                let ranges = node.write_ranges(number, ticket, &ranges)?;
                Ok(Report::Saved { ticket, ranges })
            },
            move |reason| Report::NotSaved { ticket, reason },
        );
    }

    /// Loads ranges, and tells the scheduler.
    pub(super) fn load_ranges(self: &Arc<Self>, number: u64, ticket: u64, ranges: Vec<KeyRange>) {
        self.report_later(
            move |node| {
                node.read_ranges(number, ticket, &ranges)?;
                Ok(Report::Loaded { ticket })
            },
            move |reason| Report::NotLoaded { ticket, reason },
        );
    }

    /// Reports the end of some work, or why it has failed.
    fn report_later(
        self: &Arc<Self>,
        work: impl FnOnce(&Arc<Self>) -> Result<Report, Error> + Send + 'static,
        failed: impl FnOnce(String) -> Report + Send + 'static,
    ) {
        self.in_background(work, move |node, worked| {
            let report = worked.unwrap_or_else(|error| failed(error.snapshot_reason()));
            node.tell_scheduler(&Control::Report { report });
        });
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
