//! The records of the job as entries.

use elasticrun_core::journal::{Change, Record, Saved};

use super::{Entries, Entry, database::now_millis};

/// The entry of a changed record, which is written now.
pub(crate) fn entry(change: Change) -> Entry {
    let Change { key, mut record } = change;
    if let Some(record) = &mut record {
        record.stamp(now_millis());
    }
    let json = |record| serde_json::to_vec(&record).expect("names, numbers and text are JSON");
    Entry {
        key,
        value: record.map(json),
    }
}

/// The records in these entries. An entry of another kind, and a record that this release cannot read, is left out.
#[must_use]
pub fn saved(entries: &Entries) -> Saved {
    let now = now_millis();
    let read = |(key, value): (&String, &Vec<u8>)| {
        let record = serde_json::from_slice::<Record>(value);
        let is_record = || ![super::configuration::KEY, super::epoch::KEY].contains(&key.as_str());
        if let Err(error) = &record
            && is_record()
        {
            tracing::warn!(%error, key, "this release cannot read a record of the journal");
        }
        record.ok().map(|mut record| {
            record.age(now);
            record
        })
    };
    entries.iter().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use elasticrun_core::journal::{DrainEntry, HostEntry, Progress};
    use elasticrun_protocol::{HostId, Round};

    use super::*;

    fn progress(planned: u64) -> Change {
        let record = Record::Progress(Progress {
            planned: Round(planned),
            ..Progress::default()
        });
        Change {
            key: "progress".into(),
            record: Some(record),
        }
    }

    fn entries(changes: Vec<Change>) -> Entries {
        let entries = changes.into_iter().map(entry);
        entries
            .filter_map(|entry| Some((entry.key, entry.value?)))
            .collect()
    }

    #[test]
    fn records_are_read_back() {
        let record = Record::Host(HostEntry {
            host: HostId::new("a/0.1"),
            slots: 2,
            self_registered: true,
            listed: false,
            arrival: 3,
            drain: None,
        });
        let host = Change {
            key: "host/a/0.1".into(),
            record: Some(record.clone()),
        };
        let saved = saved(&entries(vec![progress(7), host]));
        assert_eq!(saved.progress.planned, Round(7));
        assert_eq!(
            saved
                .hosts
                .into_values()
                .map(Record::Host)
                .collect::<Vec<_>>(),
            [record]
        );
    }

    #[test]
    fn the_time_that_a_drain_has_left_passes_without_a_driver() {
        let drain = |left, at| DrainEntry {
            left: Duration::from_secs(left),
            noticed: true,
            drained: false,
            at,
        };
        let host = |drain| HostEntry {
            host: HostId::new("a"),
            slots: 2,
            self_registered: false,
            listed: true,
            arrival: 0,
            drain: Some(drain),
        };
        let change = Change {
            key: "host/a".into(),
            record: Some(Record::Host(host(drain(120, None)))),
        };
        let mut record = saved(&entries(vec![change])).hosts[&HostId::new("a")].clone();
        let now = record
            .drain
            .and_then(|drain| drain.at)
            .expect("it is stamped");
        for (passed, left) in [(100, 20), (500, 0)] {
            let mut later = Record::Host(host(drain(120, Some(now))));
            later.age(now + passed * 1000);
            assert_eq!(later, Record::Host(host(drain(left, Some(now)))));
        }
        // A clock that was set back.
        record.drain = Some(drain(120, Some(now)));
        let mut later = Record::Host(record.clone());
        later.age(now - 1);
        assert_eq!(later, Record::Host(record));
    }

    #[test]
    fn a_record_of_another_release_is_read_as_far_as_it_is_known() {
        let mut entries = entries(vec![progress(7)]);
        let newer = br#"{"progress":{"planned":9,"sundown":true}}"#;
        entries.insert("progress".into(), newer.to_vec());
        entries.insert("sundial/a".into(), br#"{"sundial":{}}"#.to_vec());
        entries.insert("host/a".into(), br#"{"host":{"host":"a"}}"#.to_vec());
        let saved = saved(&entries);
        assert_eq!(saved.progress.planned, Round(9));
        assert_eq!(saved.progress.started, 0);
        assert_eq!(saved.hosts.len(), 1);
    }

    #[test]
    fn the_record_of_an_object_that_is_gone_is_removed() {
        let gone = Change {
            key: "host/a".into(),
            record: None,
        };
        assert_eq!(entry(gone).value, None);
    }
}
