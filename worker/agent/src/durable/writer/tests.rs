use std::{cell::RefCell, fs, path::Path};

use elasticrun_durable::{Access, Directory, Error as StoreError, Fill, Store, StoredFile};
use elasticrun_protocol::{DriverEpoch, Generation, LocalRank, Round};
use elasticrun_shm::commit::CommitWriter;
use xxhash_rust::xxh3::xxh3_64;

use super::*;
use crate::{
    clock::Clock,
    deferred_free::DeferredFree,
    durable::{layout::shard_file, manifest::read_manifest},
    memory::{KeptCommits, Memories},
};

const PROCESS: Process = Process {
    local_rank: LocalRank(0),
    generation: Generation(1),
};

fn id(count: u64) -> CommitId {
    CommitId {
        epoch: DriverEpoch(1),
        round: Round(1),
        count,
    }
}

/// A worker that commits, and the memory that its agent has.
struct Worker {
    memories: Memories,
    writer: CommitWriter,
}

impl Worker {
    fn new() -> Self {
        let freed = DeferredFree::start().unwrap();
        let mut memories = Memories::new(KeptCommits::default(), freed, Clock::start());
        memories.create(PROCESS).unwrap();
        let commits = &memories.get(PROCESS).unwrap().commits;
        let fds = commits.fds(3).into_iter();
        let fds = fds.map(|fd| fd.try_clone_to_owned().unwrap()).collect();
        let writer = CommitWriter::open(fds).unwrap();
        Self { memories, writer }
    }

    /// A commit of three chunks and a bit.
    fn commit(&mut self, count: u64) {
        let mut write = self.writer.begin(id(count), 0).unwrap();
        write.append(3_200_000).unwrap().fill(count as u8);
        write.seal(None);
    }

    fn write(&self, place: &Path) -> Result<Option<Written>, Error> {
        let destination = Destination {
            place: place.to_str().unwrap().into(),
            run_id: "r".into(),
            access: Access::default(),
        };
        write_newest(&destination, self.memories.registry(), PROCESS, 4)
    }
}

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<_> = (fs::read_dir(path).unwrap())
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// The bytes of a complete commit, checked as a reader does.
fn read(place: &Path, count: u64) -> Vec<u8> {
    let directory = place.join("r").join(id(count).to_string());
    let manifest = read_manifest(&Directory::new(place), "r", id(count));
    let manifest = manifest.unwrap().unwrap();
    let shard = &manifest.shards[0];
    let bytes = fs::read(directory.join(shard_file(0, 1, shard.xxh3))).unwrap();
    assert_eq!(
        (shard.bytes, shard.xxh3),
        (bytes.len() as u64, xxh3_64(&bytes))
    );
    assert_eq!(manifest.world_size, 4);
    bytes
}

#[test]
fn the_two_newest_commits_stay() {
    let place = tempfile::tempdir().unwrap();
    let mut worker = Worker::new();
    for count in [1, 2, 10] {
        worker.commit(count);
        let written = worker.write(place.path()).unwrap().unwrap();
        assert_eq!((written.commit, written.bytes), (id(count), 3_200_000));
    }
    assert_eq!(names(&place.path().join("r")), ["1.1.10", "1.1.2"]);
    assert!(read(place.path(), 2).iter().all(|byte| *byte == 2));
    assert!(read(place.path(), 10).iter().all(|byte| *byte == 10));
}

#[test]
fn remains_of_a_failed_write_are_no_commit_and_are_removed() {
    let place = tempfile::tempdir().unwrap();
    let mut worker = Worker::new();
    for count in [1, 2] {
        let torn = place.path().join("r").join(id(count).to_string());
        fs::create_dir_all(&torn).unwrap();
        fs::write(torn.join("0123456789abcdef.tmp"), b"torn").unwrap();
    }
    // A manifest that is damaged makes no commit complete.
    fs::write(place.path().join("r/1.1.2/manifest.json"), b"{").unwrap();
    // A directory that is no commit of this program is left alone.
    fs::create_dir(place.path().join("r/notes")).unwrap();
    for count in [2, 3] {
        worker.commit(count);
        worker.write(place.path()).unwrap();
    }
    assert_eq!(names(&place.path().join("r")), ["1.1.2", "1.1.3", "notes"]);
    assert!(read(place.path(), 2).iter().all(|byte| *byte == 2));
}

#[test]
fn without_a_commit_nothing_is_written() {
    let place = tempfile::tempdir().unwrap();
    let worker = Worker::new();
    assert!(matches!(worker.write(place.path()), Err(Error::Gone)));
    assert_eq!(names(place.path()), Vec::<String>::new());
}

#[test]
fn a_process_that_keeps_its_state_itself_has_nothing_to_write() {
    let place = tempfile::tempdir().unwrap();
    let mut worker = Worker::new();
    worker.writer.begin(id(1), 0).unwrap().seal(None);
    assert_eq!(worker.write(place.path()).unwrap(), None);
    assert_eq!(names(place.path()), Vec::<String>::new());
}

#[test]
fn a_store_that_cannot_be_written_is_named() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file");
    fs::write(&file, b"").unwrap();
    let mut worker = Worker::new();
    worker.commit(1);
    let error = worker.write(&file).unwrap_err().to_string();
    assert!(error.contains("file is not a durable store"), "{error}");
}

/// A store that lets a worker commit while its commit is copied.
struct Slow<'a> {
    directory: Directory,
    worker: RefCell<&'a mut Worker>,
    next: RefCell<u64>,
}

impl Store for Slow<'_> {
    fn check(&self) -> Result<(), StoreError> {
        self.directory.check()
    }

    fn check_writable(&self) -> Result<(), StoreError> {
        self.directory.check_writable()
    }

    fn runs(&self) -> Result<Vec<String>, StoreError> {
        self.directory.runs()
    }

    fn list(&self, directory: &str) -> Result<Vec<String>, StoreError> {
        self.directory.list(directory)
    }

    fn open(&self, path: &str) -> Result<Option<StoredFile>, StoreError> {
        self.directory.open(path)
    }

    fn write(&self, path: &str, fill: &mut Fill<'_>) -> Result<(), StoreError> {
        struct Committing<'a, 'b>(&'a mut dyn std::io::Write, &'a Slow<'b>);
        impl std::io::Write for Committing<'_, '_> {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                for _ in 0..3 {
                    *self.1.next.borrow_mut() += 1;
                    self.1.worker.borrow_mut().commit(*self.1.next.borrow());
                }
                self.0.write(bytes)
            }

            fn flush(&mut self) -> std::io::Result<()> {
                self.0.flush()
            }
        }
        self.directory
            .write(path, &mut |out| fill(&mut Committing(out, self)))
    }

    fn publish(&self, path: &str, bytes: &[u8]) -> Result<(), StoreError> {
        self.directory.publish(path, bytes)
    }

    fn remove(&self, path: &str) -> Result<(), StoreError> {
        self.directory.remove(path)
    }

    fn remove_directory(&self, path: &str) -> Result<(), StoreError> {
        self.directory.remove_directory(path)
    }
}

#[test]
fn a_worker_commits_on_while_its_commit_is_written() {
    let place = tempfile::tempdir().unwrap();
    let mut worker = Worker::new();
    worker.commit(1);
    let commit = pin_newest(worker.memories.registry(), PROCESS).unwrap();
    let slow = Slow {
        directory: Directory::new(place.path()),
        worker: RefCell::new(&mut worker),
        next: RefCell::new(1),
    };
    write(&slow, "r", &commit, 4).unwrap();
    assert!(*slow.next.borrow() > 10);
    assert!(read(place.path(), 1).iter().all(|byte| *byte == 1));
}

#[test]
fn two_hosts_may_write_the_same_commit() {
    let place = tempfile::tempdir().unwrap();
    let mut workers = [Worker::new(), Worker::new()];
    // The bytes of one state may differ between processes.
    for (worker, fill) in workers.iter_mut().zip([1, 2]) {
        let mut write = worker.writer.begin(id(1), 0).unwrap();
        write.append(3_200_000).unwrap().fill(fill);
        write.seal(None);
    }
    let [first, second] = workers.each_ref().map(|worker| {
        let registry = worker.memories.registry();
        pin_newest(registry, PROCESS).unwrap()
    });
    /// A store in which another host writes a commit after each write, before its manifest is published.
    struct Shared<'a>(Directory, &'a CommitCopy);
    impl Store for Shared<'_> {
        fn check(&self) -> Result<(), StoreError> {
            self.0.check()
        }

        fn check_writable(&self) -> Result<(), StoreError> {
            self.0.check_writable()
        }

        fn runs(&self) -> Result<Vec<String>, StoreError> {
            self.0.runs()
        }

        fn list(&self, directory: &str) -> Result<Vec<String>, StoreError> {
            self.0.list(directory)
        }

        fn open(&self, path: &str) -> Result<Option<StoredFile>, StoreError> {
            self.0.open(path)
        }

        fn write(&self, path: &str, fill: &mut Fill<'_>) -> Result<(), StoreError> {
            self.0.write(path, fill)?;
            write(&self.0, "r", self.1, 4).unwrap();
            Ok(())
        }

        fn publish(&self, path: &str, bytes: &[u8]) -> Result<(), StoreError> {
            self.0.publish(path, bytes)
        }

        fn remove(&self, path: &str) -> Result<(), StoreError> {
            self.0.remove(path)
        }

        fn remove_directory(&self, path: &str) -> Result<(), StoreError> {
            self.0.remove_directory(path)
        }
    }
    let shared = Shared(Directory::new(place.path()), &second);
    write(&shared, "r", &first, 4).unwrap();
    assert!(read(place.path(), 1).iter().all(|byte| *byte == 1));
}
