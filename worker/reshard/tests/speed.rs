//! How long a plan takes: `cargo test --release -p elasticrun-reshard --test speed -- --ignored --nocapture`.

#![allow(clippy::unwrap_used)]

use std::time::Instant;

use elasticrun_reshard::{Axis, Division, Dtype, Holder, Layout, Mesh, Plan, Seat, Tensor};

/// Parameters of a transformer and two moments of each: `count` tensors.
fn tensors(count: usize, axes: fn(dims: usize) -> Vec<Axis>) -> Vec<Tensor> {
    // Longer than those of today's models, so that each of 10,000 shards has rows.
    let (width, ffn) = (163_840, 532_480);
    let shapes: [&[u64]; 8] = [
        &[width, width],
        &[width / 8 + 1, width],
        &[width / 8 + 1, width],
        &[width, width],
        &[ffn, width],
        &[ffn, width],
        &[width, ffn],
        &[width],
    ];
    (0..count)
        .map(|nth| Tensor {
            name: format!("model.layers.{}.mlp.weight.{nth}", nth / 8),
            dtype: Dtype::new("float32", 4),
            shape: shapes[nth % 8].to_vec(),
            division: Division::Mesh {
                mesh: 0,
                axes: axes(shapes[nth % 8].len()),
            },
        })
        .collect()
}

/// One member for each shard, eight to a host.
fn seats(count: u32) -> Vec<Seat> {
    (0..count)
        .map(|shard| Seat {
            shard,
            host: shard / 8,
            rank: shard,
        })
        .collect()
}

fn measure(name: &str, old: &Mesh, new: &Mesh, axes: fn(usize) -> Vec<Axis>) {
    let count = |mesh: &Mesh| mesh.shards.len() as u32;
    let start = Instant::now();
    let layout = |mesh: &Mesh| Layout::new(count(mesh), vec![mesh.clone()], tensors(10_000, axes));
    let [(old, _), (new, _)] = [old, new].map(|mesh| layout(mesh).unwrap());
    println!(
        "{name}: two layouts {:?}, {} bytes each",
        start.elapsed(),
        new.as_bytes().len()
    );
    let start = Instant::now();
    let again = Layout::from_bytes(new.as_bytes()).unwrap();
    assert_eq!(again, new);
    println!("{name}: a layout read {:?}", start.elapsed());
    let start = Instant::now();
    let seats = seats(new.shards());
    let holders: Vec<Holder> = (0..old.shards())
        .map(|shard| Holder {
            shard,
            host: shard / 8,
            rank: Some(shard).filter(|&rank| rank < new.shards()),
            order: 0,
        })
        .collect();
    let plan = Plan::new(&old, &new, &seats, &holders, 1 << 20).unwrap();
    println!("{name}: plan {:?}", start.elapsed());
    let start = Instant::now();
    let flows = plan.flows();
    let received: u64 = flows.hosts.iter().map(|host| host.received).sum();
    println!(
        "{name}: flows {:?}, {} of {received} bytes",
        start.elapsed(),
        flows.between.len()
    );
    let start = Instant::now();
    let fetches = plan.fetches(new.shards() / 2);
    println!("{name}: fetches {:?}, {}", start.elapsed(), fetches.len());
    assert!(!fetches.is_empty() && received > 0);
}

#[test]
#[ignore = "prints how long it takes"]
fn a_plan_of_up_to_10000_workers_and_10000_tensors() {
    let rows = |_| vec![Axis::Shard { dim: 0 }];
    measure("rows, 100 to 99", &Mesh::line(100), &Mesh::line(99), rows);
    measure(
        "rows, 1,000 to 999",
        &Mesh::line(1000),
        &Mesh::line(999),
        rows,
    );
    measure(
        "rows, 10,000 to 8,000",
        &Mesh::line(10_000),
        &Mesh::line(8000),
        rows,
    );
    measure(
        "rows, 8,000 to 10,000",
        &Mesh::line(8000),
        &Mesh::line(10_000),
        rows,
    );
    let grid = |rows: u32| Mesh {
        shape: vec![rows, 8],
        shards: (0..rows * 8).collect(),
    };
    measure(
        "rows and columns, 1250 x 8 to 1249 x 8",
        &grid(1250),
        &grid(1249),
        |dims| {
            vec![
                Axis::Shard { dim: 0 },
                Axis::Shard {
                    dim: dims as u8 - 1,
                },
            ]
        },
    );
    measure(
        "strided rows, 1250 x 8 to 1000 x 8",
        &grid(1250),
        &grid(1000),
        |_| vec![Axis::Strided { dim: 0, factor: 8 }, Axis::Shard { dim: 0 }],
    );
}
