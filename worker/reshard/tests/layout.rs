//! What shards hold: against an enumeration of all elements, and against torch.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Draw, draw_division, draw_layout, draw_tensors, local_elements, product};
use elasticrun_reshard::{
    Axis, Block, Body, BodyError, Division, Dtype, Error, Layout, Mesh, Rect, Tensor,
};
use proptest::prelude::*;
use xxhash_rust::xxh3::xxh3_64;

/// The elements of a block, in local order.
fn elements(shape: &[u64], block: &Block) -> Vec<u64> {
    let dims: Vec<Vec<u64>> = (block.dims().iter())
        .map(|list| {
            list.iter()
                .flat_map(|one| one.offset..one.offset + one.len)
                .collect()
        })
        .collect();
    product(shape, &dims)
}

fn entropy() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(any::<u32>(), 0..300)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_shard_holds_what_the_rule_says(entropy in entropy()) {
        let draw = &mut Draw(&entropy);
        let tensors = draw_tensors(draw);
        let layout = draw_layout(draw, tensors);
        for shard in 0..layout.shards() {
            let mut bytes = 0;
            for (index, tensor) in layout.tensors().iter().enumerate() {
                let rects = layout.rects(index as u32, shard);
                let found: Vec<u64> = rects.blocks().iter().flat_map(|block| elements(&tensor.shape, block)).collect();
                let expected = local_elements(&layout, index, shard);
                prop_assert_eq!(&found, &expected);
                prop_assert_eq!(rects.elements(), expected.len() as u64);
                // The rectangles have the same elements, in another order.
                let mut by_rect: Vec<u64> = rects.iter().flat_map(|rect| {
                    let dims: Vec<Vec<u64>> = (rect.offset.iter().zip(&rect.len))
                        .map(|(&offset, &len)| (offset..offset + len).collect())
                        .collect();
                    product(&tensor.shape, &dims)
                }).collect();
                by_rect.sort_unstable();
                let mut expected = expected;
                expected.sort_unstable();
                prop_assert_eq!(by_rect, expected);
                let local = found.len() as u64 * u64::from(tensor.dtype.itemsize);
                prop_assert_eq!(layout.local_bytes(index as u32, shard), local);
                bytes += local;
            }
            prop_assert_eq!(layout.bytes(shard), bytes);
        }
    }

    #[test]
    fn the_order_of_insertion_is_no_part_of_a_layout(entropy in entropy()) {
        let draw = &mut Draw(&entropy);
        let tensors = draw_tensors(draw);
        let (shards, mut meshes, mut tensors) = draw_division(draw, tensors);
        let (layout, index) = Layout::new(shards, meshes.clone(), tensors.clone()).unwrap();
        for (tensor, &index) in tensors.iter().zip(&index) {
            prop_assert_eq!(&layout.tensors()[index as usize].name, &tensor.name);
            prop_assert_eq!(layout.find(&tensor.name), Some(index));
        }
        tensors.reverse();
        meshes.reverse();
        // One mesh more, which nothing uses, and one that is there twice.
        meshes.push(Mesh::line(1));
        meshes.extend(meshes.first().cloned());
        let last = meshes.len() as u16 - 1;
        for tensor in &mut tensors {
            if let Division::Mesh { mesh, .. } = &mut tensor.division {
                *mesh = last - 2 - *mesh;
                if *mesh == 0 {
                    *mesh = last;
                }
            }
            if let Division::Explicit(parts) = &mut tensor.division {
                parts.reverse();
            }
        }
        let (again, _) = Layout::new(shards, meshes, tensors).unwrap();
        prop_assert_eq!(again.as_bytes(), layout.as_bytes());
        prop_assert_eq!(again.hash(), layout.hash());
    }

    #[test]
    fn a_layout_comes_back(entropy in entropy()) {
        let draw = &mut Draw(&entropy);
        let tensors = draw_tensors(draw);
        let layout = draw_layout(draw, tensors);
        let again = Layout::from_bytes(layout.as_bytes()).unwrap();
        prop_assert_eq!(again.tensors(), layout.tensors());
        prop_assert_eq!(again.meshes(), layout.meshes());
        prop_assert_eq!(again.shards(), layout.shards());
        prop_assert_eq!(again.hash(), layout.hash());
        for shard in 0..layout.shards() {
            let head = entropy.len();
            let body = Body::new(&layout, shard, head).unwrap();
            let mut bytes = vec![7; body.len()];
            bytes[..Body::HEADER].copy_from_slice(&body.header());
            bytes[body.layout()].copy_from_slice(layout.as_bytes());
            prop_assert_eq!(Body::parse_with(&layout, &bytes), Ok(body.clone()));
            let (layout_again, body_again) = Body::parse(&bytes).unwrap();
            prop_assert_eq!(&layout_again, &layout);
            prop_assert_eq!(body_again.shard(), shard);
            prop_assert_eq!(body_again.head().len(), head);
            let mut end = body.head().end;
            for (index, range) in (0..).zip(body.tensors()) {
                prop_assert_eq!(range.start, end.next_multiple_of(64));
                prop_assert_eq!(range.len() as u64, layout.local_bytes(index, shard));
                end = range.end;
            }
            prop_assert_eq!(end, body.len());
            let (expected, len) = (bytes.len(), bytes.len() - 1);
            let cut = Body::parse(&bytes[..len]);
            // Without a tensor and a head, the layout is the end.
            let layout_end = body.layout().end;
            let error = if len < layout_end { BodyError::Damaged } else { BodyError::Len { expected, len } };
            prop_assert_eq!(cut, Err(error));
        }
    }
}

/// What a layout is made of.
type Parts = (u32, Vec<Mesh>, Vec<Tensor>);

/// A change of these parts.
type Change = fn(&mut Parts);

/// A layout of one tensor on a mesh of 2 x 3 shards.
fn example() -> Parts {
    let mesh = Mesh {
        shape: vec![2, 3],
        shards: (0..6).collect(),
    };
    let tensor = Tensor {
        name: "weight".into(),
        dtype: Dtype::new("float32", 4),
        shape: vec![10, 4],
        division: Division::Mesh {
            mesh: 0,
            axes: vec![Axis::Shard { dim: 0 }, Axis::Shard { dim: 1 }],
        },
    };
    (6, vec![mesh], vec![tensor])
}

/// Changes of the example that change what a shard holds, how it is called, or what it is.
fn changes() -> Vec<Change> {
    vec![
        |_| {},
        |layout| layout.0 = 7,
        |layout| layout.1[0].shards.swap(0, 1),
        |layout| layout.1[0].shape = vec![3, 2],
        |layout| layout.2[0].name.push('s'),
        |layout| layout.2[0].dtype.name = "int32".into(),
        |layout| layout.2[0].dtype.itemsize = 8,
        |layout| layout.2[0].shape = vec![4, 10],
        |layout| layout.2[0].shape = vec![10, 4, 1],
        |layout| set_axes(layout, Axis::Shard { dim: 1 }, Axis::Shard { dim: 0 }),
        |layout| set_axes(layout, Axis::Shard { dim: 0 }, Axis::Replicate),
        |layout| {
            set_axes(
                layout,
                Axis::Shard { dim: 0 },
                Axis::Strided { dim: 0, factor: 2 },
            )
        },
        |layout| {
            set_axes(
                layout,
                Axis::Shard { dim: 0 },
                Axis::Strided { dim: 0, factor: 3 },
            )
        },
        |layout| {
            set_axes(
                layout,
                Axis::Shard { dim: 0 },
                Axis::Strided { dim: 1, factor: 2 },
            )
        },
        |layout| layout.2[0].division = Division::Whole,
        |layout| layout.2[0].division = halves(0, 1),
        |layout| layout.2[0].division = halves(1, 0),
        |layout| {
            layout.2.push(Tensor {
                name: "other".into(),
                ..layout.2[0].clone()
            })
        },
        |layout| layout.2.clear(),
    ]
}

fn set_axes(layout: &mut Parts, first: Axis, second: Axis) {
    let axes = vec![first, second];
    layout.2[0].division = Division::Mesh { mesh: 0, axes };
}

/// The upper rows of the example belong to one shard, and the lower ones to another.
fn halves(upper: u32, lower: u32) -> Division {
    let rect = |offset| Rect {
        offset: vec![offset, 0],
        len: vec![5, 4],
    };
    Division::Explicit(vec![(upper, vec![rect(0)]), (lower, vec![rect(5)])])
}

#[test]
fn the_hash_changes_with_all_that_matters() {
    let mut hashes: Vec<u64> = (changes().into_iter())
        .map(|change| {
            let mut parts = example();
            change(&mut parts);
            let (shards, meshes, tensors) = parts;
            Layout::new(shards, meshes, tensors).unwrap().0.hash()
        })
        .collect();
    let count = hashes.len();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), count);
    assert!(!hashes.contains(&0));
}

#[test]
fn the_bytes_are_the_same_in_every_version() {
    let (shards, meshes, tensors) = example();
    let (layout, _) = Layout::new(shards, meshes, tensors).unwrap();
    // Version, shards; meshes: dimensions and shards; dtypes; tensors.
    let mut expected = vec![1, 6, 1, 2, 2, 3, 0, 0, 0, 0, 0, 0, 1, 7];
    expected.extend(b"float32");
    expected.extend([4, 1, 6]);
    expected.extend(b"weight");
    expected.extend([0, 2, 10, 4, 2, 1, 0, 1, 1]);
    assert_eq!(layout.as_bytes(), expected);
    assert_eq!(layout.hash(), 16_383_555_754_189_637_169);
    let header = Body::new(&layout, 5, 100).unwrap().header();
    assert_eq!(header[..16], *b"ERSHARD\0\x01\0\0\0\x05\0\0\0");
}

#[test]
fn what_does_not_fit_together_is_refused_by_name() {
    let tensor = || "weight".to_owned();
    let cases: Vec<(Change, Error)> = vec![
        (|parts| parts.0 = 0, Error::Shards { shards: 0 }),
        (
            |parts| parts.0 = u32::MAX,
            Error::Shards { shards: u32::MAX },
        ),
        (
            |parts| parts.0 = 5,
            Error::MeshShard {
                mesh: 0,
                shard: 5,
                shards: 5,
            },
        ),
        (
            |parts| parts.1[0].shape = vec![2, 2],
            Error::MeshSize { mesh: 0, named: 6 },
        ),
        (
            |parts| parts.1[0].shape = vec![0, 6],
            Error::MeshSize { mesh: 0, named: 6 },
        ),
        (
            |parts| parts.1.clear(),
            Error::NoMesh {
                tensor: tensor(),
                mesh: 0,
            },
        ),
        (
            |parts| parts.1[0].shards[3] = 0,
            Error::Repeated {
                tensor: tensor(),
                shard: 0,
            },
        ),
        (
            |parts| parts.2.push(parts.2[0].clone()),
            Error::Name { tensor: tensor() },
        ),
        (
            |parts| parts.2[0].dtype.itemsize = 0,
            Error::Dtype { tensor: tensor() },
        ),
        (
            |parts| parts.2[0].dtype.name = "a b".into(),
            Error::Dtype { tensor: tensor() },
        ),
        (
            |parts| parts.2[0].shape = vec![1 << 40, 1 << 30],
            Error::TooLarge { tensor: tensor() },
        ),
        (
            |parts| parts.2[0].shape = vec![0, u64::MAX],
            Error::TooLarge { tensor: tensor() },
        ),
        (
            |parts| parts.2[0].shape = vec![1; 65],
            Error::TooManyDims {
                tensor: tensor(),
                dims: 65,
            },
        ),
        (
            |parts| parts.2[0].shape = vec![40],
            Error::Dim {
                tensor: tensor(),
                dim: 1,
                dims: 1,
            },
        ),
        (
            |parts| {
                set_axes(
                    parts,
                    Axis::Shard { dim: 0 },
                    Axis::Strided { dim: 0, factor: 0 },
                )
            },
            Error::Factor {
                tensor: tensor(),
                factor: 0,
            },
        ),
        (
            |parts| {
                parts.2[0].shape = vec![1 << 40, 4];
                set_axes(
                    parts,
                    Axis::Shard { dim: 0 },
                    Axis::Strided {
                        dim: 0,
                        factor: 1 << 20,
                    },
                );
            },
            Error::Factor {
                tensor: tensor(),
                factor: 1 << 20,
            },
        ),
        (
            |parts| {
                parts.2[0].division = Division::Mesh {
                    mesh: 0,
                    axes: vec![Axis::Replicate],
                }
            },
            Error::Axes {
                tensor: tensor(),
                axes: 1,
                dims: 2,
            },
        ),
        (
            |parts| parts.2[0].division = halves(1, 1),
            Error::Owner {
                tensor: tensor(),
                shard: 1,
            },
        ),
        (
            |parts| parts.2[0].division = halves(1, 6),
            Error::Owner {
                tensor: tensor(),
                shard: 6,
            },
        ),
        (
            |parts| {
                parts.2[0].division = halves(1, 2);
                parts.2[0].shape = vec![9, 4];
            },
            Error::Outside {
                tensor: tensor(),
                shard: 2,
            },
        ),
        (
            |parts| {
                parts.2[0].division = halves(1, 2);
                parts.2[0].shape = vec![40];
            },
            Error::Outside {
                tensor: tensor(),
                shard: 1,
            },
        ),
        (
            |parts| {
                parts.2[0].division = halves(1, 2);
                parts.2[0].shape = vec![11, 4];
            },
            Error::Cover { tensor: tensor() },
        ),
        (
            |parts| {
                let rect = |offset, len| Rect {
                    offset: vec![offset, 0],
                    len: vec![len, 4],
                };
                parts.2[0].division = Division::Explicit(vec![(0, vec![rect(0, 6), rect(5, 4)])]);
            },
            Error::Cover { tensor: tensor() },
        ),
    ];
    for (change, expected) in cases {
        let mut parts = example();
        change(&mut parts);
        let (shards, meshes, tensors) = parts;
        let error = Layout::new(shards, meshes, tensors).unwrap_err();
        assert_eq!(error, expected);
        assert!(!error.to_string().contains('\n'));
    }
}

#[test]
fn a_shard_may_be_twice_in_a_mesh_that_replicates() {
    let (shards, mut meshes, mut tensors) = example();
    meshes[0].shards = vec![4, 2, 0, 4, 2, 0];
    let axes = vec![Axis::Replicate, Axis::Shard { dim: 1 }];
    tensors[0].division = Division::Mesh { mesh: 0, axes };
    let (layout, _) = Layout::new(shards, meshes, tensors).unwrap();
    let shapes = [0, 1, 2, 4].map(|shard| {
        let rects = layout.rects(0, shard);
        rects.blocks().first().map(Block::shape)
    });
    // Four columns for three shards are two, two and none.
    let [empty, two] = [0, 2].map(|columns| Some(vec![10, columns]));
    assert_eq!(shapes, [empty, None, two.clone(), two]);
}

#[test]
fn shards_are_those_of_torch() {
    let mut cases = 0;
    for line in include_str!("torch_placements.txt").lines() {
        let mut words = line.split(' ');
        let mut numbers = || -> Vec<u64> {
            let word = words.next().unwrap();
            word.split('x')
                .map(|number| number.parse().unwrap())
                .collect()
        };
        let mesh: Vec<u32> = numbers().into_iter().map(|len| len as u32).collect();
        let shape = numbers();
        let axis = |text: &str| {
            let (kind, rest) = text.split_at(1);
            let dim = |text: &str| text.parse().unwrap();
            match kind {
                "R" => Axis::Replicate,
                "S" => Axis::Shard { dim: dim(rest) },
                _ => {
                    let (rest, factor) = rest.split_once('/').unwrap();
                    Axis::Strided {
                        dim: dim(rest),
                        factor: factor.parse().unwrap(),
                    }
                }
            }
        };
        let axes = words.next().unwrap().split('+').map(axis).collect();
        let shards = mesh.iter().product();
        let tensor = Tensor {
            name: "tensor".into(),
            dtype: Dtype::new("int64", 8),
            shape: shape.clone(),
            division: Division::Mesh { mesh: 0, axes },
        };
        let mesh = Mesh {
            shape: mesh,
            shards: (0..shards).collect(),
        };
        let (layout, _) = Layout::new(shards, vec![mesh], vec![tensor]).unwrap();
        for shard in 0..shards {
            let rects = layout.rects(0, shard);
            let [block] = rects.blocks() else {
                panic!("{line}")
            };
            let join = |list: Vec<u64>, by: &str| {
                list.iter().map(u64::to_string).collect::<Vec<_>>().join(by)
            };
            let found = format!(
                "{}:{}",
                join(block.shape(), "x"),
                join(elements(&shape, block), ",")
            );
            assert_eq!(Some(&*found), words.next(), "shard {shard} of {line}");
        }
        assert_eq!(words.next(), None);
        cases += 1;
    }
    assert!(cases > 300);
}

#[test]
fn a_header_that_contradicts_its_body_is_refused() {
    let (shards, meshes, tensors) = example();
    let (layout, _) = Layout::new(shards, meshes, tensors).unwrap();
    let body = Body::new(&layout, 1, 10).unwrap();
    let mut bytes = vec![0; body.len()];
    bytes[..Body::HEADER].copy_from_slice(&body.header());
    bytes[body.layout()].copy_from_slice(layout.as_bytes());
    let changed = |offset: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[offset] ^= byte;
        let damaged = Body::parse(&bytes).unwrap_err();
        // With a check that agrees.
        let check = xxh3_64(&bytes[..56]).to_le_bytes();
        bytes[56..64].copy_from_slice(&check);
        (damaged, Body::parse(&bytes).map(|(_, body)| body))
    };
    let damaged = BodyError::Damaged;
    let expected = bytes.len();
    let cases: Vec<(usize, u8, Result<Body, BodyError>)> = vec![
        (
            12,
            8,
            Err(BodyError::Shard {
                shard: 9,
                shards: 6,
            }),
        ),
        (16, 1, Err(BodyError::Damaged)),
        (24, 1, Err(Error::Malformed("it ends too early").into())),
        (31, 0xff, Err(BodyError::Damaged)),
        (32, 0x80, Err(BodyError::Damaged)),
        (39, 0xff, Err(BodyError::TooLarge)),
        (40, 1, Err(BodyError::Damaged)),
        // For later versions.
        (48, 1, Ok(body.clone())),
    ];
    for (offset, byte, expected) in cases {
        assert_eq!(
            changed(offset, byte),
            (damaged.clone(), expected),
            "byte {offset}"
        );
    }
    assert_eq!(changed(0, 1).0, BodyError::Magic);
    assert_eq!(changed(8, 2).0, BodyError::Version { version: 3 });
    bytes.push(0);
    let len = bytes.len();
    assert_eq!(Body::parse(&bytes), Err(BodyError::Len { expected, len }));
    assert_eq!(
        Body::parse(&bytes[..63]),
        Err(BodyError::TooShort { len: 63 })
    );
    let (other, _) = Layout::new(1, Vec::new(), Vec::new()).unwrap();
    let (hash, expected) = (layout.hash(), other.hash());
    assert_eq!(
        Body::parse_with(&other, &bytes),
        Err(BodyError::OtherLayout { hash, expected })
    );
}
