//! Decodes PNG and JPEG images to arrays of (height, width) or (height, width, 3).
//!
//! PNG values of 8 and 16 bits are exact, and palettes are expanded. JPEG decoders differ by a few units of 255, which
//! the standard allows. The channels are red, green and blue.

use zune_jpeg::{
    JpegDecoder,
    zune_core::{bytestream::ZCursor, colorspace::ColorSpace, options::DecoderOptions},
};

use crate::error::{Error, Problem, Result};

/// A decoded image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Rows of pixels.
    pub height: usize,
    /// Pixels of a row.
    pub width: usize,
    /// 1 or 3.
    pub channels: usize,
    /// Bytes of a value: 1, or 2 in native byte order.
    pub depth: usize,
    /// Row by row, with the channels of a pixel together.
    pub values: Vec<u8>,
}

/// Maximum size of an image in bytes. A larger one is not a sample of a data set, but an attack or damage.
const MAX_IMAGE_BYTES: usize = 1 << 30;

impl Image {
    /// Decodes an image, whose format is detected.
    ///
    /// # Errors
    /// If the bytes are neither PNG nor JPEG or are damaged, or if the number of channels is not 1 or 3.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        if bytes.starts_with(b"\x89PNG") {
            png(bytes)
        } else if bytes.starts_with(&[0xff, 0xd8]) {
            jpeg(bytes)
        } else {
            Err(bad("neither PNG nor JPEG"))
        }
    }
}

fn png(bytes: &[u8]) -> Result<Image> {
    let broken = |error: png::DecodingError| bad(&format!("a damaged PNG: {error}"));
    let limits = png::Limits {
        bytes: MAX_IMAGE_BYTES,
    };
    let mut decoder = png::Decoder::new_with_limits(std::io::Cursor::new(bytes), limits);
    decoder.set_transformations(png::Transformations::EXPAND);
    let mut reader = decoder.read_info().map_err(broken)?;
    let length = reader
        .output_buffer_size()
        .filter(|length| *length <= MAX_IMAGE_BYTES);
    let mut values = vec![0; length.ok_or_else(|| bad("too large"))?];
    let frame = reader.next_frame(&mut values).map_err(broken)?;
    values.truncate(frame.buffer_size());
    let channels = match frame.color_type {
        png::ColorType::Grayscale => 1,
        png::ColorType::Rgb => 3,
        other => {
            return Err(bad(&format!(
                "of {other:?}, and only gray and RGB are known"
            )));
        }
    };
    let depth = match frame.bit_depth {
        png::BitDepth::Sixteen => {
            // PNG is big-endian.
            for value in values.as_chunks_mut::<2>().0 {
                *value = u16::from_be_bytes(*value).to_ne_bytes();
            }
            2
        }
        _ => 1,
    };
    Ok(Image {
        height: frame.height as usize,
        width: frame.width as usize,
        channels,
        depth,
        values,
    })
}

fn jpeg(bytes: &[u8]) -> Result<Image> {
    let broken = |error: &dyn std::fmt::Debug| bad(&format!("a damaged JPEG: {error:?}"));
    let mut decoder = JpegDecoder::new(ZCursor::new(bytes));
    decoder.decode_headers().map_err(|error| broken(&error))?;
    let (channels, space) = match decoder.input_colorspace() {
        Some(ColorSpace::Luma) => (1, ColorSpace::Luma),
        _ => (3, ColorSpace::RGB),
    };
    decoder.set_options(DecoderOptions::default().jpeg_set_out_colorspace(space));
    let values = decoder.decode().map_err(|error| broken(&error))?;
    let (width, height) = decoder.dimensions().ok_or_else(|| bad("without a size"))?;
    if values.len() != width * height * channels {
        return Err(bad("a JPEG of a kind that is not known"));
    }
    Ok(Image {
        height,
        width,
        channels,
        depth: 1,
        values,
    })
}

fn bad(why: &str) -> Error {
    Problem::BadImage(why.to_owned()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(color: png::ColorType, depth: png::BitDepth, values: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, 3, 2);
        encoder.set_color(color);
        encoder.set_depth(depth);
        let mut writer = encoder.write_header().unwrap();
        writer.write_image_data(values).unwrap();
        writer.finish().unwrap();
        bytes
    }

    #[test]
    fn a_png_is_decoded_exactly() {
        let rgb: Vec<u8> = (0..18).collect();
        let image = Image::decode(&encoded(png::ColorType::Rgb, png::BitDepth::Eight, &rgb));
        let image = image.unwrap();
        assert_eq!((image.height, image.width, image.channels), (2, 3, 3));
        assert_eq!((image.depth, image.values), (1, rgb));

        let deep: Vec<u16> = vec![0, 1, 256, 1000, 40_000, 65_535];
        let bytes: Vec<u8> = deep.iter().flat_map(|value| value.to_be_bytes()).collect();
        let gray = encoded(png::ColorType::Grayscale, png::BitDepth::Sixteen, &bytes);
        let image = Image::decode(&gray).unwrap();
        let values: Vec<u16> = (image.values.chunks(2))
            .map(|value| u16::from_ne_bytes([value[0], value[1]]))
            .collect();
        assert_eq!((image.channels, image.depth, values), (1, 2, deep));
    }

    #[test]
    fn what_is_no_image_is_said() {
        let rgba = encoded(png::ColorType::Rgba, png::BitDepth::Eight, &[7; 24]);
        for (bytes, wanted) in [
            (
                &b"GIF89a"[..],
                "no image that is known: neither PNG nor JPEG",
            ),
            (b"", "neither PNG nor JPEG"),
            (b"\x89PNG\r\n\x1a\nxx", "a damaged PNG"),
            (b"\xff\xd8\xff\xe0xx", "a damaged JPEG"),
            (&rgba, "of Rgba, and only gray and RGB are known"),
            (&rgba[..60], "a damaged PNG"),
        ] {
            let error = Image::decode(bytes).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }
}
