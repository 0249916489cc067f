//! A column chunk as its pages: each checked, and decompressed into one buffer that is used again.

use bytes::Bytes;
use parquet::{basic::Compression, file::metadata::ColumnChunkMetaData};

use super::{
    header::{self, PageHeader, PageType},
    literals::Literals,
    source::Source,
};
use crate::{
    buffers::Buffers,
    error::{Error, Problem, Result},
};

/// The pages of a chunk.
#[derive(Debug)]
pub(super) struct Chunk {
    /// What the pages are slices of: the chunk as it was read if nothing is compressed.
    pub(super) bytes: Bytes,
    pub(super) dictionary: Option<Page>,
    pub(super) data: Vec<Page>,
}

/// A page: where its parts lie in the bytes of the chunk.
#[derive(Clone, Debug)]
pub(super) struct Page {
    pub(super) start: usize,
    pub(super) end: usize,
    /// Number of its values, with those that are null.
    pub(super) values: usize,
    /// By its number in parquet.thrift.
    pub(super) encoding: i64,
    /// Bytes of its repetition and of its definition levels, which come first; without them, each kind is
    /// preceded by its length (version 1).
    pub(super) levels: Option<(usize, usize)>,
}

impl Chunk {
    /// Decompresses all pages. Nothing if the chunk has a codec that is left to Arrow's reader.
    ///
    /// # Errors
    /// A page that is cut, has a wrong checksum (if it has one) or does not decompress.
    pub(super) fn read(
        metadata: &ColumnChunkMetaData,
        mut source: Source<'_>,
        buffers: &Buffers,
    ) -> Result<Option<Self>> {
        let Some(mut codec) = Codec::of(metadata.compression()) else {
            return Ok(None);
        };
        let length = match codec {
            Codec::None => 0,
            // What the footer says, with its headers, which are not needed.
            _ => usize::try_from(metadata.uncompressed_size())
                .map_err(|_| damaged("its size is negative"))?,
        };
        let mut target = buffers.take(length).map_err(Problem::Io)?;
        let mut chunk = Chunk {
            bytes: Bytes::new(),
            dictionary: None,
            data: Vec::new(),
        };
        let (mut at, mut filled) = (0, 0);
        while at < source.length() {
            let (header, header_length) = read_header(&mut source, at)?;
            at += header_length;
            let page = source
                .get(at, header.compressed)
                .map_err(Problem::from)?
                .get(..header.compressed)
                .ok_or_else(|| damaged("a page reaches beyond the end of its chunk"))?;
            if header.crc.is_some_and(|crc| crc != crc32fast::hash(page)) {
                return Err(damaged("a page has not the checksum that its header says"));
            }
            let levels = (header.page_type == PageType::DataV2)
                .then_some((header.repetition_bytes, header.definition_bytes));
            let (start, end) = if let Codec::None = codec {
                (at, at + page.len())
            } else {
                let end = filled + header.uncompressed;
                let room = target
                    .get_mut(filled..end)
                    .ok_or_else(|| damaged("its pages hold more than its footer says"))?;
                let plain = match levels {
                    Some((repetition, definition)) => repetition + definition,
                    None => 0,
                };
                codec.decompress(page, room, plain, header.is_compressed)?;
                (filled, end)
            };
            at += header.compressed;
            filled = end;
            let page = Page {
                start,
                end,
                values: header.values,
                encoding: header.encoding,
                levels,
            };
            match header.page_type {
                PageType::Dictionary => chunk.dictionary = Some(page),
                PageType::Data | PageType::DataV2 => chunk.data.push(page),
                PageType::Other => {}
            }
        }
        chunk.bytes = match (codec, source) {
            (Codec::None, Source::Memory(bytes)) => bytes,
            (Codec::None, Source::File(_)) => return Ok(None),
            _ => buffers.share(target),
        };
        Ok(Some(chunk))
    }

    /// The content of a page.
    pub(super) fn page(&self, page: &Page) -> &[u8] {
        &self.bytes[page.start..page.end]
    }
}

/// The header of the page at `at`, and its length.
fn read_header(source: &mut Source<'_>, at: usize) -> Result<(PageHeader, usize)> {
    // Most are far below a kilobyte; statistics may be of any length.
    for wanted in [1 << 10, usize::MAX] {
        let bytes = source.get(at, wanted).map_err(Problem::from)?;
        if let Some(read) = header::read(bytes) {
            return Ok(read);
        }
    }
    Err(damaged("a page header cannot be read"))
}

/// Whether chunks of this codec are decompressed here, and not by Arrow's reader.
pub(super) fn is_decompressed_here(compression: Compression) -> bool {
    matches!(compression, Compression::SNAPPY | Compression::ZSTD(_))
}

enum Codec {
    None,
    Snappy(snap::raw::Decoder),
    Zstd(Zstd),
}

impl Codec {
    fn of(compression: Compression) -> Option<Self> {
        match compression {
            Compression::UNCOMPRESSED => Some(Self::None),
            Compression::SNAPPY => Some(Self::Snappy(snap::raw::Decoder::new())),
            Compression::ZSTD(_) => Some(Self::Zstd(Zstd::default())),
            _ => None,
        }
    }

    /// Fills `room`. The first `plain` bytes are not compressed.
    fn decompress(
        &mut self,
        page: &[u8],
        room: &mut [u8],
        plain: usize,
        compressed: bool,
    ) -> Result<()> {
        let plain = if compressed { plain } else { page.len() };
        if plain > page.len() || plain > room.len() {
            return Err(damaged("a page is shorter than its levels"));
        }
        let (levels, page) = page.split_at(plain);
        let (front, room) = room.split_at_mut(plain);
        front.copy_from_slice(levels);
        if page.is_empty() && room.is_empty() {
            return Ok(());
        }
        let filled = match self {
            Self::None => 0,
            Self::Snappy(decoder) => decoder
                .decompress(page, room)
                .map_err(|error| damaged(&error.to_string()))?,
            Self::Zstd(zstd) => zstd.decompress(page, room)?,
        };
        if filled != room.len() {
            return Err(damaged("a page has not the length that its header says"));
        }
        Ok(())
    }
}

/// What this crate decodes quicker than the library, and the library for all else.
#[derive(Default)]
struct Zstd {
    literals: Literals,
    library: Option<zstd::bulk::Decompressor<'static>>,
}

impl Zstd {
    fn decompress(&mut self, page: &[u8], room: &mut [u8]) -> Result<usize> {
        if self.literals.decode(page, room) {
            return Ok(room.len());
        }
        let library = match &mut self.library {
            Some(library) => library,
            none => none.insert(zstd::bulk::Decompressor::new().map_err(Problem::Io)?),
        };
        let filled = library.decompress_to_buffer(page, room);
        filled.map_err(|error| damaged(&error.to_string()))
    }
}

fn damaged(why: &str) -> Error {
    Error::corrupt(why.to_owned())
}
