//! Which commits are complete, by the definition and not by the core's way to find out: for each shard of a layout there
//! is a copy.

use std::collections::BTreeSet;

use elasticrun_protocol::{CommitId, CommitKey, control::BaseShards};

/// The newest complete commit of these copies.
pub(crate) fn newest(copies: impl IntoIterator<Item = CommitKey>) -> Option<CommitId> {
    newest_divided(copies).map(|(commit, _)| commit)
}

/// The same, with its layout.
pub(crate) fn newest_divided(
    copies: impl IntoIterator<Item = CommitKey>,
) -> Option<(CommitId, BaseShards)> {
    let copies: BTreeSet<_> = copies.into_iter().collect();
    let whole = copies.iter().filter(|key| {
        let of_layout = |index: u32| {
            let mut other = **key;
            other.shard.index = index;
            other
        };
        (0..key.shard.of).all(|index| copies.contains(&of_layout(index)))
    });
    let shards = |key: &CommitKey| BaseShards {
        layout: key.shard.layout,
        of: key.shard.of,
    };
    (whole.max_by_key(|key| (key.commit, key.shard.layout))).map(|key| (key.commit, shards(key)))
}
