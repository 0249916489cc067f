//! Kills writers at random times and at random words. The newest acknowledged commit always exists and is complete.

mod common;

use std::{
    io::Write,
    os::fd::{AsFd, OwnedFd},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use common::Worker;
use elasticrun_protocol::{CommitId, DriverEpoch, Round};
use elasticrun_shm::{
    commit::{CommitMemory, CommitReader, CommitWriter, PinnedCommit},
    memfd::{self, Mapping},
};

/// The number of kills. In every other one the writer kills itself within a commit, so that these kills always hit a
/// write.
const KILLS: usize = 400;
/// The offset of the fuse in the memory of the acknowledgements.
const FUSE: usize = 64;

fn id(count: u64) -> CommitId {
    CommitId {
        epoch: DriverEpoch(1),
        round: Round(1),
        count,
    }
}

fn mix(value: u64) -> u64 {
    let mixed = (value ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 31)
}

/// The words of the body of a commit: up to 60 KB, and sometimes up to 600 KB, so that memory grows.
fn body(number: u64) -> impl Iterator<Item = [u8; 8]> {
    let seed = mix(number);
    let words = seed % if number % 64 == 63 { 75_000 } else { 7_500 };
    (0..words).map(move |word| (seed ^ word).to_le_bytes())
}

fn is_body(bytes: &[u8], number: u64) -> bool {
    let (words, rest) = bytes.as_chunks();
    rest.is_empty() && words.iter().copied().eq(body(number))
}

/// Counts the fuse down, unless it is zero, and kills this process at its end.
fn burn(fuse: &AtomicU64) {
    match fuse.load(Ordering::Relaxed) {
        0 => {}
        1 => {
            // SAFETY: no memory is touched.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        }
        words => fuse.store(words - 1, Ordering::Relaxed),
    }
}

/// The worker process: commits for ever, and acknowledges each in shared memory.
#[test]
fn writer_process() {
    let Some((_, mut socket, fds)) = common::role() else {
        return;
    };
    let [a, b, c, acks] = <[OwnedFd; 4]>::try_from(fds).unwrap();
    let acks = Mapping::new(&acks, 4096).unwrap();
    let acknowledged = acks.get::<AtomicU64>(0).unwrap();
    let fuse = acks.get::<AtomicU64>(FUSE).unwrap();
    let mut writer = CommitWriter::open(vec![a, b, c]).unwrap();
    let start = writer.newest().unwrap().map_or(0, |info| info.id.count);
    for count in start + 1.. {
        if count % 7 == 0 {
            writer.rename_newest(id(count)).unwrap();
        } else {
            let mut write = writer.begin(id(count), count).unwrap();
            if count % 2 == 0 {
                let len = body(count).count() * 8;
                let bytes = write.append(len).unwrap();
                for (dst, word) in bytes.as_chunks_mut().0.iter_mut().zip(body(count)) {
                    burn(fuse);
                    *dst = word;
                }
            } else {
                for word in body(count) {
                    burn(fuse);
                    write.write_all(&word).unwrap();
                }
            }
            write.seal(Some(mix(count)));
        }
        acknowledged.store(count, Ordering::SeqCst);
        if count == start + 3 {
            socket.write_all(b"r").unwrap();
        }
    }
}

#[test]
fn a_killed_writer_leaves_its_newest_commit() {
    let memory = CommitMemory::create().unwrap();
    let acks_fd = memfd::create("acks", 4096).unwrap();
    let acks = Mapping::new(&acks_fd, 4096).unwrap();
    let acknowledged = acks.get::<AtomicU64>(0).unwrap();
    let fuse = acks.get::<AtomicU64>(FUSE).unwrap();
    let mut fds = memory.fds(3);
    fds.push(acks_fd.as_fd());
    // Held over some kills, so that writers start, write and die while a commit is pinned.
    let mut pinned: Option<PinnedCommit> = None;
    let mut pins = 0;
    let mut used = 2;
    let mut in_write = 0;
    let mut unacknowledged = 0;
    let mut random = 1;
    for kill in 0..KILLS {
        let mut worker = Worker::start("writer_process", "write", &fds);
        worker.recv_byte();
        if kill % 5 == 0 {
            drop(pinned.take());
            // The commit may be gone by then.
            let reader = memory.reader().unwrap();
            let newest = || reader.newest().unwrap().unwrap().id;
            pinned = (0..1000).find_map(|_| memory.pin(newest()).ok());
            pins += usize::from(pinned.is_some());
        }
        random = mix(random + kill as u64);
        if kill % 2 == 0 {
            let delay = Duration::from_nanos(random % 1_500_000);
            let start = Instant::now();
            while start.elapsed() < delay {
                std::hint::spin_loop();
            }
            worker.process.kill().unwrap();
        } else {
            fuse.store(1 + random % 20_000, Ordering::Relaxed);
        }
        worker.process.wait().unwrap();
        fuse.store(0, Ordering::Relaxed);

        let last = acknowledged.load(Ordering::SeqCst);
        let reader = CommitReader::open(memory.read_only().unwrap()).unwrap();
        let commits = reader.commits().unwrap();
        let newest = commits[0];
        assert!(
            newest.id == id(last) || newest.id == id(last + 1),
            "kill {kill}: {last} was acknowledged, {newest:?} is there"
        );
        if let Some(pinned) = &pinned {
            assert!(
                is_body(pinned.bytes(), pinned.info().state_version),
                "kill {kill}"
            );
        }
        // All buffers that were used once hold a commit, except for one that is being written.
        used = used.max(commits.len());
        in_write += usize::from(commits.len() < used);
        unacknowledged += usize::from(newest.id.count > last);
        for info in commits {
            assert_eq!(info.digest, Some(mix(info.state_version)));
            let named = info.id.count == info.state_version
                || (info.id.count % 7 == 0 && info.id.count == info.state_version + 1);
            assert!(named, "kill {kill}: {info:?}");
            let commit = reader.read(info.id).unwrap();
            assert!(
                is_body(commit.bytes(), info.state_version),
                "kill {kill}: {info:?}"
            );
        }
    }
    println!(
        "{KILLS} kills, {pins} pins, {in_write} while a commit was written, {unacknowledged} between seal and acknowledgement"
    );
    assert!(pins > KILLS / 10, "{pins} commits were pinned");
    assert!(in_write >= KILLS / 2, "{in_write} kills hit a write");
}
