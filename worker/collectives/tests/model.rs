//! Random rounds, compared with a sequential model.

#![allow(clippy::unwrap_used, reason = "a helper of a test is a test")]

#[path = "support/mod.rs"]
#[allow(dead_code, clippy::unwrap_used)]
mod support;

use elasticrun_collectives::{Element, Group, Op};
use half::{bf16, f16};
use proptest::prelude::*;
use support::round_with;

#[derive(Clone, Copy, Debug)]
enum Step {
    Allreduce(Op, usize),
    ReduceScatter(Op, usize),
    Broadcast(u32, usize),
    Allgather(usize),
    Allgatherv(usize),
    BroadcastBytes(u32, usize),
    Barrier,
}

#[derive(Clone, Copy, Debug)]
enum Dtype {
    U8,
    I8,
    U16,
    I32,
    U64,
    I64,
    F16,
    Bf16,
    F32,
    F64,
}

/// The model's view of an element type.
trait Model: Element {
    /// A value whose sums over few ranks are exact in this type.
    fn make(rank: u32, i: usize) -> Self;
    fn fold(op: Op, values: &[Self]) -> Self;
}

macro_rules! integer_model {
    ($($ty:ty)*) => {$(
        impl Model for $ty {
            fn make(rank: u32, i: usize) -> Self {
                (rank as usize * 31 + i * 7 + 3) as $ty
            }
            fn fold(op: Op, values: &[Self]) -> Self {
                let sum = || values.iter().fold(0, |a: $ty, b| a.wrapping_add(*b));
                match op {
                    Op::Sum => sum(),
                    Op::Average => (i128::from(sum()) / values.len() as i128) as $ty,
                    Op::Min => *values.iter().min().unwrap(),
                    Op::Max => *values.iter().max().unwrap(),
                    Op::Product => values.iter().fold(1, |a: $ty, b| a.wrapping_mul(*b)),
                    Op::BitAnd => values.iter().fold(!0, |a: $ty, b| a & b),
                    Op::BitOr => values.iter().fold(0, |a: $ty, b| a | b),
                    Op::BitXor => values.iter().fold(0, |a: $ty, b| a ^ b),
                }
            }
        }
    )*};
}

integer_model!(u8 i8 u16 i32 u64 i64);

macro_rules! float_model {
    ($($ty:ty, $from:expr, $to:expr;)*) => {$(
        impl Model for $ty {
            // Small integers: sums and products of nine are exact in any order.
            fn make(rank: u32, i: usize) -> Self {
                $from(((rank as usize + i) % 3) as f64 - 1.0)
            }
            fn fold(op: Op, values: &[Self]) -> Self {
                let values: Vec<f64> = values.iter().map(|v| $to(*v)).collect();
                $from(match op {
                    Op::Sum => values.iter().sum(),
                    Op::Average => values.iter().sum::<f64>() / values.len() as f64,
                    Op::Min => values.iter().copied().fold(f64::INFINITY, f64::min),
                    Op::Max => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                    Op::Product => values.iter().product(),
                    Op::BitAnd | Op::BitOr | Op::BitXor => f64::NAN,
                })
            }
        }
    )*};
}

float_model! {
    f16, f16::from_f64, f16::to_f64;
    bf16, bf16::from_f64, bf16::to_f64;
    f32, |v: f64| v as f32, f64::from;
    f64, |v: f64| v, |v: f64| v;
}

/// Equal, or for an average of floats, within the two roundings that two hosts may make.
fn close<T: Model>(found: T, expected: T) -> bool {
    let value = |v: T| -> Option<f64> {
        let bytes = bytemuck::bytes_of(&v);
        Some(match T::DTYPE {
            elasticrun_collectives::DType::F16 => {
                bytemuck::pod_read_unaligned::<f16>(bytes).to_f64()
            }
            elasticrun_collectives::DType::Bf16 => {
                bytemuck::pod_read_unaligned::<bf16>(bytes).to_f64()
            }
            elasticrun_collectives::DType::F32 => {
                f64::from(bytemuck::pod_read_unaligned::<f32>(bytes))
            }
            elasticrun_collectives::DType::F64 => bytemuck::pod_read_unaligned(bytes),
            _ => return None,
        })
    };
    match (value(found), value(expected)) {
        (Some(found), Some(expected)) => (found - expected).abs() <= 0.01 * expected.abs(),
        _ => found == expected,
    }
}

/// `step`, or a similar one that floats support.
fn fitting<T: Element>(step: Step) -> Step {
    use elasticrun_collectives::DType;
    let op = |op| match op {
        Op::BitAnd | Op::BitOr | Op::BitXor => Op::Sum,
        op => op,
    };
    match (T::DTYPE, step) {
        (DType::F16 | DType::Bf16 | DType::F32 | DType::F64, Step::Allreduce(reduction, len)) => {
            Step::Allreduce(op(reduction), len)
        }
        (
            DType::F16 | DType::Bf16 | DType::F32 | DType::F64,
            Step::ReduceScatter(reduction, len),
        ) => Step::ReduceScatter(op(reduction), len),
        (_, step) => step,
    }
}

fn check<T: Model>(group: &mut Group, step: Step) {
    let step = fitting::<T>(step);
    let (rank, size) = (group.topology().rank, group.topology().size);
    let data = |rank: u32, len: usize| -> Vec<T> { (0..len).map(|i| T::make(rank, i)).collect() };
    let folded = |op: Op, range: std::ops::Range<usize>| -> Vec<T> {
        range
            .map(|i| {
                T::fold(
                    op,
                    &(0..size).map(|rank| T::make(rank, i)).collect::<Vec<_>>(),
                )
            })
            .collect()
    };
    let same = |found: &[T], expected: &[T]| {
        assert_eq!(found.len(), expected.len());
        for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
            assert!(
                close(*found, *expected),
                "{step:?} at {i}: {found:?}, not {expected:?}"
            );
        }
    };
    match step {
        Step::Allreduce(op, len) => {
            let mut mine = data(rank, len);
            group.allreduce(&mut mine, op).unwrap();
            same(&mine, &folded(op, 0..len));
            // All ranks have the same bits.
            let all = group.allgatherv(bytemuck::cast_slice(&mine)).unwrap();
            assert!(all.iter().all(|other| *other == all[0]));
        }
        Step::ReduceScatter(op, len) => {
            let input = data(rank, len * size as usize);
            let mut output = vec![T::zeroed(); len];
            group.reduce_scatter(&input, &mut output, op).unwrap();
            let first = len * rank as usize;
            same(&output, &folded(op, first..first + len));
        }
        Step::Broadcast(root, len) => {
            let root = root % size;
            let mut mine = data(rank, len);
            group.broadcast(&mut mine, root).unwrap();
            same(&mine, &data(root, len));
        }
        Step::Allgather(len) => {
            let mut all = vec![T::zeroed(); len * size as usize];
            group.allgather(&data(rank, len), &mut all).unwrap();
            let expected: Vec<T> = (0..size).flat_map(|rank| data(rank, len)).collect();
            same(&all, &expected);
        }
        Step::Allgatherv(len) => {
            let bytes = |rank: u32| vec![rank as u8; len * ((rank as usize + 2) % 3)];
            let all = group.allgatherv(&bytes(rank)).unwrap();
            assert!(all == (0..size).map(bytes).collect::<Vec<_>>());
        }
        Step::BroadcastBytes(root, len) => {
            let root = root % size;
            let mut bytes = vec![rank as u8; if rank == root { len } else { 5 }];
            group.broadcast_bytes(&mut bytes, root).unwrap();
            assert!(bytes == vec![root as u8; len]);
        }
        Step::Barrier => group.barrier().unwrap(),
    }
}

fn ops() -> impl Strategy<Value = Op> {
    prop_oneof![
        Just(Op::Sum),
        Just(Op::Average),
        Just(Op::Min),
        Just(Op::Max),
        Just(Op::Product),
        Just(Op::BitAnd),
        Just(Op::BitOr),
        Just(Op::BitXor)
    ]
}

/// Mostly small, sometimes beyond a slice or a segment.
fn lens() -> impl Strategy<Value = usize> {
    prop_oneof![3 => 0..40usize, 3 => 0..20_000usize, 1 => 0..400_000usize]
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (ops(), lens()).prop_map(|(op, len)| Step::Allreduce(op, len)),
        2 => (ops(), lens()).prop_map(|(op, len)| Step::ReduceScatter(op, len / 4)),
        2 => (0..9u32, lens()).prop_map(|(root, len)| Step::Broadcast(root, len)),
        2 => lens().prop_map(|len| Step::Allgather(len / 4)),
        1 => lens().prop_map(Step::Allgatherv),
        1 => (0..9u32, lens()).prop_map(|(root, len)| Step::BroadcastBytes(root, len)),
        1 => Just(Step::Barrier),
    ]
}

/// One to nine ranks over one to nine hosts.
fn layouts() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(1..6u32, 1..9).prop_map(|mut layout| {
        while layout.iter().sum::<u32>() > 9 {
            layout.pop();
        }
        layout
    })
}

fn dtypes() -> impl Strategy<Value = Dtype> {
    use Dtype::*;
    prop::sample::select(vec![U8, I8, U16, I32, U64, I64, F16, Bf16, F32, F64])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn operations_give_what_the_model_gives(
        layout in layouts(),
        encrypt in any::<bool>(),
        program in prop::collection::vec((steps(), dtypes()), 1..8),
    ) {
        round_with(&layout, encrypt, |group| {
            for &(step, dtype) in &program {
                match dtype {
                    Dtype::U8 => check::<u8>(group, step),
                    Dtype::I8 => check::<i8>(group, step),
                    Dtype::U16 => check::<u16>(group, step),
                    Dtype::I32 => check::<i32>(group, step),
                    Dtype::U64 => check::<u64>(group, step),
                    Dtype::I64 => check::<i64>(group, step),
                    Dtype::F16 => check::<f16>(group, step),
                    Dtype::Bf16 => check::<bf16>(group, step),
                    Dtype::F32 => check::<f32>(group, step),
                    Dtype::F64 => check::<f64>(group, step),
                }
            }
        });
    }
}
