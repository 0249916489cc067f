//! Pins: a reader that is slower than the worker's commits.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::{
    io::Write,
    os::{
        fd::{AsRawFd, BorrowedFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use elasticrun_protocol::{CommitId, DriverEpoch, Round};
use elasticrun_shm::commit::{CommitMemory, CommitWriter, Error};

const LEN: usize = 200_000;

fn id(count: u64) -> CommitId {
    CommitId {
        epoch: DriverEpoch(1),
        round: Round(1),
        count,
    }
}

fn open(buffers: usize) -> (CommitMemory, CommitWriter) {
    let memory = CommitMemory::create().unwrap();
    let writer = CommitWriter::open(owned(&memory.fds(buffers))).unwrap();
    (memory, writer)
}

fn owned(fds: &[BorrowedFd<'_>]) -> Vec<OwnedFd> {
    fds.iter()
        .map(|fd| fd.try_clone_to_owned().unwrap())
        .collect()
}

/// Commits a body of one repeated byte.
fn commit(writer: &mut CommitWriter, count: u64) {
    let mut write = writer.begin(id(count), 0).unwrap();
    write.append(LEN).unwrap().fill(count as u8);
    write.seal(None);
}

fn is_whole(bytes: &[u8], count: u64) -> bool {
    bytes.len() == LEN && bytes.iter().all(|byte| *byte == count as u8)
}

/// Bytes of memory that each buffer has.
fn allocated(memory: &CommitMemory) -> Vec<u64> {
    let bytes = |fd: &BorrowedFd<'_>| {
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        std::fs::metadata(path).unwrap().blocks() * 512
    };
    memory.fds(3).iter().map(bytes).collect()
}

#[test]
fn a_third_buffer_has_memory_only_after_a_pin() {
    let (memory, mut writer) = open(3);
    for count in 1..20 {
        commit(&mut writer, count);
    }
    let third = allocated(&memory)[2];
    assert!(third < LEN as u64, "{third}");
    let pinned = memory.pin(id(19)).unwrap();
    for count in 20..30 {
        commit(&mut writer, count);
    }
    assert!(is_whole(pinned.bytes(), 19));
    assert!(allocated(&memory).iter().all(|bytes| *bytes > LEN as u64));
}

#[test]
fn a_pinned_commit_stays_whole_and_newer_ones_go_on() {
    let (memory, mut writer) = open(3);
    let reader = memory.reader().unwrap();
    commit(&mut writer, 1);
    for round in 0..5 {
        let first = 1 + round * 20;
        let pinned = memory.pin(id(first)).unwrap();
        for count in first + 1..=first + 20 {
            commit(&mut writer, count);
            assert_eq!(reader.newest().unwrap().unwrap().id, id(count));
            assert!(is_whole(reader.read(id(count)).unwrap().bytes(), count));
            assert!(is_whole(pinned.bytes(), first), "{count}");
        }
    }
}

#[test]
fn a_commit_is_pinned_until_its_last_reader_lets_go() {
    let (memory, mut writer) = open(3);
    commit(&mut writer, 1);
    let (one, other) = (memory.pin(id(1)).unwrap(), memory.pin(id(1)).unwrap());
    commit(&mut writer, 2);
    assert!(matches!(memory.pin(id(2)), Err(Error::Unpinnable { .. })));
    drop(one);
    for count in 3..9 {
        commit(&mut writer, count);
    }
    assert!(is_whole(other.bytes(), 1));
    drop(other);
    drop(memory.pin(id(8)).unwrap());
    for count in 9..13 {
        commit(&mut writer, count);
    }
    assert!(matches!(memory.pin(id(1)), Err(Error::Gone { .. })));
}

#[test]
fn a_worker_with_two_buffers_is_never_pinned() {
    let (memory, mut writer) = open(2);
    for count in 1..5 {
        commit(&mut writer, count);
    }
    assert!(matches!(memory.pin(id(4)), Err(Error::Unpinnable { .. })));
    assert_eq!(memory.reader().unwrap().commits().unwrap().len(), 2);
}

#[test]
fn a_pinned_commit_that_becomes_void_is_not_overwritten() {
    let (memory, mut writer) = open(3);
    commit(&mut writer, 1);
    commit(&mut writer, 2);
    let pinned = memory.pin(id(2)).unwrap();
    writer.discard_newer(id(1));
    assert_eq!(
        memory.reader().unwrap().newest().unwrap().unwrap().id,
        id(1)
    );
    for count in 2..9 {
        commit(&mut writer, count);
        assert!(is_whole(pinned.bytes(), 2), "{count}");
    }
    drop(pinned);
}

/// The reader holds each pin for several commits of a worker that never pauses.
#[test]
fn a_reader_that_is_slower_than_the_worker_gets_whole_commits() {
    let (memory, mut writer) = open(3);
    commit(&mut writer, 1);
    let (newest, stop) = (AtomicU64::new(1), AtomicBool::new(false));
    thread::scope(|scope| {
        let committing = scope.spawn(|| {
            for count in 2.. {
                commit(&mut writer, count);
                newest.store(count, Ordering::SeqCst);
                if stop.load(Ordering::SeqCst) {
                    return count;
                }
            }
            0
        });
        let reader = memory.reader().unwrap();
        for _ in 0..40 {
            let pinned = loop {
                let info = reader.newest().unwrap().unwrap();
                match memory.pin(info.id) {
                    Ok(pinned) => break pinned,
                    Err(Error::Gone { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            };
            let count = pinned.info().id.count;
            let until = newest.load(Ordering::SeqCst) + 3;
            while newest.load(Ordering::SeqCst) < until {
                assert!(is_whole(pinned.bytes(), count), "{count}");
            }
        }
        stop.store(true, Ordering::SeqCst);
        assert!(committing.join().unwrap() > 120);
    });
}

#[test]
fn beyond_the_limit_a_pinned_commit_is_overwritten_and_its_reader_notices() {
    let (memory, mut writer) = open(3);
    // Two commits of this size fit, three do not.
    writer.set_limit(Some(2 * LEN as u64 + 150_000));
    commit(&mut writer, 1);
    commit(&mut writer, 2);
    let pinned = memory.pin(id(2)).unwrap();
    commit(&mut writer, 3);
    assert!(pinned.is_intact() && is_whole(pinned.bytes(), 2));
    // The third buffer would be the next. The first bytes fit into the limit, and the others do not.
    let mut write = writer.begin(id(4), 0).unwrap();
    write.append(1000).unwrap().fill(4);
    write.append(LEN - 1000).unwrap().fill(4);
    write.seal(None);
    assert!(!pinned.is_intact());
    let reader = memory.reader().unwrap();
    for count in [3, 4] {
        assert!(is_whole(reader.read(id(count)).unwrap().bytes(), count));
    }
    let total: u64 = allocated(&memory).iter().sum();
    assert!(total <= 2 * LEN as u64 + 150_000, "{total}");
    // The reader of a buffer that is pinned once more is deceived no more than the first.
    drop(pinned);
    let pinned = memory.pin(id(4)).unwrap();
    assert!(pinned.is_intact() && is_whole(pinned.bytes(), 4));
}

#[test]
fn a_limit_that_becomes_smaller_takes_a_third_buffer_at_the_next_commit() {
    let (memory, mut writer) = open(3);
    commit(&mut writer, 1);
    let pinned = memory.pin(id(1)).unwrap();
    commit(&mut writer, 2);
    commit(&mut writer, 3);
    drop(pinned);
    let three = allocated(&memory).iter().sum::<u64>();
    writer.set_limit(Some(2 * three / 3 + 10_000));
    commit(&mut writer, 4);
    let total: u64 = allocated(&memory).iter().sum();
    assert!(total <= 2 * three / 3 + 10_000, "{total} of {three}");
    let newest = memory.reader().unwrap().newest().unwrap().unwrap();
    assert_eq!(newest.id, id(4));
}

#[test]
fn a_worker_has_two_buffers_also_beyond_the_limit() {
    let (memory, mut writer) = open(3);
    writer.set_limit(Some(10_000));
    writer.reserve(LEN).unwrap();
    for count in 1..6 {
        commit(&mut writer, count);
        let newest = memory.reader().unwrap().newest().unwrap().unwrap();
        assert_eq!(newest.id, id(count));
    }
    let pinned = memory.pin(id(5)).unwrap();
    commit(&mut writer, 6);
    commit(&mut writer, 7);
    assert!(!pinned.is_intact());
    let third = allocated(&memory)[2];
    assert!(third < LEN as u64, "{third}");
}

#[test]
fn a_third_buffer_that_is_not_needed_makes_room_for_a_larger_state() {
    let (memory, mut writer) = open(3);
    writer.set_limit(Some(1_000_000));
    commit(&mut writer, 1);
    let pinned = memory.pin(id(1)).unwrap();
    commit(&mut writer, 2);
    commit(&mut writer, 3);
    drop(pinned);
    assert!(allocated(&memory).iter().all(|bytes| *bytes > LEN as u64));
    // Two of the larger commits fit, three buffers do not.
    for count in 4..8 {
        let mut write = writer.begin(id(count), 0).unwrap();
        write.write_all(&vec![count as u8; 2 * LEN]).unwrap();
        write.seal(None);
    }
    let total: u64 = allocated(&memory).iter().sum();
    assert!(total <= 1_000_000, "{total}");
    assert_eq!(
        memory.reader().unwrap().newest().unwrap().unwrap().id,
        id(7)
    );
}
