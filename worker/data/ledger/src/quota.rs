//! How many rows each worker should have.

/// The rows of each worker, in proportion to its weight and within one row of it, so that the fewest rows move.
///
/// Each gets its proportion rounded down. What remains goes, a row each, to those whose proportion was rounded and who
/// hold more than it anyway; then to the others. On ties to who lost most by the rounding, then to who holds most, then to
/// the first.
///
/// # Panics
/// If there is no weight at all.
pub(super) fn targets(total: u64, weights: &[u32], held: &[u64]) -> Vec<u64> {
    let sum: u64 = weights.iter().copied().map(u64::from).sum();
    assert!(sum > 0, "somebody has to read the rows");
    let (mut targets, lost): (Vec<u64>, Vec<u64>) = (weights.iter())
        .map(|weight| {
            let exact = u128::from(total) * u128::from(*weight);
            let sum = u128::from(sum);
            ((exact / sum) as u64, (exact % sum) as u64)
        })
        .unzip();
    let remaining = total - targets.iter().sum::<u64>();
    if remaining > 0 {
        let mut rounded: Vec<usize> = (0..weights.len())
            .filter(|worker| lost[*worker] > 0)
            .collect();
        rounded.sort_by_key(|&worker| {
            let has_it = held[worker] > targets[worker];
            (
                !has_it,
                u64::MAX - lost[worker],
                u64::MAX - held[worker],
                worker,
            )
        });
        for worker in rounded.into_iter().take(remaining as usize) {
            targets[worker] += 1;
        }
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heaviest_keep_the_odd_rows() {
        assert_eq!(targets(11, &[1; 4], &[3, 0, 5, 3]), [3, 2, 3, 3]);
        assert_eq!(targets(11, &[1; 4], &[0; 4]), [3, 3, 3, 2]);
    }

    #[test]
    fn weights_are_kept_within_one_row() {
        assert_eq!(targets(100, &[1, 2, 0], &[0; 3]), [33, 67, 0]);
        assert_eq!(targets(100, &[1, 2, 0], &[34, 0, 50]), [34, 66, 0]);
        // An exact proportion is never exceeded.
        assert_eq!(targets(9, &[1, 1, 1], &[9, 0, 0]), [3, 3, 3]);
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let all = targets(u64::MAX, &[u32::MAX, u32::MAX, 1], &[0; 3]);
        assert_eq!(
            all.iter().map(|rows| u128::from(*rows)).sum::<u128>(),
            u128::from(u64::MAX)
        );
    }
}
