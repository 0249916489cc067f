//! The bytes of a shard that are requested from another host.

use elasticrun_reshard::{Body, Fetch, Run};

/// A part of the bytes of a shard, and where its pieces go.
pub(crate) struct Part {
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// Offset in the part, tensor, offset in the tensor, length.
    pub(crate) pieces: Vec<(u64, u32, u64, u64)>,
}

/// Most bytes of one request to another host.
pub(crate) const REQUEST_BYTES: u64 = 64 << 20;

/// Most parts of one request. A request must fit a frame.
pub(crate) const REQUEST_PARTS: usize = 4096;

/// Most runs of a tensor that are requested one by one. A tensor of more runs is requested from its first to its last byte.
const MAX_RUNS: usize = 256;

/// The parts of a body to request for a part of a tensor.
pub(crate) fn parts(body: &Body, fetch: &Fetch) -> Vec<Part> {
    let start = body.tensors()[fetch.old_tensor as usize].start as u64;
    let is_scattered = fetch.runs().nth(MAX_RUNS).is_some();
    if !is_scattered {
        let part = |run: Run| Part {
            offset: start + run.source,
            len: run.len,
            pieces: vec![(0, fetch.tensor, run.target, run.len)],
        };
        // A long run would not fit a request.
        return fetch.runs().flat_map(split).map(part).collect();
    }
    let mut parts: Vec<Part> = Vec::new();
    for run in fetch.runs() {
        let (offset, end) = (start + run.source, start + run.source + run.len);
        let last = parts.last_mut();
        let joined = last.filter(|last| {
            offset >= last.offset && end.max(last.offset) - last.offset <= REQUEST_BYTES
        });
        match joined {
            Some(last) => {
                last.len = last.len.max(end - last.offset);
                let piece = (offset - last.offset, fetch.tensor, run.target, run.len);
                last.pieces.push(piece);
            }
            None => parts.push(Part {
                offset,
                len: run.len,
                pieces: vec![(0, fetch.tensor, run.target, run.len)],
            }),
        }
    }
    parts
}

/// A run as several ones that each fit a request.
fn split(run: Run) -> impl Iterator<Item = Run> {
    let steps = (0..run.len).step_by(REQUEST_BYTES as usize);
    steps.map(move |at| Run {
        source: run.source + at,
        target: run.target + at,
        len: REQUEST_BYTES.min(run.len - at),
    })
}
