//! The bytes of a layout.
//! Numbers are LEB128: seven bits a byte, lowest first. Lists have their length before them.

use crate::{Axis, Division, Dtype, Error, Mesh, Rect, Tensor};

/// Version of the bytes, which are their first number.
const VERSION: u64 = 1;

/// What an axis does, as a number.
const REPLICATE: u64 = 0;
const SHARD: u64 = 1;
const STRIDED: u64 = 2;

/// How a tensor is divided, as a number. A larger one is a mesh.
const WHOLE: u64 = 0;
const EXPLICIT: u64 = 1;
const FIRST_MESH: u64 = 2;

/// The bytes of a valid layout in canonical order.
pub(crate) fn encode(shards: u32, meshes: &[Mesh], tensors: &[Tensor]) -> Vec<u8> {
    let out = &mut Vec::new();
    put(out, VERSION);
    put(out, shards.into());
    put(out, meshes.len() as u64);
    for mesh in meshes {
        put(out, mesh.shape.len() as u64);
        for &len in &mesh.shape {
            put(out, len.into());
        }
        // Each shard by its distance to the one that would follow the previous one. The lowest bit holds the sign.
        let mut next = 0;
        for &shard in &mesh.shards {
            let step = i64::from(shard) - next;
            put(out, ((step << 1) ^ (step >> 63)) as u64);
            next = i64::from(shard) + 1;
        }
    }
    let mut dtypes: Vec<&Dtype> = tensors.iter().map(|tensor| &tensor.dtype).collect();
    dtypes.sort_unstable();
    dtypes.dedup();
    put(out, dtypes.len() as u64);
    for dtype in &dtypes {
        put_text(out, &dtype.name);
        put(out, dtype.itemsize.into());
    }
    put(out, tensors.len() as u64);
    for tensor in tensors {
        put_text(out, &tensor.name);
        let dtype = dtypes.binary_search(&&tensor.dtype);
        put(out, dtype.expect("all dtypes are in the list") as u64);
        put(out, tensor.shape.len() as u64);
        for &len in &tensor.shape {
            put(out, len);
        }
        put_division(out, &tensor.division);
    }
    std::mem::take(out)
}

fn put_division(out: &mut Vec<u8>, division: &Division) {
    match division {
        Division::Whole => put(out, WHOLE),
        Division::Explicit(parts) => {
            put(out, EXPLICIT);
            put(out, parts.len() as u64);
            for (shard, rects) in parts {
                put(out, (*shard).into());
                put(out, rects.len() as u64);
                for rect in rects {
                    // So that a rectangle of a scalar has a byte as well.
                    put(out, rect.len.len() as u64);
                    for (&offset, &len) in rect.offset.iter().zip(&rect.len) {
                        put(out, offset);
                        put(out, len);
                    }
                }
            }
        }
        Division::Mesh { mesh, axes } => {
            put(out, FIRST_MESH + u64::from(*mesh));
            for axis in axes {
                match *axis {
                    Axis::Replicate => put(out, REPLICATE),
                    Axis::Shard { dim } => {
                        put(out, SHARD);
                        put(out, dim.into());
                    }
                    Axis::Strided { dim, factor } => {
                        put(out, STRIDED);
                        put(out, dim.into());
                        put(out, factor.into());
                    }
                }
            }
        }
    }
}

/// The parts of a layout, which are not yet checked. What it allocates is bounded by the length of the bytes.
pub(crate) fn decode(mut bytes: &[u8]) -> Result<(u32, Vec<Mesh>, Vec<Tensor>), Error> {
    let from = &mut bytes;
    if take(from)? != VERSION {
        return Err(Error::Malformed("it is of another version of elasticrun"));
    }
    let shards = take_as(from)?;
    let meshes = take_list(from, take_mesh)?;
    let dtypes = take_list(from, |from| {
        let name = take_text(from)?;
        Ok(Dtype {
            name,
            itemsize: take_as(from)?,
        })
    })?;
    let tensors = take_list(from, |from| {
        let name = take_text(from)?;
        let dtype = usize::try_from(take(from)?)
            .ok()
            .and_then(|index| dtypes.get(index));
        let dtype = dtype.ok_or(Error::Malformed("a dtype is missing"))?.clone();
        let shape = take_list(from, take)?;
        let division = take_division(from, &meshes)?;
        Ok(Tensor {
            name,
            dtype,
            shape,
            division,
        })
    })?;
    if !from.is_empty() {
        return Err(Error::Malformed("something follows it"));
    }
    Ok((shards, meshes, tensors))
}

fn take_mesh(from: &mut &[u8]) -> Result<Mesh, Error> {
    let shape: Vec<u32> = take_list(from, take_as)?;
    let size = shape
        .iter()
        .try_fold(1_u64, |size, &len| size.checked_mul(len.into()));
    let mut next = 0_i64;
    let shards = take_many(from, size.unwrap_or(u64::MAX), |from| {
        let step = take(from)?;
        let step = (step >> 1) as i64 ^ -((step & 1) as i64);
        let shard = next
            .checked_add(step)
            .and_then(|shard| u32::try_from(shard).ok());
        let shard = shard.ok_or(TOO_LARGE)?;
        next = i64::from(shard) + 1;
        Ok(shard)
    })?;
    Ok(Mesh { shape, shards })
}

fn take_division(from: &mut &[u8], meshes: &[Mesh]) -> Result<Division, Error> {
    let kind = take(from)?;
    match kind {
        WHOLE => Ok(Division::Whole),
        EXPLICIT => {
            let parts = take_list(from, |from| {
                let shard = take_as(from)?;
                let rects = take_list(from, |from| {
                    let list = take_list(from, |from| Ok((take(from)?, take(from)?)))?;
                    let (offset, len) = list.into_iter().unzip();
                    Ok(Rect { offset, len })
                })?;
                Ok((shard, rects))
            })?;
            Ok(Division::Explicit(parts))
        }
        mesh => {
            let mesh = u16::try_from(mesh - FIRST_MESH).map_err(|_| TOO_LARGE)?;
            let shape = meshes.get(usize::from(mesh)).map(|mesh| mesh.shape.len());
            let axes = shape.ok_or(Error::Malformed("a mesh is missing"))? as u64;
            let axes = take_many(from, axes, |from| {
                Ok(match take(from)? {
                    REPLICATE => Axis::Replicate,
                    SHARD => Axis::Shard {
                        dim: take_as(from)?,
                    },
                    STRIDED => {
                        let dim = take_as(from)?;
                        Axis::Strided {
                            dim,
                            factor: take_as(from)?,
                        }
                    }
                    _ => return Err(Error::Malformed("an axis is of an unknown kind")),
                })
            })?;
            Ok(Division::Mesh { mesh, axes })
        }
    }
}

const TOO_LARGE: Error = Error::Malformed("a number is too large");
const TOO_SHORT: Error = Error::Malformed("it ends too early");

fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

fn take(from: &mut &[u8]) -> Result<u64, Error> {
    let mut value = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (byte, rest) = from.split_first().ok_or(TOO_SHORT)?;
        *from = rest;
        let bits = u64::from(byte & 0x7f);
        if bits << shift >> shift != bits {
            break;
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(TOO_LARGE)
}

fn take_as<T: TryFrom<u64>>(from: &mut &[u8]) -> Result<T, Error> {
    T::try_from(take(from)?).map_err(|_| TOO_LARGE)
}

fn take_text(from: &mut &[u8]) -> Result<String, Error> {
    let len = take_as(from)?;
    let (text, rest) = from.split_at_checked(len).ok_or(TOO_SHORT)?;
    *from = rest;
    let text = str::from_utf8(text).map_err(|_| Error::Malformed("a name is no text"))?;
    Ok(text.to_owned())
}

/// A list with its length before it.
fn take_list<T>(
    from: &mut &[u8],
    element: impl FnMut(&mut &[u8]) -> Result<T, Error>,
) -> Result<Vec<T>, Error> {
    let count = take(from)?;
    take_many(from, count, element)
}

/// So many elements, each of which has at least one byte.
fn take_many<T>(
    from: &mut &[u8],
    count: u64,
    mut element: impl FnMut(&mut &[u8]) -> Result<T, Error>,
) -> Result<Vec<T>, Error> {
    if count > from.len() as u64 {
        return Err(TOO_SHORT);
    }
    (0..count).map(|_| element(from)).collect()
}
