//! Each operation, in each layout, beside what it should give.

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

/// Around the borders between small and large, of slices and of segments.
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
                let own: Vec<u32> = (0..len).map(|i| value(rank, i)).collect();
                let mut all = vec![0; len * size as usize];
                group.allgather(&own, &mut all).unwrap();
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
fn barriers_hold_everybody_back() {
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
