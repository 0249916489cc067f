//! Which pieces of output were taken, over all connections of their sender.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use elasticrun_protocol::HostId;

/// The number of the newest piece of each sender that was taken. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Outputs(Arc<Mutex<BTreeMap<(HostId, u64), u64>>>);

impl Outputs {
    /// The number of the newest piece of a sender that was taken, over all its connections.
    pub(super) fn taken(&self, host: &HostId, sender: u64) -> u64 {
        let key = (host.clone(), sender);
        self.lock().get(&key).copied().unwrap_or(0)
    }

    /// Takes a piece of a sender, unless it was taken before, perhaps over another connection.
    pub(super) fn take(&self, host: &HostId, sender: u64, number: u64) -> bool {
        let mut all = self.lock();
        let last = all.entry((host.clone(), sender)).or_default();
        let is_new = number > *last;
        *last = number.max(*last);
        is_new
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(HostId, u64), u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_that_comes_over_two_connections_is_taken_once() {
        let outputs = Outputs::default();
        let (a, b) = ("a".into(), "b".into());
        let took = [1, 2, 2, 1, 3].map(|number| outputs.take(&a, 7, number));
        assert_eq!(took, [true, true, false, false, true]);
        assert!(
            outputs.take(&a, 8, 1) && outputs.take(&b, 7, 1),
            "others count anew"
        );
        assert_eq!((outputs.taken(&a, 7), outputs.taken(&b, 9)), (3, 0));
    }
}
