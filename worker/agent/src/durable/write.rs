//! Writes one commit to a store, and removes those that are not needed any more.

use std::time::{SystemTime, UNIX_EPOCH};

use elasticrun_durable::Store;
use elasticrun_protocol::CommitId;
use xxhash_rust::xxh3::Xxh3;

use super::{
    Error,
    layout::{commit_directory, commit_of, manifest_file, shard_file},
    manifest::{Manifest, StoredShard, read_manifest},
};
use crate::memory::CommitCopy;

/// The number of complete commits of a run that are kept.
const KEEP: usize = 2;

/// Bytes that are hashed and written at a time.
const CHUNK: usize = 1 << 20;

/// Writes a commit. `world_size` is the number of workers of its round. When this returns, the commit is complete.
pub(super) fn write(
    store: &dyn Store,
    run_id: &str,
    commit: &CommitCopy,
    world_size: u32,
) -> Result<(), Error> {
    let info = commit.info();
    let (id, shard) = (info.id, info.shard);
    let directory = commit_directory(run_id, id);
    if let Ok(Some(_)) = read_manifest(store, run_id, id) {
        // Another host wrote it before this one became the writer.
        return Ok(());
    }
    let mut checksum = None;
    store.write(&directory, &mut |out| {
        let mut hasher = Xxh3::new();
        for chunk in commit.bytes().chunks(CHUNK) {
            hasher.update(chunk);
            out.write_all(chunk)?;
        }
        // Bytes that changed while they were copied have the checksum of no commit.
        checksum = commit.is_intact().then(|| hasher.digest());
        Ok(checksum.map(|xxh3| shard_file(shard.index, shard.of, xxh3)))
    })?;
    let xxh3 = checksum.ok_or(Error::Overwritten { id })?;
    let stored = StoredShard {
        index: shard.index,
        of: shard.of,
        bytes: info.len,
        xxh3,
        state_version: info.state_version,
    };
    let manifest = Manifest::new(run_id, id, shard.layout, vec![stored], world_size, now());
    store.publish(&manifest_file(run_id, id), &manifest.to_bytes())?;
    // The owner of a file may be another one than its writer, on some network file systems.
    match read_manifest(store, run_id, id)? {
        Some(_) => Ok(()),
        None => Err(Error::Unreadable { path: directory }),
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

/// Removes the commits of a run that are older than its two newest complete ones (S3). Remains of writes that failed are
/// among them.
pub(super) fn prune(store: &dyn Store, run_id: &str) -> Result<(), Error> {
    let names = store.list(run_id)?;
    let mut commits: Vec<CommitId> = names.iter().filter_map(|name| commit_of(name)).collect();
    commits.sort_unstable_by(|a, b| b.cmp(a));
    let mut complete = 0;
    for commit in commits {
        if complete >= KEEP {
            store.remove(&manifest_file(run_id, commit))?;
            store.remove_directory(&commit_directory(run_id, commit))?;
        } else if matches!(read_manifest(store, run_id, commit), Ok(Some(_))) {
            complete += 1;
        }
    }
    Ok(())
}
