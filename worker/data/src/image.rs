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
    /// Values of a pixel.
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
        match Self::decode_all(bytes)? {
            image if matches!(image.channels, 1 | 3) => Ok(image),
            _ => Err(bad(
                "with an alpha channel, and only gray and RGB are known",
            )),
        }
    }

    /// Decodes an image and drops its alpha channel. 1 or 3 channels of one byte each are left.
    ///
    /// # Errors
    /// If the bytes are neither PNG nor JPEG or are damaged.
    pub(crate) fn decode_without_alpha(bytes: &[u8]) -> Result<Self> {
        let mut image = Self::decode_all(bytes)?;
        if image.depth == 2 {
            let values = image.values.as_chunks::<2>().0.iter();
            image.values = values
                .map(|value| (u16::from_ne_bytes(*value) >> 8) as u8)
                .collect();
            image.depth = 1;
        }
        if matches!(image.channels, 2 | 4) {
            let pixels = image.values.chunks_exact(image.channels);
            image.values = pixels
                .flat_map(|pixel| &pixel[..pixel.len() - 1])
                .copied()
                .collect();
            image.channels -= 1;
        }
        Ok(image)
    }

    /// The image in gray, or in red, green and blue. Gray is the luma of ITU-R 601.
    pub(crate) fn with_channels(mut self, channels: usize) -> Self {
        match (self.channels, channels) {
            (1, 3) => self.values = self.values.iter().flat_map(|value| [*value; 3]).collect(),
            (3, 1) => {
                let luma = |[red, green, blue]: &[u8; 3]| {
                    let sum = 19_595 * u32::from(*red)
                        + 38_470 * u32::from(*green)
                        + 7_471 * u32::from(*blue);
                    ((sum + 0x8000) >> 16) as u8
                };
                self.values = self.values.as_chunks::<3>().0.iter().map(luma).collect();
            }
            _ => {}
        }
        Self { channels, ..self }
    }

    /// Decodes a JPEG of this size into `target`, in red, green and blue or in gray. Returns whether it did: images of
    /// other formats and sizes are left to [`Self::decode`].
    ///
    /// # Errors
    /// If the bytes are a damaged JPEG. The target is black then.
    pub(crate) fn decode_jpeg_into(
        bytes: &[u8],
        (height, width, channels): (usize, usize, usize),
        target: &mut [u8],
    ) -> Result<bool> {
        if !is_jpeg(bytes) {
            return Ok(false);
        }
        let (mut decoder, stored) = jpeg_decoder(bytes)?;
        if decoder.dimensions() != Some((width, height)) || stored != channels {
            return Ok(false);
        }
        if decoder.output_buffer_size() != Some(target.len()) {
            return Ok(false);
        }
        let decoded = decoder.decode_into(target);
        decoded.map_err(|error| {
            target.fill(0);
            broken_jpeg(&error)
        })?;
        Ok(true)
    }

    fn decode_all(bytes: &[u8]) -> Result<Self> {
        if bytes.starts_with(b"\x89PNG") {
            png(bytes)
        } else if is_jpeg(bytes) {
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
        png::ColorType::GrayscaleAlpha => 2,
        png::ColorType::Rgb => 3,
        png::ColorType::Rgba => 4,
        // Palettes are expanded.
        other @ png::ColorType::Indexed => return Err(bad(&format!("of {other:?}"))),
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

fn is_jpeg(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0xff, 0xd8])
}

/// A decoder that has read the headers, and the number of channels that it gives.
fn jpeg_decoder(bytes: &[u8]) -> Result<(JpegDecoder<ZCursor<&[u8]>>, usize)> {
    let mut decoder = JpegDecoder::new(ZCursor::new(bytes));
    decoder
        .decode_headers()
        .map_err(|error| broken_jpeg(&error))?;
    let (channels, space) = match decoder.input_colorspace() {
        Some(ColorSpace::Luma) => (1, ColorSpace::Luma),
        _ => (3, ColorSpace::RGB),
    };
    decoder.set_options(DecoderOptions::default().jpeg_set_out_colorspace(space));
    Ok((decoder, channels))
}

fn jpeg(bytes: &[u8]) -> Result<Image> {
    let (mut decoder, channels) = jpeg_decoder(bytes)?;
    let values = decoder.decode().map_err(|error| broken_jpeg(&error))?;
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

fn broken_jpeg(error: &dyn std::fmt::Debug) -> Error {
    bad(&format!("a damaged JPEG: {error:?}"))
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
    fn an_image_gets_the_channels_that_are_asked_for() {
        let rgba = encoded(
            png::ColorType::Rgba,
            png::BitDepth::Eight,
            &[10, 20, 30, 9].repeat(6),
        );
        let rgb = Image::decode_without_alpha(&rgba).unwrap();
        assert_eq!((rgb.channels, &rgb.values), (3, &[10, 20, 30].repeat(6)));
        let gray = rgb.with_channels(1);
        // 0.299 * 10 + 0.587 * 20 + 0.114 * 30
        assert_eq!((gray.channels, &gray.values), (1, &vec![18; 6]));
        assert_eq!(gray.with_channels(3).values, [18; 18]);
        let deep: Vec<u8> = [0u16, 255, 256, 1000, 40_000, 65_535]
            .iter()
            .flat_map(|value| value.to_be_bytes())
            .collect();
        let deep = encoded(png::ColorType::Grayscale, png::BitDepth::Sixteen, &deep);
        let deep = Image::decode_without_alpha(&deep).unwrap();
        assert_eq!((deep.depth, deep.values), (1, vec![0, 0, 1, 3, 156, 255]));
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
            (
                &rgba,
                "with an alpha channel, and only gray and RGB are known",
            ),
            (&rgba[..60], "a damaged PNG"),
        ] {
            let error = Image::decode(bytes).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }
}
