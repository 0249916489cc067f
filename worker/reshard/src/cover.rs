//! Whether rectangles have each element of a shape exactly once.
//!
//! Count at each element how many rectangles contain it, and take the difference of these counts along each dimension. Of a
//! rectangle its corners are left, each with 1 or -1. The counts are 1 everywhere if and only if the sums at all corners
//! are those of the whole shape. So no two rectangles are compared with each other.

use crate::Rect;

/// Most corners that are examined. A million rectangles along one dimension have two million.
const MAX_CORNERS: usize = 1 << 21;

/// Whether the rectangles, which lie within the shape, have each element of it exactly once. `None` if there are too many to
/// tell.
pub(crate) fn covers_once(shape: &[u64], rects: &[&Rect]) -> Option<bool> {
    let rects = || rects.iter().filter(|rect| !rect.is_empty());
    if shape.contains(&0) {
        return Some(rects().count() == 0);
    }
    let spans = |rect: &Rect, dim: usize| rect.offset[dim] == 0 && rect.len[dim] == shape[dim];
    // A dimension that nothing cuts has the same two ends for all.
    let dims: Vec<usize> = (0..shape.len())
        .filter(|&dim| rects().any(|rect| !spans(rect, dim)))
        .collect();
    let sides = u32::try_from(dims.len())
        .ok()
        .and_then(|dims| 1_usize.checked_shl(dims))?;
    let corners = (rects().count() + 1).checked_mul(sides)?;
    if corners.checked_mul(dims.len().max(1))? > MAX_CORNERS {
        return None;
    }

    // The corners of all rectangles, and those of the shape with the other sign.
    let mut points: Vec<u64> = Vec::new();
    let mut signs: Vec<i64> = Vec::new();
    let mut add = |start: &dyn Fn(usize) -> u64, end: &dyn Fn(usize) -> u64, sign: i64| {
        for side in 0..sides {
            points.extend((dims.iter().enumerate()).map(|(nth, &dim)| {
                if side >> nth & 1 == 1 {
                    end(dim)
                } else {
                    start(dim)
                }
            }));
            signs.push(if side.count_ones() % 2 == 1 {
                -sign
            } else {
                sign
            });
        }
    };
    for rect in rects() {
        add(&|dim| rect.offset[dim], &|dim| rect.interval(dim).end(), 1);
    }
    add(&|_| 0, &|dim| shape[dim], -1);

    let point = |nth: usize| &points[nth * dims.len()..][..dims.len()];
    let mut order: Vec<usize> = (0..signs.len()).collect();
    order.sort_unstable_by(|&a, &b| point(a).cmp(point(b)));
    let sums = order.chunk_by(|&a, &b| point(a) == point(b));
    Some(
        sums.map(|same| same.iter().map(|&nth| signs[nth]).sum())
            .all(|sum: i64| sum == 0),
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn count_each(shape: &[u64], rects: &[Rect]) -> bool {
        let elements: u64 = shape.iter().product();
        (0..elements).all(|nth| {
            let mut rest = nth;
            let index: Vec<u64> = (shape.iter().rev())
                .map(|len| {
                    let at = rest % len;
                    rest /= len;
                    at
                })
                .collect();
            let contains = |rect: &&Rect| {
                (index.iter().rev().enumerate())
                    .all(|(dim, &at)| at >= rect.offset[dim] && at < rect.interval(dim).end())
            };
            rects.iter().filter(contains).count() == 1
        })
    }

    /// Cuts the shape at random places into rectangles that cover it once.
    fn tiles(shape: &[u64], cuts: &[(usize, usize, u64)]) -> Vec<Rect> {
        let mut rects = vec![Rect {
            offset: vec![0; shape.len()],
            len: shape.to_vec(),
        }];
        for &(which, dim, at) in cuts {
            let (which, dim) = (which % rects.len(), dim % shape.len());
            let mut rest = rects[which].clone();
            let at = at % (rest.len[dim] + 1);
            rects[which].len[dim] = at;
            rest.offset[dim] += at;
            rest.len[dim] -= at;
            rects.push(rest);
        }
        rects
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn it_is_what_a_count_of_each_element_gives(
            shape in prop::collection::vec(0_u64..5, 1..4),
            cuts in prop::collection::vec((0_usize..20, 0_usize..3, 0_u64..5), 0..6),
            // Which rectangle is changed, in which dimension, and how.
            change in prop::option::of((0_usize..20, 0_usize..3, 0_u64..5, 0_u64..5)),
        ) {
            let mut rects = tiles(&shape, &cuts);
            if let Some((which, dim, offset, len)) = change {
                let (which, dim) = (which % rects.len(), dim % shape.len());
                let offset = offset % (shape[dim] + 1);
                rects[which].offset[dim] = offset;
                rects[which].len[dim] = len % (shape[dim] - offset + 1);
            }
            let refs: Vec<&Rect> = rects.iter().collect();
            prop_assert_eq!(covers_once(&shape, &refs), Some(count_each(&shape, &rects)));
        }
    }

    #[test]
    fn a_scalar_is_one_element() {
        let rect = Rect {
            offset: vec![],
            len: vec![],
        };
        assert_eq!(covers_once(&[], &[]), Some(false));
        assert_eq!(covers_once(&[], &[&rect]), Some(true));
        assert_eq!(covers_once(&[], &[&rect, &rect]), Some(false));
    }

    #[test]
    fn more_than_can_be_told_is_said() {
        let rect = Rect {
            offset: vec![0; 40],
            len: vec![1; 40],
        };
        assert_eq!(covers_once(&[2; 40], &[&rect]), None);
    }
}
