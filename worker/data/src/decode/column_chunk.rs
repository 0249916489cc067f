//! A column chunk as pages: verified, and decompressed into one pooled buffer.

use bytes::Bytes;
use parquet::{basic::Compression, file::metadata::ColumnChunkMetaData};

use super::{
    brotli,
    chunk_source::ChunkSource,
    header::{PageType, RLE},
    page_walk::PageWalk,
};
use crate::{
    buffers::BufferPool,
    error::{Error, Problem, Result},
};

/// The pages of a chunk.
#[derive(Debug)]
pub(super) struct ColumnChunk {
    /// The buffer of the pages: the chunk as it was read if it is not compressed.
    pub(super) bytes: Bytes,
    pub(super) dictionary: Option<Page>,
    pub(super) data: Vec<Page>,
}

/// A page, as a range of the bytes of the chunk.
#[derive(Clone, Debug)]
pub(super) struct Page {
    pub(super) start: usize,
    pub(super) end: usize,
    /// Number of values, including nulls.
    pub(super) values: usize,
    /// Number of the encoding in parquet.thrift.
    pub(super) encoding: i32,
    /// Bytes of the repetition and of the definition levels, which come first. If `None` (version 1), a length
    /// precedes each kind.
    pub(super) levels: Option<(usize, usize)>,
    /// Whether the repetition and the definition levels are runs.
    pub(super) are_runs: (bool, bool),
}

impl ColumnChunk {
    /// Decompresses all pages, into `uncompressed` bytes if they are compressed, unless `accept` refuses one: it gets the type,
    /// the page and its content. Returns `None` then, and if Arrow's reader must handle the codec.
    ///
    /// # Errors
    /// If a page is cut, has a wrong checksum, or does not decompress, or if the pages hold more values than the footer
    /// says.
    pub(super) fn read(
        metadata: &ColumnChunkMetaData,
        source: &mut ChunkSource<'_>,
        uncompressed: usize,
        buffers: &BufferPool,
        mut accept: impl FnMut(PageType, &Page, &[u8]) -> bool,
    ) -> Result<Option<Self>> {
        let Some(mut codec) = Codec::from_compression(metadata.compression())? else {
            return Ok(None);
        };
        let length = match codec {
            Codec::None => 0,
            _ => uncompressed,
        };
        let mut target = buffers.take(length)?;
        let mut chunk = ColumnChunk {
            bytes: Bytes::new(),
            dictionary: None,
            data: Vec::new(),
        };
        let mut values_left = usize::try_from(metadata.num_values())
            .map_err(|_| Error::corrupt("its number of values is negative"))?;
        let (mut pos, mut filled) = (0, 0);
        while pos < source.length() {
            let (header, header_length) = source.header(pos)?;
            pos += header_length;
            if let PageType::Data | PageType::DataV2 = header.page_type {
                values_left = values_left.checked_sub(header.values).ok_or_else(|| {
                    Error::corrupt("its pages hold more values than its footer says")
                })?;
            }
            let page = source
                .get(pos, header.compressed)
                .map_err(Problem::from)?
                .get(..header.compressed)
                .ok_or_else(|| Error::corrupt("a page reaches beyond the end of its chunk"))?;
            if header.crc.is_some_and(|crc| crc != crc32fast::hash(page)) {
                return Err(Error::corrupt(
                    "a page has not the checksum that its header says",
                ));
            }
            let levels = (header.page_type == PageType::DataV2)
                .then_some((header.repetition_bytes, header.definition_bytes));
            let (start, end, content) = if let Codec::None = codec {
                (pos, pos + page.len(), page)
            } else {
                let end = filled + header.uncompressed;
                let dst = target
                    .get_mut(filled..end)
                    .ok_or_else(|| Error::corrupt("its pages hold more than its footer says"))?;
                let plain = match levels {
                    Some((repetition, definition)) => repetition + definition,
                    None => 0,
                };
                codec.decompress(page, dst, plain, header.is_compressed)?;
                (filled, end, &*dst)
            };
            let page = Page {
                start,
                end,
                values: header.values,
                encoding: header.encoding,
                levels,
                are_runs: (
                    header.repetition_encoding == RLE,
                    header.definition_encoding == RLE,
                ),
            };
            if !accept(header.page_type, &page, content) {
                return Ok(None);
            }
            pos += header.compressed;
            filled = end;
            match header.page_type {
                PageType::Dictionary => chunk.dictionary = Some(page),
                PageType::Data | PageType::DataV2 => chunk.data.push(page),
                PageType::Other => {}
            }
        }
        chunk.bytes = match (codec, source) {
            (Codec::None, ChunkSource::Memory(bytes)) => bytes.clone(),
            (Codec::None, ChunkSource::File(_)) => return Ok(None),
            _ => buffers.share(target),
        };
        Ok(Some(chunk))
    }

    /// The content of a page.
    pub(super) fn page(&self, page: &Page) -> &[u8] {
        &self.bytes[page.start..page.end]
    }
}

/// A chunk that compression made this much smaller, and that is larger than `LARGE`, is one that a few bytes could
/// claim.
const SUSPICIOUS_RATIO: usize = 64;
const LARGE: usize = 64 << 20;

/// The bytes of all pages after decompression: by the footer, which includes the headers, so it is slightly too large.
/// If that is suspicious, the pages are asked.
pub(super) fn uncompressed_bytes(
    metadata: &ColumnChunkMetaData,
    source: &mut ChunkSource<'_>,
) -> Result<usize> {
    let claimed = usize::try_from(metadata.uncompressed_size())
        .map_err(|_| Error::corrupt("its size is negative"))?;
    if claimed <= LARGE || claimed / SUSPICIOUS_RATIO <= source.length() {
        return Ok(claimed);
    }
    let mut pages = PageWalk::default();
    pages.add(source)?;
    Ok(claimed.min(usize::try_from(pages.uncompressed).unwrap_or(usize::MAX)))
}

/// Whether this module decompresses the codec.
pub(super) fn is_decompressed_here(compression: Compression) -> bool {
    matches!(
        compression,
        Compression::BROTLI(_) | Compression::SNAPPY | Compression::ZSTD(_)
    )
}

enum Codec {
    None,
    Brotli,
    Snappy(snap::raw::Decoder),
    Zstd(zstd::bulk::Decompressor<'static>),
}

impl Codec {
    fn from_compression(compression: Compression) -> Result<Option<Self>> {
        Ok(Some(match compression {
            Compression::UNCOMPRESSED => Self::None,
            Compression::BROTLI(_) => Self::Brotli,
            Compression::SNAPPY => Self::Snappy(snap::raw::Decoder::new()),
            Compression::ZSTD(_) => {
                Self::Zstd(zstd::bulk::Decompressor::new().map_err(Problem::Io)?)
            }
            _ => return Ok(None),
        }))
    }

    /// Decompresses into `dst`. The first `plain` bytes are not compressed.
    fn decompress(
        &mut self,
        page: &[u8],
        dst: &mut [u8],
        plain: usize,
        compressed: bool,
    ) -> Result<()> {
        let plain = if compressed { plain } else { page.len() };
        if plain > page.len() || plain > dst.len() {
            return Err(Error::corrupt("a page is shorter than its levels"));
        }
        let (levels, page) = page.split_at(plain);
        let (front, dst) = dst.split_at_mut(plain);
        front.copy_from_slice(levels);
        if page.is_empty() && dst.is_empty() {
            return Ok(());
        }
        let filled = match self {
            Self::None => 0,
            Self::Brotli => brotli::decompress(page, dst)?,
            Self::Snappy(decoder) => decoder
                .decompress(page, dst)
                .map_err(|error| Error::corrupt(error.to_string()))?,
            Self::Zstd(decoder) => decoder
                .decompress_to_buffer(page, dst)
                .map_err(|error| Error::corrupt(error.to_string()))?,
        };
        if filled != dst.len() {
            return Err(Error::corrupt(
                "a page has not the length that its header says",
            ));
        }
        Ok(())
    }
}
