//! What the footer of a file says about a row group, before anything is reserved or read by it.

use std::ops::Range;

use parquet::{basic::Compression, file::metadata::ColumnChunkMetaData};

use crate::{
    buffers::can_allocate,
    error::{Error, Problem, Result},
};

/// Checks what the footer says about a chunk of a row group with `rows` rows, and returns its place in the file.
///
/// # Errors
/// If the chunk is not within the `size` bytes of the file, or has fewer values than rows, or a codec that is not built
/// in.
pub(super) fn chunk_range(chunk: &ColumnChunkMetaData, rows: u32, size: u64) -> Result<Range<u64>> {
    check_codec(chunk.compression())?;
    check_values(chunk, rows)?;
    let start = (chunk.dictionary_page_offset()).unwrap_or_else(|| chunk.data_page_offset());
    let place = u64::try_from(start)
        .ok()
        .zip(u64::try_from(chunk.compressed_size()).ok());
    place
        .and_then(|(start, length)| Some(start..start.checked_add(length)?))
        .filter(|range| range.end <= size)
        .ok_or_else(|| Error::corrupt("its footer places it outside of the file"))
}

/// # Errors
/// If the codec is not built in.
fn check_codec(codec: Compression) -> Result<()> {
    match codec {
        Compression::UNCOMPRESSED
        | Compression::SNAPPY
        | Compression::GZIP(_)
        | Compression::LZ4
        | Compression::LZ4_RAW
        | Compression::ZSTD(_)
        | Compression::BROTLI(_) => Ok(()),
        Compression::LZO => {
            let codec = "lzo".to_owned();
            Err(Problem::UnsupportedCodec { codec }.into())
        }
    }
}

/// # Errors
/// If the footer gives the chunk fewer values than rows. A column without lists has exactly one value a row.
pub(super) fn check_values(chunk: &ColumnChunkMetaData, rows: u32) -> Result<()> {
    let (values, rows) = (chunk.num_values(), i64::from(rows));
    let is_flat = chunk.column_descr().max_rep_level() == 0;
    if values < rows || (is_flat && values > rows) {
        let why = format!("it has {values} values, the row group {rows} rows");
        return Err(Error::corrupt(why));
    }
    Ok(())
}

/// Fewer bytes are not worth a check.
const SMALL: u64 = 1 << 20;

/// # Errors
/// If the process cannot get this much memory.
pub(super) fn check_memory(bytes: u64) -> Result<()> {
    if bytes > SMALL && !can_allocate(bytes) {
        return Err(Problem::OutOfMemory { bytes }.into());
    }
    Ok(())
}
