//! Finds commits in a store, and loads one into commit memory.

use std::io::Read;

use elasticrun_durable::Store;
use elasticrun_protocol::{
    CommitId, Shard,
    control::{ResumeFrom, StoredCommit},
};
use elasticrun_shm::commit::{CommitMemory, CommitWriter};
use xxhash_rust::xxh3::Xxh3;

use super::{
    Error,
    layout::{commit_directory, commit_of, shard_file},
    manifest::{StoredShard, read_manifest},
};

/// The number of commits of a run that a search reports. Older ones are of use only if newer ones are damaged.
const MAX_FOUND: usize = 2;

/// The number of runs among which the latest is searched: those whose directories were changed last.
const MAX_RUNS: usize = 64;

/// The number of errors that a search reports.
const MAX_REFUSED: usize = 8;

/// Bytes that are read and hashed at a time.
const CHUNK: usize = 1 << 20;

/// What a store holds.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Whole commits.
    pub(crate) commits: Vec<StoredCommit>,
    /// Errors for the operator.
    pub(crate) refused: Vec<String>,
}

/// Lists the complete commits of this run, and those of the run that it continues from.
pub(super) fn find(store: &dyn Store, run_id: &str, from: Option<&ResumeFrom>) -> Found {
    let mut found = Found::default();
    if let Err(error) = store.check() {
        found.refused.push(error.to_string());
        return found;
    }
    found.look_at(store, run_id);
    match from {
        None => {}
        Some(ResumeFrom::Run(other)) => found.look_at(store, other),
        Some(ResumeFrom::Latest) => found.look_at_latest(store, run_id),
    }
    let surplus = found.refused.len().saturating_sub(MAX_REFUSED);
    found.refused.truncate(MAX_REFUSED);
    if surplus > 0 {
        let more = format!("{surplus} more errors of the durable store are not shown");
        found.refused.push(more);
    }
    found
}

impl Found {
    /// Adds the newest complete commits of the run that wrote last.
    fn look_at_latest(&mut self, store: &dyn Store, own: &str) {
        let runs = match store.runs() {
            Ok(runs) => runs,
            Err(error) => return self.refused.push(error.to_string()),
        };
        let mut latest = Vec::new();
        let last = |commits: &[StoredCommit]| commits.iter().map(|stored| stored.written_at).max();
        for run in runs.iter().filter(|run| *run != own).take(MAX_RUNS) {
            let mut found = Self::default();
            found.look_at(store, run);
            self.refused.append(&mut found.refused);
            if last(&found.commits) > last(&latest) {
                latest = found.commits;
            }
        }
        self.commits.append(&mut latest);
    }

    /// Adds the newest complete commits of a run.
    fn look_at(&mut self, store: &dyn Store, run_id: &str) {
        let names = match store.list(run_id) {
            Ok(names) => names,
            Err(error) => return self.refused.push(error.to_string()),
        };
        let mut commits: Vec<CommitId> = names.iter().filter_map(|name| commit_of(name)).collect();
        commits.sort_unstable_by(|a, b| b.cmp(a));
        let mut complete = 0;
        for commit in commits {
            match read_manifest(store, run_id, commit) {
                Ok(None) => continue,
                Ok(Some(manifest)) => self.commits.push(StoredCommit {
                    written_at: manifest.written_at,
                    run_id: run_id.to_owned(),
                    commit,
                }),
                Err(error) => {
                    self.refused.push(error.to_string());
                    continue;
                }
            }
            complete += 1;
            if complete == MAX_FOUND {
                return;
            }
        }
    }
}

/// Loads a commit into empty memory, under another id. The memory has the commit only if all its bytes are as written (S2).
pub(super) fn load(
    store: &dyn Store,
    stored: &StoredCommit,
    id: CommitId,
    memory: &CommitMemory,
) -> Result<(), Error> {
    let StoredCommit { run_id, commit, .. } = stored;
    let directory = commit_directory(run_id, *commit);
    let missing = || Error::Missing {
        path: directory.clone(),
    };
    let manifest = read_manifest(store, run_id, *commit)?.ok_or_else(missing)?;
    let [shard] = manifest.shards.as_slice() else {
        let count = manifest.shards.len();
        return Err(Error::Sharded {
            path: directory,
            count,
        });
    };
    let path = format!(
        "{directory}/{}",
        shard_file(shard.index, shard.of, shard.xxh3)
    );
    let file = store.open(&path)?.ok_or_else(missing)?;
    // Before memory is taken for the bytes.
    if file.len != shard.bytes {
        return Err(Error::Damaged { path });
    }
    let fds = memory.fds(3).into_iter();
    let fds = fds
        .map(|fd| fd.try_clone_to_owned())
        .collect::<Result<_, _>>();
    let fds = fds.map_err(Error::store("load", &path))?;
    let mut writer = CommitWriter::open(fds)?;
    let mut write = writer.begin(id, shard.state_version)?;
    write.set_shard(Shard {
        layout: manifest.layout,
        index: shard.index,
        of: shard.of,
    });
    let len = usize::try_from(shard.bytes).unwrap_or(usize::MAX);
    read_body(file.bytes, write.append(len)?, shard, &path)?;
    write.seal(None);
    Ok(())
}

/// Fills a body, and checks its length and checksum.
fn read_body(
    mut file: Box<dyn Read + Send>,
    body: &mut [u8],
    shard: &StoredShard,
    path: &str,
) -> Result<(), Error> {
    let damaged = || Error::Damaged {
        path: path.to_owned(),
    };
    let mut hasher = Xxh3::new();
    for chunk in body.chunks_mut(CHUNK) {
        match file.read_exact(chunk) {
            Ok(()) => hasher.update(chunk),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                return Err(damaged());
            }
            Err(error) => return Err(Error::store("read", path)(error)),
        }
    }
    let beyond = file.read(&mut [0]).map_err(Error::store("read", path))?;
    if beyond != 0 || hasher.digest() != shard.xxh3 {
        return Err(damaged());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
