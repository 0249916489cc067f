//! The number of rows that each worker is due.

/// The rows of each worker: its proportion by weight, to within one row, so that the fewest rows move.
///
/// Each worker gets its proportion rounded down. The remaining rows go one each to workers whose proportion was
/// rounded: first to those that hold more than their proportion anyway. Ties go to the largest rounding loss, then to
/// the largest holding, then to the lowest index.
///
/// # Panics
/// If all weights are 0.
pub(super) fn quotas(total: u64, weights: &[u32], held: &[u64]) -> Vec<u64> {
    let sum: u64 = weights.iter().copied().map(u64::from).sum();
    assert!(sum > 0, "a worker must have a weight");
    let (mut quotas, lost): (Vec<u64>, Vec<u64>) = (weights.iter())
        .map(|weight| {
            let exact = u128::from(total) * u128::from(*weight);
            let sum = u128::from(sum);
            ((exact / sum) as u64, (exact % sum) as u64)
        })
        .unzip();
    let remaining = total - quotas.iter().sum::<u64>();
    if remaining > 0 {
        let mut rounded: Vec<usize> = (0..weights.len())
            .filter(|worker| lost[*worker] > 0)
            .collect();
        rounded.sort_by_key(|&worker| {
            let has_it = held[worker] > quotas[worker];
            (
                !has_it,
                u64::MAX - lost[worker],
                u64::MAX - held[worker],
                worker,
            )
        });
        for worker in rounded.into_iter().take(remaining as usize) {
            quotas[worker] += 1;
        }
    }
    quotas
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heaviest_keep_the_odd_rows() {
        assert_eq!(quotas(11, &[1; 4], &[3, 0, 5, 3]), [3, 2, 3, 3]);
        assert_eq!(quotas(11, &[1; 4], &[0; 4]), [3, 3, 3, 2]);
    }

    #[test]
    fn weights_are_kept_within_one_row() {
        assert_eq!(quotas(100, &[1, 2, 0], &[0; 3]), [33, 67, 0]);
        assert_eq!(quotas(100, &[1, 2, 0], &[34, 0, 50]), [34, 66, 0]);
        // An exact proportion is never exceeded.
        assert_eq!(quotas(9, &[1, 1, 1], &[9, 0, 0]), [3, 3, 3]);
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let all = quotas(u64::MAX, &[u32::MAX, u32::MAX, 1], &[0; 3]);
        assert_eq!(
            all.iter().map(|rows| u128::from(*rows)).sum::<u128>(),
            u128::from(u64::MAX)
        );
    }
}
