//! Properties that hold for any bytes as a layout or as the body of a shard: for the fuzzer, and for a test of some
//! thousand inputs in the test suite.

#[cfg(test)]
mod tests;

use xxhash_rust::xxh3::xxh3_64;

use crate::{Body, Layout};

/// Reads any bytes as a layout, as a body, and as a body whose header is made to agree with what follows it. Gives whether
/// one of them can be read.
///
/// # Panics
/// If what was read has other bytes, its parts are not within it, or an error is not one line.
pub fn check(bytes: &[u8]) -> bool {
    let is_layout = check_layout(bytes);
    let is_body = check_body(bytes);
    let is_repaired = bytes.len() >= Body::HEADER && check_body(&repaired(bytes));
    is_layout || is_body || is_repaired
}

fn check_layout(bytes: &[u8]) -> bool {
    let layout = match Layout::from_bytes(bytes) {
        Ok(layout) => layout,
        Err(error) => {
            assert_is_line(&error.to_string());
            return false;
        }
    };
    assert_eq!(layout.as_bytes(), bytes);
    // Some of its shards and tensors: it may have a million of both.
    for shard in (0..layout.shards()).take(4) {
        for (index, tensor) in (0..).zip(layout.tensors()).take(4) {
            let rects = layout.rects(index, shard);
            let bytes = rects.elements() * u64::from(tensor.dtype.itemsize);
            assert_eq!(layout.local_bytes(index, shard), bytes);
            for rect in rects.iter().take(100) {
                let ends = rect
                    .offset
                    .iter()
                    .zip(&rect.len)
                    .map(|(offset, len)| offset + len);
                assert!(ends.zip(&tensor.shape).all(|(end, &len)| end <= len));
            }
        }
        if let Ok(body) = Body::new(&layout, shard, 9) {
            assert!(body.len() as u64 >= layout.bytes(shard));
        }
    }
    true
}

fn check_body(bytes: &[u8]) -> bool {
    let (layout, body) = match Body::parse(bytes) {
        Ok(parsed) => parsed,
        Err(error) => {
            assert_is_line(&error.to_string());
            return false;
        }
    };
    assert_eq!(Body::parse_with(&layout, bytes), Ok(body.clone()));
    assert_eq!(&bytes[body.layout()], layout.as_bytes());
    assert_eq!(body.tensors().len(), layout.tensors().len());
    let mut end = body.head().end;
    for range in body.tensors() {
        assert!(end <= range.start && range.start < end + Body::ALIGN);
        end = range.end;
    }
    assert_eq!(end, bytes.len());
    true
}

/// The bytes with another header, which has the same shard and lengths of layout and head.
fn repaired(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let len = bytes.len() as u64;
    let layout = u64::from_le_bytes(bytes[24..32].try_into().expect("eight bytes"));
    let layout_end = (layout as usize)
        .saturating_add(Body::HEADER)
        .min(bytes.len());
    let hash = xxh3_64(&bytes[Body::HEADER..layout_end]).max(1);
    bytes[..12].copy_from_slice(b"ERSHARD\0\x01\0\0\0");
    bytes[16..24].copy_from_slice(&hash.to_le_bytes());
    bytes[40..48].copy_from_slice(&len.to_le_bytes());
    let check = xxh3_64(&bytes[..56]);
    bytes[56..64].copy_from_slice(&check.to_le_bytes());
    bytes
}

/// The longest error has a name of 4096 bytes, each of which may be escaped.
fn assert_is_line(text: &str) {
    assert!(text.len() < 50_000 && !text.contains('\n'), "{text}");
}
