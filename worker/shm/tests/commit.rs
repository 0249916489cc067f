//! Commits, from the view of their writer and their readers.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::{
    io::Write,
    os::fd::{AsFd, OwnedFd},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use elasticrun_protocol::{CommitId, CommitKey, DriverEpoch, Round, Shard};
use elasticrun_shm::{
    Copying, Part,
    commit::{CommitMemory, CommitReader, CommitWriter, Error},
    memfd::{self, Mapping},
};

fn id(round: u64, count: u64) -> CommitId {
    CommitId {
        epoch: DriverEpoch(1),
        round: Round(round),
        count,
    }
}

fn owned(memory: &CommitMemory) -> Vec<OwnedFd> {
    let fds = memory.fds(3).into_iter();
    fds.map(|fd| fd.try_clone_to_owned().unwrap()).collect()
}

fn open() -> (CommitMemory, CommitWriter, CommitReader) {
    let memory = CommitMemory::create().unwrap();
    let writer = CommitWriter::open(owned(&memory)).unwrap();
    let reader = memory.reader().unwrap();
    (memory, writer, reader)
}

fn commit(writer: &mut CommitWriter, id: CommitId, bytes: &[u8]) {
    let mut write = writer.begin(id, 7).unwrap();
    write.write_all(bytes).unwrap();
    write.seal(None);
}

fn read(reader: &CommitReader, id: CommitId) -> Vec<u8> {
    let commit = reader.read(id).unwrap();
    let bytes = commit.bytes().to_vec();
    assert!(commit.is_intact());
    bytes
}

fn ids(reader: &CommitReader) -> Vec<CommitId> {
    let commits = reader.commits().unwrap();
    commits.iter().map(|info| info.id).collect()
}

#[test]
fn an_open_commit_has_what_was_copied_to_it_before_the_seal() {
    let (_memory, mut writer, reader) = open();
    commit(&mut writer, id(1, 1), b"before");
    let len = 3_000_000;
    let mut write = writer.begin(id(1, 2), 7).unwrap();
    write.write_all(b"head").unwrap();
    write.append(len).unwrap();
    let open = write.leave_open();
    let place = writer.place(&open);
    assert_eq!(place.len, len + 4);
    let bytes: Vec<u8> = (0..len).map(|pos| (pos % 251) as u8).collect();
    let part = Part {
        from: bytes.as_ptr(),
        to: std::ptr::with_exposed_provenance_mut(place.address + 4),
        len,
    };
    // SAFETY: the place is that of an open commit, and both are left alone until the wait has returned.
    let copying = unsafe { Copying::start(vec![part]) }.unwrap();
    assert_eq!(ids(&reader), [id(1, 1)]);
    copying.wait();
    writer.seal(open).unwrap();
    assert_eq!(read(&reader, id(1, 2)), [b"head", &bytes[..]].concat());
}

/// Who has page-locked a buffer learns that it has other pages.
#[test]
fn the_place_of_a_buffer_changes_with_its_pages() {
    let (_memory, mut writer, _reader) = open();
    let mut place = |count: u64, len: usize, limit: Option<u64>| {
        writer.set_limit(limit);
        let mut write = writer.begin(id(1, count), 7).unwrap();
        write.append(len).unwrap();
        let open = write.leave_open();
        let place = writer.place(&open).buffer;
        writer.seal(open).unwrap();
        place
    };
    let first = [place(1, 1_000_000, None), place(2, 1_000_000, None)];
    let again = [place(3, 1_000_000, None), place(4, 900_000, None)];
    assert_eq!(first.map(|buffer| buffer.index), [0, 1]);
    assert_eq!(first, again);
    let grown = place(5, 50_000_000, None);
    assert_eq!(grown.index, 0);
    assert!(grown.version > first[0].version && grown.allocated > 50_000_000);
}

#[test]
fn the_two_newest_commits_are_kept() {
    let (_memory, mut writer, reader) = open();
    assert_eq!(ids(&reader), []);
    assert_eq!(writer.newest().unwrap(), None);
    for count in 0..5_u64 {
        let bytes = vec![count as u8; 10_000 * count as usize];
        commit(&mut writer, id(1, count), &bytes);
        assert_eq!(read(&reader, id(1, count)), bytes);
        assert_eq!(writer.read(id(1, count)).unwrap().1, bytes);
    }
    assert_eq!(ids(&reader), [id(1, 4), id(1, 3)]);
    assert!(matches!(reader.read(id(1, 2)), Err(Error::Gone { .. })));
    let info = reader.newest().unwrap().unwrap();
    assert_eq!(
        (info.len, info.state_version, info.digest),
        (40_000, 7, None)
    );
}

#[test]
fn a_commit_that_is_left_open_counts_once_it_is_sealed() {
    let (_memory, mut writer, reader) = open();
    commit(&mut writer, id(1, 1), b"one");
    let write = |writer: &mut CommitWriter, bytes: &[u8]| {
        let mut write = writer.begin(id(2, 0), 0).unwrap();
        write.write_all(bytes).unwrap();
        write.leave_open()
    };
    let first = write(&mut writer, b"differs");
    assert_eq!(ids(&reader), [id(1, 1)]);
    let second = write(&mut writer, b"same");
    assert_eq!(read(&reader, id(1, 1)), b"one");
    // It was written over.
    assert!(matches!(writer.seal(first), Err(Error::Gone { .. })));
    assert_eq!(ids(&reader), [id(1, 1)]);
    writer.seal(second).unwrap();
    assert_eq!(ids(&reader), [id(2, 0), id(1, 1)]);
    assert_eq!(read(&reader, id(2, 0)), b"same");
    assert!(matches!(writer.seal(second), Err(Error::Gone { .. })));
}

#[test]
fn a_commit_counts_only_once_it_is_sealed() {
    let (_memory, mut writer, reader) = open();
    commit(&mut writer, id(1, 0), b"zero");
    commit(&mut writer, id(1, 1), b"one");
    let mut write = writer.begin(id(1, 2), 0).unwrap();
    write.write_all(b"two").unwrap();
    assert_eq!(write.bytes(), b"two");
    assert_eq!(ids(&reader), [id(1, 1)], "the older one is overwritten");
    drop(write);
    assert_eq!(ids(&reader), [id(1, 1)]);

    let mut write = writer.begin(id(1, 2), 3).unwrap();
    write.reserve(8).unwrap();
    write.append(4).unwrap().copy_from_slice(b"more");
    write.append(2).unwrap().copy_from_slice(b"!!");
    assert_eq!((write.len(), write.is_empty()), (6, false));
    let info = write.seal(Some(0xfeed));
    assert_eq!(reader.newest().unwrap(), Some(info));
    assert_eq!(info.digest, Some(0xfeed));
    assert_eq!(read(&reader, id(1, 2)), b"more!!");
}

#[test]
fn an_empty_state_is_a_commit() {
    let (_memory, mut writer, reader) = open();
    writer.begin(id(1, 0), 0).unwrap().seal(None);
    assert_eq!(read(&reader, id(1, 0)), b"");
}

#[test]
fn ids_only_grow() {
    let (_memory, mut writer, _reader) = open();
    commit(&mut writer, id(2, 3), b"");
    for stale in [id(2, 3), id(2, 2), id(1, 9)] {
        assert!(matches!(
            writer.begin(stale, 0),
            Err(Error::NotNewer { .. })
        ));
        assert!(writer.rename_newest(stale).is_err());
    }
    assert_eq!(writer.newest().unwrap().unwrap().id, id(2, 3));
}

#[test]
fn a_void_commit_is_overwritten_and_the_base_stays() {
    let (_memory, mut writer, reader) = open();
    commit(&mut writer, id(1, 5), b"base");
    commit(&mut writer, id(1, 6), b"void");
    writer.discard_newer(id(1, 5));
    assert_eq!(ids(&reader), [id(1, 5)]);
    assert_eq!(writer.read(id(1, 5)).unwrap().1, b"base");

    let mut write = writer.begin(id(2, 0), 0).unwrap();
    write.write_all(b"new").unwrap();
    assert_eq!(read(&reader, id(1, 5)), b"base");
    write.seal(None);
    assert_eq!(ids(&reader), [id(2, 0), id(1, 5)]);

    // The other way round: the void commit is in the other buffer.
    commit(&mut writer, id(2, 1), b"base again");
    commit(&mut writer, id(2, 2), b"void again");
    writer.discard_newer(id(2, 1));
    writer.begin(id(3, 0), 0).unwrap().write_all(b"x").unwrap();
    assert_eq!(ids(&reader), [id(2, 1)]);
    assert_eq!(read(&reader, id(2, 1)), b"base again");

    // A worker that held only void commits has nothing, and can commit again.
    writer.discard_newer(id(2, 0));
    assert_eq!(ids(&reader), []);
    commit(&mut writer, id(3, 0), b"synced");
    assert_eq!(ids(&reader), [id(3, 0)]);
}

#[test]
fn the_start_of_a_round_renames_the_base() {
    let (_memory, mut writer, reader) = open();
    assert!(writer.rename_newest(id(1, 0)).is_err(), "nothing to rename");
    commit(&mut writer, id(1, 4), b"older");
    commit(&mut writer, id(1, 5), b"base");
    for round in 2..5 {
        writer.rename_newest(id(round, 0)).unwrap();
        assert_eq!(ids(&reader), [id(round, 0), id(1, 4)]);
        assert_eq!(read(&reader, id(round, 0)), b"base");
        assert_eq!(reader.newest().unwrap().unwrap().state_version, 7);
    }
    commit(&mut writer, id(4, 1), b"next");
    assert_eq!(ids(&reader), [id(4, 1), id(4, 0)]);
    assert_eq!(read(&reader, id(4, 0)), b"base");
}

#[test]
fn a_growth_that_fails_leaves_the_newest_commit() {
    let (memory, mut writer, reader) = open();
    commit(&mut writer, id(1, 0), &[1; 100_000]);
    commit(&mut writer, id(1, 1), &[2; 100_000]);
    for fd in memory.fds(3) {
        memfd::seal_size(&fd).unwrap();
    }
    assert!(writer.reserve(1 << 30).is_err());
    let mut write = writer.begin(id(1, 2), 0).unwrap();
    let error = write.write_all(&vec![3; 64 << 20]).unwrap_err();
    assert!(error.to_string().contains("cannot grow"), "{error}");
    assert!(write.append(usize::MAX).is_err());
    drop(write);
    assert_eq!(ids(&reader), [id(1, 1)]);
    assert_eq!(read(&reader, id(1, 1)), [2; 100_000]);
    commit(&mut writer, id(1, 2), &[4; 100_000]);
    assert_eq!(read(&reader, id(1, 2)), [4; 100_000]);
}

#[test]
fn a_process_that_takes_the_memory_over_finds_and_keeps_its_commits() {
    let (memory, mut writer, _reader) = open();
    writer.reserve(3 << 20).unwrap();
    commit(&mut writer, id(1, 0), b"zero");
    commit(&mut writer, id(1, 1), &[1; 3 << 20]);
    drop(writer);
    let mut writer = CommitWriter::open(owned(&memory)).unwrap();
    assert_eq!(writer.read(id(1, 1)).unwrap().1, [1; 3 << 20]);
    commit(&mut writer, id(1, 2), &[2; 6 << 20]);

    // Another process restores through read-only descriptors.
    let reader = CommitReader::open(memory.read_only().unwrap()).unwrap();
    drop(memory);
    assert_eq!(read(&reader, id(1, 2)), [2; 6 << 20]);
    assert_eq!(read(&reader, id(1, 1)), [1; 3 << 20]);
    assert!(CommitWriter::open(CommitMemory::create().unwrap().read_only().unwrap()).is_err());
}

#[test]
fn a_live_reader_never_sees_less_than_it_saw() {
    const READS: u64 = 2_000;
    let (_memory, mut writer, reader) = open();
    commit(&mut writer, id(1, 0), &[0; 64]);
    let done = AtomicBool::new(false);
    let acknowledged = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let (mut last, mut reads, mut intact) = (0, 0, 0);
            while reads < READS || intact == 0 {
                let least = acknowledged.load(Ordering::SeqCst);
                let newest = match reader.newest() {
                    Err(Error::Busy) => continue,
                    newest => newest.unwrap().expect("there always is one"),
                };
                assert!(newest.id.count >= least.max(last));
                last = newest.id.count;
                reads += 1;
                let Ok(commit) = reader.read(newest.id) else {
                    continue;
                };
                let bytes = commit.bytes().to_vec();
                if commit.is_intact() {
                    intact += 1;
                    let byte = newest.id.count as u8;
                    assert!(bytes.len() == 64 + usize::from(byte));
                    assert!(bytes.iter().all(|found| *found == byte));
                }
            }
        });
        scope.spawn(|| {
            for count in 1.. {
                if done.load(Ordering::SeqCst) {
                    break;
                }
                let byte = count as u8;
                let bytes = vec![byte; 64 + usize::from(byte)];
                commit(&mut writer, id(1, count), &bytes);
                acknowledged.store(count, Ordering::SeqCst);
                // Sometimes faster than a read, sometimes slower.
                for turn in 0..count % 64 * 256 {
                    std::hint::black_box(turn);
                }
            }
        });
        let read = reading.join();
        done.store(true, Ordering::SeqCst);
        read.expect("what is read is never older, and whole if intact");
    });
}

#[test]
fn other_descriptors_are_refused() {
    let make = |len| memfd::create("other", len).unwrap();
    for len in [0, 100, 4096, 100_000] {
        CommitReader::open(vec![make(len), make(len)]).unwrap_err();
        CommitWriter::open(vec![make(len), make(len)]).unwrap_err();
    }
    for count in [0, 1, 5] {
        let fds = || (0..count).map(|_| make(4096)).collect();
        let errors = [
            CommitReader::open(fds()).unwrap_err(),
            CommitWriter::open(fds()).unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, Error::Buffers { count: found } if found == count));
        }
    }
}

#[test]
fn a_damaged_header_is_left_out() {
    let (memory, mut writer, reader) = open();
    commit(&mut writer, id(1, 0), b"sound");
    commit(&mut writer, id(1, 1), b"damaged");
    let mapping = Mapping::new(&memory.fds(2)[1], 4096).unwrap();
    // The length in record 1, which is the first one that a buffer uses.
    let len = mapping.get::<AtomicU64>(384 + 3 * 8).unwrap();
    assert_eq!(len.load(Ordering::SeqCst), 7);
    len.store(8, Ordering::SeqCst);
    assert_eq!(ids(&reader), [id(1, 0)]);
    commit(&mut writer, id(1, 1), b"again");
    assert_eq!(ids(&reader), [id(1, 1), id(1, 0)]);
}

#[test]
fn a_commit_names_its_part_of_the_state() {
    let (memory, mut writer, reader) = open();
    let part = Shard {
        layout: 0xfeed,
        index: 2,
        of: 5,
    };
    // A record that had a part before may have none later.
    for (count, shard) in [part, Shard::default(), part, Shard::default()]
        .into_iter()
        .enumerate()
    {
        let mut write = writer.begin(id(1, count as u64), 0).unwrap();
        write.write_all(b"part").unwrap();
        write.set_shard(shard);
        write.seal(None);
        let newest = reader.newest().unwrap().unwrap();
        assert_eq!(
            newest.key(),
            CommitKey {
                commit: id(1, count as u64),
                shard
            }
        );
    }
    // Another name for the same bytes keeps the part.
    let mut write = writer.begin(id(1, 9), 0).unwrap();
    write.set_shard(part);
    write.seal(None);
    writer.rename_newest(id(2, 0)).unwrap();
    let newest = reader.newest().unwrap().unwrap();
    assert_eq!((newest.id, newest.shard), (id(2, 0), part));
    // A part that is damaged is noticed.
    for fd in memory.fds(3) {
        let mapping = Mapping::new(&fd, 4096).unwrap();
        for record in [640, 768] {
            mapping
                .get::<AtomicU64>(record)
                .unwrap()
                .fetch_xor(4, Ordering::SeqCst);
        }
    }
    assert!(matches!(reader.commits(), Err(Error::Corrupt { .. })));
}

/// An agent of an older release knows two buffers and formats 512 bytes of their headers.
#[test]
fn memory_of_an_older_agent_serves_as_before() {
    let memory = CommitMemory::create().unwrap();
    for fd in memory.fds(2) {
        let mapping = Mapping::new(&fd, 4096).unwrap();
        let version_and_size = mapping.get::<AtomicU64>(8).unwrap();
        version_and_size.store(1 | 512 << 32, Ordering::SeqCst);
    }
    let fds = || owned(&memory).into_iter().take(2).collect();
    let mut writer = CommitWriter::open(fds()).unwrap();
    let reader = CommitReader::open(fds()).unwrap();
    for count in 0..5 {
        commit(&mut writer, id(1, count), b"state");
        assert_eq!(reader.newest().unwrap().unwrap().key(), id(1, count).into());
    }
    assert_eq!(ids(&reader).len(), 2);
}

/// A worker that knows no third buffer gets the two that matter, wherever the commit is.
#[test]
fn a_pair_of_descriptors_has_the_commit() {
    let (memory, mut writer, _reader) = open();
    commit(&mut writer, id(1, 0), &[0; 100]);
    let _pinned = memory.pin(id(1, 0)).unwrap();
    // The first buffer is pinned, so these alternate between the others.
    for count in 1..6 {
        commit(&mut writer, id(1, count), &[count as u8; 100]);
        let pair = CommitReader::open(memory.read_only_pair(id(1, count)).unwrap()).unwrap();
        assert_eq!(read(&pair, id(1, count)), [count as u8; 100]);
    }
}

/// With arbitrary bytes in the headers, calls return errors or commits. They neither crash nor read beyond the file.
#[test]
fn nonsense_in_a_header_is_an_error_at_worst() {
    let mut seed = 0x1234_5678_9abc_def1_u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let mut damaged = 0;
    for _ in 0..300 {
        let (memory, mut writer, reader) = open();
        commit(&mut writer, id(1, 0), b"zero");
        commit(&mut writer, id(1, 1), b"one");
        for fd in memory.fds(3) {
            let mapping = Mapping::new(&fd.as_fd(), 4096).unwrap();
            for _ in 0..random() % 6 {
                let offset = (random() % 112) as usize * 8;
                let value = match random() % 4 {
                    0 => 0,
                    1 => u64::MAX,
                    2 => random() % 4,
                    _ => random(),
                };
                let word = mapping.get::<AtomicU64>(offset).unwrap();
                word.store(value, Ordering::SeqCst);
            }
        }
        match reader.commits() {
            Ok(commits) => {
                for info in commits {
                    let commit = reader.read(info.id).unwrap();
                    assert!(commit.bytes().len() <= 4 << 20);
                }
            }
            Err(Error::Corrupt { .. }) => damaged += 1,
            Err(other) => panic!("{other}"),
        }
        let _ = CommitReader::open(owned(&memory));
        let mut writer = match CommitWriter::open(owned(&memory)) {
            Ok(writer) => writer,
            Err(Error::NotCommits { .. }) => continue,
            Err(other) => panic!("{other}"),
        };
        commit(&mut writer, id(u64::MAX, 0), b"after all");
        assert_eq!(writer.read(id(u64::MAX, 0)).unwrap().1, b"after all");
    }
    assert!(damaged > 0);
}
