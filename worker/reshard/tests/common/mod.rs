//! Random layouts, and what their shards hold by enumeration of all elements.

use elasticrun_reshard::{Axis, Division, Dtype, Layout, Mesh, Rect, Tensor};

/// Numbers that proptest has drawn.
pub(crate) struct Draw<'a>(pub(crate) &'a [u32]);

impl Draw<'_> {
    /// A number below `limit`. 0 if no number is left.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        let Some((&first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        first as usize % limit
    }

    fn shuffle<T>(&mut self, list: &mut [T]) {
        for index in (1..list.len()).rev() {
            list.swap(index, self.below(index + 1));
        }
    }
}

/// Names, shapes and dtypes of some tensors.
pub(crate) fn draw_tensors(draw: &mut Draw<'_>) -> Vec<Tensor> {
    let dtypes = [
        Dtype::new("float32", 4),
        Dtype::new("bfloat16", 2),
        Dtype::new("uint8", 1),
        Dtype::new("complex128", 16),
    ];
    (0..1 + draw.below(4))
        .map(|index| {
            let mut elements = 1;
            let shape = (0..draw.below(5))
                .map(|_| {
                    // Not more than a few hundred elements.
                    let len = draw.below(if elements > 50 { 3 } else { 8 });
                    elements *= len.max(1);
                    len as u64
                })
                .collect();
            Tensor {
                name: format!("layers.{index}.weight"),
                dtype: dtypes[draw.below(dtypes.len())].clone(),
                shape,
                division: Division::Whole,
            }
        })
        .collect()
}

/// The parts of a layout of these tensors.
pub(crate) fn draw_division(
    draw: &mut Draw<'_>,
    mut tensors: Vec<Tensor>,
) -> (u32, Vec<Mesh>, Vec<Tensor>) {
    // Shapes of meshes, and for each the dimension that repeats shards.
    let meshes: Vec<(Vec<u32>, Option<usize>)> = (0..1 + draw.below(3))
        .map(|_| {
            let shape: Vec<u32> = (0..1 + draw.below(3))
                .map(|_| 1 + draw.below(4) as u32)
                .collect();
            let repeated = draw.below(shape.len() + 3);
            (
                shape.clone(),
                Some(repeated).filter(|&dim| dim < shape.len()),
            )
        })
        .collect();
    let used = |(shape, repeated): &(Vec<u32>, Option<usize>)| -> u32 {
        let dims = shape.iter().enumerate();
        dims.filter(|&(dim, _)| Some(dim) != *repeated)
            .map(|(_, len)| len)
            .product()
    };
    let shards = meshes.iter().map(used).max().unwrap_or(1).min(12) + draw.below(2) as u32;
    let meshes: Vec<(Mesh, Option<usize>)> = (meshes.into_iter())
        .filter(|mesh| used(mesh) <= shards)
        .map(|(shape, repeated)| {
            let mut names: Vec<u32> = (0..shards).collect();
            draw.shuffle(&mut names);
            let count: u32 = shape.iter().product();
            let coordinates = (0..count).map(|index| coordinate(&shape, index));
            let shards = coordinates.map(|at| {
                let dims = (0..shape.len()).filter(|&dim| Some(dim) != repeated);
                names[dims.fold(0, |index, dim| index * shape[dim] + at[dim]) as usize]
            });
            let shards = shards.collect();
            (Mesh { shape, shards }, repeated)
        })
        .collect();
    for tensor in &mut tensors {
        let dims = tensor.shape.len();
        tensor.division = match draw.below(6) {
            0 => Division::Whole,
            1 => Division::Explicit(draw_rects(draw, &tensor.shape, shards)),
            _ if meshes.is_empty() => Division::Whole,
            _ => {
                let index = draw.below(meshes.len());
                let (mesh, repeated) = &meshes[index];
                let mut axis = |nth: usize| {
                    if Some(nth) == *repeated || dims == 0 {
                        return Axis::Replicate;
                    }
                    let dim = draw.below(dims) as u8;
                    match draw.below(4) {
                        0 => Axis::Replicate,
                        1 => Axis::Strided {
                            dim,
                            factor: 1 + draw.below(4) as u32,
                        },
                        _ => Axis::Shard { dim },
                    }
                };
                let axes = (0..mesh.shape.len()).map(&mut axis).collect();
                Division::Mesh {
                    mesh: index as u16,
                    axes,
                }
            }
        };
    }
    (
        shards,
        meshes.into_iter().map(|(mesh, _)| mesh).collect(),
        tensors,
    )
}

/// A layout of these tensors.
pub(crate) fn draw_layout(draw: &mut Draw<'_>, tensors: Vec<Tensor>) -> Layout {
    let (shards, meshes, tensors) = draw_division(draw, tensors);
    Layout::new(shards, meshes, tensors)
        .expect("it is drawn so that it is valid")
        .0
}

/// A shape that is cut at random, and its parts given to random shards.
fn draw_rects(draw: &mut Draw<'_>, shape: &[u64], shards: u32) -> Vec<(u32, Vec<Rect>)> {
    let mut rects = vec![Rect {
        offset: vec![0; shape.len()],
        len: shape.to_vec(),
    }];
    for _ in 0..draw.below(5) {
        if shape.is_empty() {
            break;
        }
        let (which, dim) = (draw.below(rects.len()), draw.below(shape.len()));
        let mut rest = rects[which].clone();
        let at = draw.below(rest.len[dim] as usize + 1) as u64;
        rects[which].len[dim] = at;
        rest.offset[dim] += at;
        rest.len[dim] -= at;
        rects.push(rest);
    }
    draw.shuffle(&mut rects);
    let mut parts: Vec<(u32, Vec<Rect>)> = Vec::new();
    for rect in rects {
        let shard = draw.below(shards as usize) as u32;
        match parts.iter_mut().find(|part| part.0 == shard) {
            Some((_, rects)) => rects.push(rect),
            None => parts.push((shard, vec![rect])),
        }
    }
    parts
}

/// The coordinate with a row-major index.
pub(crate) fn coordinate(shape: &[u32], index: u32) -> Vec<u32> {
    let mut rest = index;
    let mut at: Vec<u32> = (shape.iter().rev())
        .map(|len| {
            let here = rest % len;
            rest /= len;
            here
        })
        .collect();
    at.reverse();
    at
}

/// What a shard holds of a tensor: the row-major index in the whole tensor of each local element, in local order. Made of
/// lists of indices, with nothing of the crate's.
pub(crate) fn local_elements(layout: &Layout, tensor: usize, shard: u32) -> Vec<u64> {
    let tensor = &layout.tensors()[tensor];
    let mut dims: Vec<Vec<u64>> = tensor.shape.iter().map(|&len| (0..len).collect()).collect();
    match &tensor.division {
        Division::Whole => {}
        Division::Explicit(parts) => {
            let rects = parts
                .iter()
                .filter(|part| part.0 == shard)
                .flat_map(|part| &part.1);
            let elements = rects.flat_map(|rect| {
                let dims: Vec<Vec<u64>> = (rect.offset.iter().zip(&rect.len))
                    .map(|(&offset, &len)| (offset..offset + len).collect())
                    .collect();
                product(&tensor.shape, &dims)
            });
            return elements.collect();
        }
        Division::Mesh { mesh, axes } => {
            let mesh = &layout.meshes()[usize::from(*mesh)];
            let Some(index) = mesh.shards.iter().position(|&other| other == shard) else {
                return Vec::new();
            };
            let at = coordinate(&mesh.shape, index as u32);
            for (nth, axis) in axes.iter().enumerate() {
                let (dim, factor) = match *axis {
                    Axis::Replicate => continue,
                    Axis::Shard { dim } => (dim, 1),
                    Axis::Strided { dim, factor } => (dim, factor),
                };
                let list = &mut dims[usize::from(dim)];
                let piece = list.len().div_ceil(factor as usize).max(1);
                *list = (list.chunks(piece))
                    .flat_map(|piece| {
                        let chunk = piece.len().div_ceil(mesh.shape[nth] as usize);
                        piece
                            .chunks(chunk)
                            .nth(at[nth] as usize)
                            .unwrap_or_default()
                            .to_vec()
                    })
                    .collect();
            }
        }
    }
    product(&tensor.shape, &dims)
}

/// The row-major indices in a shape of all combinations of the indices of its dimensions.
pub(crate) fn product(shape: &[u64], dims: &[Vec<u64>]) -> Vec<u64> {
    dims.iter().zip(shape).fold(vec![0], |outer, (list, len)| {
        let inner = |index: u64| list.iter().map(move |at| index * len + at);
        outer.into_iter().flat_map(inner).collect()
    })
}
