//! Each operation, in each layout, compared with the expected result.

#[path = "support/mod.rs"]
#[allow(dead_code, clippy::unwrap_used)]
mod support;

use elasticrun_collectives::Op;
use half::{bf16, f16};
use support::round;

const LAYOUTS: &[&[u32]] = &[
    &[1],
    &[2],
    &[5],
    &[1, 1],
    &[1, 1, 1],
    &[1, 1, 1, 1, 1],
    &[2, 1],
    &[1, 3],
    &[2, 3, 1, 2],
];

/// Around the limits of small messages, slices and segments.
const LENGTHS: &[usize] = &[0, 1, 7, 255, 4096, 4097, 40_000, 300_001];

#[test]
fn allreduce_sums() {
    for layout in LAYOUTS {
        let size: u32 = layout.iter().sum();
        let results = round(layout, |group| {
            let rank = group.topology().rank as usize;
            LENGTHS
                .iter()
                .map(|&len| {
                    let mut data: Vec<i64> = (0..len).map(|i| (i * 3 + rank) as i64).collect();
                    group.allreduce(&mut data, Op::Sum).unwrap();
                    data
                })
                .collect::<Vec<_>>()
        });
        let size = i64::from(size);
        for result in results {
            for (&len, data) in LENGTHS.iter().zip(result) {
                let expected: Vec<i64> = (0..len as i64)
                    .map(|i| i * 3 * size + size * (size - 1) / 2)
                    .collect();
                assert!(data == expected, "{layout:?} {len}");
            }
        }
    }
}

#[test]
fn averages_of_halves_do_not_overflow() {
    for layout in LAYOUTS {
        for results in round(layout, |group| {
            let mut small = [f16::from_f32(60000.0); 10];
            group.allreduce(&mut small, Op::Average).unwrap();
            let mut large = vec![bf16::from_f32(3.0); 100_000];
            group.allreduce(&mut large, Op::Average).unwrap();
            (small, large)
        }) {
            for value in results.0 {
                assert!(
                    (value.to_f32() - 60000.0).abs() <= 64.0,
                    "{value} in {layout:?}"
                );
            }
            assert!(results.1.iter().all(|value| value.to_f32() == 3.0));
        }
    }
}

#[test]
fn averages_of_small_halves_are_not_lost() {
    // Subnormals and their neighbours: the average of equal values is that value, for any number of
    // hosts.
    let values: Vec<f16> = (1..4096).step_by(37).map(f16::from_bits).collect();
    for layout in [&[1, 1][..], &[1, 1, 1], &[2, 3, 1, 2], &[1; 9]] {
        let size: usize = layout.iter().sum::<u32>() as usize;
        for len in [values.len(), 60_000] {
            let data: Vec<f16> = values.iter().copied().cycle().take(len).collect();
            let input = data.repeat(size);
            for (all, block) in round(layout, |group| {
                let mut all = data.clone();
                group.allreduce(&mut all, Op::Average).unwrap();
                let mut block = vec![f16::ZERO; len];
                group
                    .reduce_scatter(&input, &mut block, Op::Average)
                    .unwrap();
                (all, block)
            }) {
                for (kind, found) in [("allreduce", all), ("reduce_scatter", block)] {
                    for (found, value) in found.iter().zip(&data) {
                        let off = (found.to_f64() - value.to_f64()).abs();
                        // One rounding per host of a larger sum, at least of the smallest step of
                        // the type.
                        assert!(
                            off <= value.to_f64() / 512.0,
                            "{kind} of {value:e} is {found:e} in {layout:?}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn averages_of_halves_that_overflow_on_one_host_are_right_on_all() {
    for layout in [&[1, 1][..], &[2, 1], &[2, 3, 1, 2]] {
        let size: usize = layout.iter().sum::<u32>() as usize;
        round(layout, |group| {
            let rank = group.topology().rank as usize;
            // Only the last block overflows in the sum.
            let mut input = vec![f16::from_f32(1.5); 8 * size];
            input[8 * (size - 1)..].fill(f16::MAX);
            let mut block = [f16::ZERO; 8];
            group
                .reduce_scatter(&input, &mut block, Op::Average)
                .unwrap();
            let expected: f32 = if rank == size - 1 { 65504.0 } else { 1.5 };
            assert!(
                block
                    .iter()
                    .all(|block| (block.to_f32() - expected).abs() <= expected / 512.0),
                "{block:?} in {layout:?}"
            );
            // Infinite values stay infinite.
            let mut infinite = [f16::INFINITY, f16::ONE];
            group.allreduce(&mut infinite, Op::Average).unwrap();
            assert_eq!(infinite, [f16::INFINITY, f16::ONE]);
        });
    }
}

#[test]
fn bits_of_floats_are_refused_and_the_group_lives() {
    round(&[2, 1], |group| {
        let error = group.allreduce(&mut [1.0_f32], Op::BitAnd).unwrap_err();
        assert_eq!(
            error.to_string(),
            "bad argument: bitwise and of f32: bits are those of integers"
        );
        let mut flags = [1_u8 << group.topology().rank];
        group.allreduce(&mut flags, Op::BitOr).unwrap();
        assert_eq!(flags, [7]);
    });
}

#[test]
fn broadcast_from_each_rank() {
    for layout in LAYOUTS {
        let size: u32 = layout.iter().sum();
        round(layout, |group| {
            let rank = group.topology().rank;
            for root in 0..size {
                for &len in LENGTHS {
                    let expected: Vec<u32> = (0..len as u32).map(|i| i ^ (root << 20)).collect();
                    let mut data = if rank == root {
                        expected.clone()
                    } else {
                        vec![0; len]
                    };
                    group.broadcast(&mut data, root).unwrap();
                    assert!(data == expected, "{layout:?} {len} from {root} at {rank}");
                    let mut bytes = if rank == root {
                        bytemuck::cast_slice(&expected).to_vec()
                    } else {
                        vec![1; 3]
                    };
                    group.broadcast_bytes(&mut bytes, root).unwrap();
                    assert!(bytes == bytemuck::cast_slice::<_, u8>(&expected));
                }
            }
        });
    }
}

#[test]
fn allgather_and_allgatherv() {
    for layout in LAYOUTS {
        let size: u32 = layout.iter().sum();
        round(layout, |group| {
            let rank = group.topology().rank;
            let value = |rank: u32, i: usize| (rank << 24) + i as u32;
            for &len in LENGTHS {
                let block: Vec<u32> = (0..len).map(|i| value(rank, i)).collect();
                let mut all = vec![0; len * size as usize];
                group.allgather(&block, &mut all).unwrap();
                let expected: Vec<u32> = (0..size)
                    .flat_map(|r| (0..len).map(move |i| value(r, i)))
                    .collect();
                assert!(all == expected, "{layout:?} {len}");

                let bytes = |rank: u32| vec![rank as u8 + 1; len * rank as usize % 500_000];
                let all = group.allgatherv(&bytes(rank)).unwrap();
                assert!(
                    all == (0..size).map(bytes).collect::<Vec<_>>(),
                    "{layout:?} {len}"
                );
            }
        });
    }
}

#[test]
fn reduce_scatter_gives_each_its_block() {
    for layout in LAYOUTS {
        let size: u32 = layout.iter().sum();
        round(layout, |group| {
            let rank = group.topology().rank;
            for &len in LENGTHS {
                let input: Vec<i32> = (0..len * size as usize)
                    .map(|i| i as i32 + rank as i32)
                    .collect();
                let mut output = vec![0; len];
                group.reduce_scatter(&input, &mut output, Op::Max).unwrap();
                let first = len * rank as usize;
                let expected: Vec<i32> = (first..first + len)
                    .map(|i| i as i32 + size as i32 - 1)
                    .collect();
                assert!(output == expected, "{layout:?} {len} at {rank}");
            }
        });
    }
}

#[test]
fn no_member_passes_a_barrier_early() {
    use std::sync::atomic::{AtomicU32, Ordering};
    for layout in LAYOUTS {
        let size: u32 = layout.iter().sum();
        let entered = AtomicU32::new(0);
        round(layout, |group| {
            for turn in 1..50 {
                entered.fetch_add(1, Ordering::SeqCst);
                group.barrier().unwrap();
                assert!(entered.load(Ordering::SeqCst) >= turn * size);
            }
        });
    }
}
