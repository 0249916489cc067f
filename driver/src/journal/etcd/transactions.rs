//! Splits the steps of a batch into transactions that etcd takes.
//!
//! etcd limits the steps of a transaction by number, by default to 128 on all levels of a nested one together, and a request by
//! its size, by default to 1.5 MiB. A batch that fits is one transaction. Only a larger one, as of a job with thousands of hosts
//! whose state changes at once, is written in several, in the order of its entries.

use elasticrun_etcd::Op;

/// The most steps of one level.
const MAX_STEPS: usize = 60;

/// The most bytes of keys and values in a transaction.
const MAX_BYTES: usize = 1 << 20;

/// The transactions for these steps, each of which has its size in bytes.
pub(super) fn split(steps: Vec<(usize, Op)>) -> Vec<Vec<Op>> {
    let mut transactions = Vec::new();
    let (mut current, mut bytes) = (Vec::new(), 0);
    for (size, step) in steps {
        let is_full = current.len() == MAX_STEPS * MAX_STEPS || bytes + size > MAX_BYTES;
        if is_full && !current.is_empty() {
            transactions.push(nest(std::mem::take(&mut current)));
            bytes = 0;
        }
        bytes += size;
        current.push(step);
    }
    if !current.is_empty() {
        transactions.push(nest(current));
    }
    transactions
}

/// Puts steps that are too many for one level into levels below it.
fn nest(mut steps: Vec<Op>) -> Vec<Op> {
    if steps.len() <= MAX_STEPS {
        return steps;
    }
    let mut levels = Vec::new();
    while !steps.is_empty() {
        let rest = steps.split_off(steps.len().min(MAX_STEPS));
        levels.push(Op::All(std::mem::replace(&mut steps, rest)));
    }
    levels
}

#[cfg(test)]
mod tests {
    use elasticrun_etcd::LeaseId;

    use super::*;

    fn steps(count: usize, size: usize) -> Vec<(usize, Op)> {
        let put = |index: usize| Op::Put {
            key: index.to_string().into(),
            value: Vec::new(),
            lease: LeaseId(0),
        };
        (0..count).map(|index| (size, put(index))).collect()
    }

    fn flat(steps: &[Op]) -> Vec<&Op> {
        let mut all = Vec::new();
        for step in steps {
            match step {
                Op::All(steps) => all.extend(flat(steps)),
                step => all.push(step),
            }
        }
        all
    }

    #[test]
    fn a_batch_that_fits_is_one_transaction() {
        assert_eq!(split(Vec::new()).len(), 0);
        for count in [1, 60, 61, 600, 3600] {
            let transactions = split(steps(count, 100));
            assert_eq!(transactions.len(), 1, "{count}");
            assert_eq!(flat(&transactions[0]).len(), count);
            assert!(transactions[0].len() <= MAX_STEPS);
        }
    }

    #[test]
    fn a_larger_batch_keeps_its_order() {
        for (count, size, expected) in [(3601, 1, 2), (3, MAX_BYTES / 2 + 1, 3), (2, 9 << 20, 2)] {
            let all = steps(count, size);
            let transactions = split(all.clone());
            assert_eq!(transactions.len(), expected);
            let written: Vec<_> = transactions.iter().flat_map(|steps| flat(steps)).collect();
            let before: Vec<_> = all.iter().map(|(_, step)| step).collect();
            assert_eq!(written, before);
        }
    }
}
