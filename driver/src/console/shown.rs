//! Which output is shown: `--local-ranks-filter` and `--redirects`. The files have all.

use std::sync::Arc;

use super::queue::Piece;
use crate::config::{LocalRanks, Output, Streams};

/// The output that is shown. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Shown(Arc<(Option<LocalRanks>, Streams)>);

impl Shown {
    pub(super) fn new(settings: &Output) -> Self {
        Self(Arc::new((
            settings.shown.clone(),
            settings.redirects.clone(),
        )))
    }

    /// Whether a piece is shown.
    pub(super) fn has(&self, piece: &Piece) -> bool {
        let (shown, redirected) = &*self.0;
        let local_rank = piece.output.process.local_rank.0;
        shown
            .as_ref()
            .is_none_or(|shown| shown.contains(local_rank))
            && !redirected.has(local_rank, piece.output.stderr)
    }
}
