//! The names of commits and their files in a store.

use elasticrun_protocol::{CommitId, DriverEpoch, Round};

/// The directory of a commit.
pub(super) fn commit_directory(run_id: &str, commit: CommitId) -> String {
    format!("{run_id}/{commit}")
}

/// The file that makes a commit complete.
pub(super) fn manifest_file(run_id: &str, commit: CommitId) -> String {
    format!("{}/manifest.json", commit_directory(run_id, commit))
}

/// The file of a shard, below the directory of its commit. The checksum of its bytes is a part of the name: two hosts that
/// write the same commit do not replace each other's bytes.
pub(super) fn shard_file(index: u32, of: u32, xxh3: u64) -> String {
    format!("shard-{index}-of-{of}-{xxh3:016x}")
}

/// The commit of a directory's name, if the name is one.
pub(super) fn commit_of(name: &str) -> Option<CommitId> {
    let mut numbers = name.split('.').map(|number| number.parse::<u64>().ok());
    let commit = CommitId {
        epoch: DriverEpoch(numbers.next()??),
        round: Round(numbers.next()??),
        count: numbers.next()??,
    };
    // Other spellings of the same numbers are not names of this program.
    (numbers.next().is_none() && commit.to_string() == name).then_some(commit)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn other_names_are_no_commits() {
        for name in ["", "1.2", "1.2.3.4", "01.2.3", "1.2.x", "+1.2.3", "1.2.3 "] {
            assert_eq!(commit_of(name), None, "{name:?}");
        }
    }

    proptest! {
        #[test]
        fn a_name_is_read_back(epoch: u64, round: u64, count: u64) {
            let commit = CommitId { epoch: DriverEpoch(epoch), round: Round(round), count };
            prop_assert_eq!(commit_of(&commit.to_string()), Some(commit));
        }
    }
}
