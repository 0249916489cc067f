//! Pages that are compressed by brotli.
//!
//! Some bytes of brotli may decompress to a million times as many, and Arrow's reader decompresses a page without a limit. So its
//! pages are decompressed here before, into a small buffer, to see that they have the size that their headers say. That takes the
//! time of decompression twice, for columns that Arrow's reader decodes. The window of brotli has at most 16 MiB.

use std::io::Read;

use brotli_decompressor::Decompressor;

use super::{chunk_source::ChunkSource, header::PageType};
use crate::error::{Error, Problem, Result};

/// Bytes that are read or checked at a time.
const BUFFER: usize = 16 << 10;

/// Decompresses a page that fills `dst`. Returns the number of its bytes, of which `dst` has the first.
///
/// # Errors
/// If the page does not decompress.
pub(super) fn decompress(page: &[u8], dst: &mut [u8]) -> Result<usize> {
    check_window(page)?;
    let mut stream = Decompressor::new(page, BUFFER);
    let mut filled = 0;
    while filled < dst.len() {
        match stream.read(&mut dst[filled..]).map_err(bad)? {
            0 => return Ok(filled),
            read => filled += read,
        }
    }
    let more = stream.read(&mut [0]).map_err(bad)?;
    Ok(filled + more)
}

/// Checks the sizes of all pages of a chunk, or of some of its pages.
///
/// # Errors
/// If a page does not decompress to the size that its header says.
pub(super) fn check_sizes(source: &mut ChunkSource<'_>) -> Result<()> {
    let mut pos = 0;
    while pos < source.length() {
        let (header, length) = source.header(pos)?;
        pos += length;
        let levels = match header.page_type {
            PageType::DataV2 => header.repetition_bytes + header.definition_bytes,
            _ => 0,
        };
        let page = source.get(pos, header.compressed).map_err(Problem::from)?;
        let page = page.get(levels..header.compressed);
        let size = header.uncompressed.checked_sub(levels);
        let (Some(page), Some(size)) = (page, size) else {
            return Err(Error::corrupt("a page is shorter than its levels"));
        };
        if header.is_compressed && !(page.is_empty() && size == 0) {
            check_size(page, size)?;
        }
        pos += header.compressed;
    }
    Ok(())
}

fn check_size(page: &[u8], size: usize) -> Result<()> {
    check_window(page)?;
    let mut stream = Decompressor::new(page, BUFFER);
    let (mut buffer, mut found) = ([0; BUFFER], 0);
    while found <= size {
        match stream.read(&mut buffer).map_err(bad)? {
            0 if found == size => return Ok(()),
            0 => break,
            read => found += read,
        }
    }
    Err(Error::corrupt(
        "a page has not the length that its header says",
    ))
}

/// # Errors
/// If the window is one of the large ones, up to a gigabyte, which are no part of the format (RFC 7932).
fn check_window(page: &[u8]) -> Result<()> {
    match page.first() {
        // The code that the format reserves, and that large windows use.
        Some(first) if first & 0x7f == 0x11 => {
            Err(Error::corrupt("a page has a window that is too large"))
        }
        _ => Ok(()),
    }
}

fn bad(error: std::io::Error) -> Error {
    Error::corrupt(format!("a page does not decompress: {error}"))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use bytes::Bytes;

    use super::*;

    fn compressed(content: &[u8]) -> Vec<u8> {
        let mut writer = brotli::CompressorWriter::new(Vec::new(), 4096, 5, 22);
        writer.write_all(content).unwrap();
        writer.into_inner()
    }

    #[test]
    fn a_page_fills_its_buffer_exactly() {
        let content = vec![7; 1 << 20];
        let page = compressed(&content);
        assert!(page.len() < 100);
        let mut dst = vec![0; 1 << 20];
        assert_eq!(decompress(&page, &mut dst).unwrap(), 1 << 20);
        assert_eq!(dst, content);
        assert_eq!(decompress(&page, &mut dst[..1000]).unwrap(), 1001);
        assert_eq!(decompress(&page, &mut vec![0; 2 << 20]).unwrap(), 1 << 20);
        assert!(decompress(&page[..page.len() - 1], &mut dst).is_err());
    }

    #[test]
    fn a_page_of_another_size_is_found_before_it_is_decompressed_whole() {
        let page = compressed(&vec![7; 1 << 20]);
        assert!(check_size(&page, 1 << 20).is_ok());
        for size in [0, 1000, (1 << 20) - 1, (1 << 20) + 1, usize::MAX] {
            let error = check_size(&page, size).unwrap_err().to_string();
            assert!(
                error.ends_with("has not the length that its header says"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_window_that_is_no_part_of_the_format_is_refused() {
        let error = decompress(&[0x11, 30, 3], &mut [0; 8]).unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("a page has a window that is too large")
        );
    }

    #[test]
    fn a_cut_page_is_no_page() {
        let mut source = ChunkSource::Memory(Bytes::from_static(&[0x15, 0x00]));
        assert!(check_sizes(&mut source).is_err());
    }
}
