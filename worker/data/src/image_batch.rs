//! The images of a batch as one array, decoded and resized on several threads.

use std::{
    num::NonZeroU32,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use fast_image_resize::{
    FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer,
    images::{Image as Resized, ImageRef},
};

use crate::{
    error::{Error, Problem, Result},
    image::Image,
};

/// How images become one array.
#[derive(Clone, Copy, Debug)]
pub struct ImageSize {
    /// Rows of pixels.
    pub height: NonZeroU32,
    /// Pixels of a row.
    pub width: NonZeroU32,
    /// Whether an image is gray, and not red, green and blue.
    pub is_gray: bool,
    /// Whether the sides of an image that has another aspect ratio are cut off. It is distorted otherwise.
    pub crops: bool,
}

/// Images side by side.
#[derive(Clone, Debug)]
pub struct Images {
    /// The pixels of all images, row by row, with the channels of a pixel together. Images that are missing are black.
    pub pixels: Vec<u8>,
    /// Which images are there, a byte each. Others are null, or could not be decoded.
    pub mask: Vec<u8>,
    /// How many could not be decoded.
    pub failed: usize,
}

impl ImageSize {
    /// Bytes of an image.
    pub fn bytes(&self) -> usize {
        self.height.get() as usize * self.width.get() as usize * self.channels()
    }

    /// Values of a pixel.
    pub fn channels(&self) -> usize {
        if self.is_gray { 1 } else { 3 }
    }

    fn pixel(&self) -> PixelType {
        if self.is_gray {
            PixelType::U8
        } else {
            PixelType::U8x3
        }
    }

    /// Decodes images on so many threads. `None` is null.
    ///
    /// # Errors
    /// If an image cannot be decoded, unless these are left black; the error names the first one.
    pub fn decode(
        &self,
        encoded: &[Option<&[u8]>],
        threads: usize,
        leaves_black: bool,
    ) -> Result<Images> {
        let mut pixels = vec![0; encoded.len() * self.bytes()];
        let mut mask = vec![0; encoded.len()];
        let errors = Mutex::new(Vec::new());
        {
            let slots = pixels.chunks_exact_mut(self.bytes()).zip(&mut mask);
            let slots: Vec<_> = slots.map(|slot| Mutex::new(Some(slot))).collect();
            let next = AtomicUsize::new(0);
            let work = || {
                let mut resizer = Resizer::new();
                while let at = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(slot) = slots.get(at)
                {
                    let slot = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
                    let (Some(bytes), Some((pixels, mask))) = (encoded[at], slot) else {
                        continue;
                    };
                    match self.decode_one(bytes, pixels, &mut resizer) {
                        Ok(()) => *mask = 1,
                        Err(error) => {
                            let mut errors = errors.lock().unwrap_or_else(PoisonError::into_inner);
                            errors.push((at, error));
                        }
                    }
                }
            };
            std::thread::scope(|scope| {
                for _ in 1..threads.min(encoded.len()) {
                    scope.spawn(work);
                }
                work();
            });
        }
        let errors = errors.into_inner().unwrap_or_else(PoisonError::into_inner);
        let failed = errors.len();
        match errors.into_iter().min_by_key(|(at, _)| *at) {
            Some((at, error)) if !leaves_black => {
                Err(Problem::BadImage(format!("row {at} of the batch: {error}")).into())
            }
            _ => Ok(Images {
                pixels,
                mask,
                failed,
            }),
        }
    }

    fn decode_one(&self, bytes: &[u8], target: &mut [u8], resizer: &mut Resizer) -> Result<()> {
        let (height, width) = (self.height.get(), self.width.get());
        let shape = (height as usize, width as usize, self.channels());
        if Image::decode_jpeg_into(bytes, shape, target)? {
            return Ok(());
        }
        let image = Image::decode_without_alpha(bytes)?.with_channels(self.channels());
        if (image.height, image.width) == (height as usize, width as usize) {
            target.copy_from_slice(&image.values);
            return Ok(());
        }
        let wrong = |error: &dyn std::fmt::Display| -> Error {
            Problem::BadImage(error.to_string()).into()
        };
        let (rows, columns) = (image.height as u32, image.width as u32);
        let source = ImageRef::new(columns, rows, &image.values, self.pixel())
            .map_err(|error| wrong(&error))?;
        let mut resized = Resized::from_slice_u8(width, height, target, self.pixel())
            .map_err(|error| wrong(&error))?;
        let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Bilinear));
        let options = match self.crops {
            true => options.fit_into_destination(Some((0.5, 0.5))),
            false => options,
        };
        let done = resizer.resize(&source, &mut resized, &options);
        done.map_err(|error| wrong(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: ImageSize = ImageSize {
        height: NonZeroU32::new(2).unwrap(),
        width: NonZeroU32::new(3).unwrap(),
        is_gray: false,
        crops: false,
    };

    fn png(width: u32, height: u32, value: impl Fn(u32, u32) -> u8) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, width, height);
        encoder.set_color(png::ColorType::Grayscale);
        let mut writer = encoder.write_header().unwrap();
        let pixels = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
        let pixels: Vec<u8> = pixels.map(|(x, y)| value(x, y)).collect();
        writer.write_image_data(&pixels).unwrap();
        writer.finish().unwrap();
        bytes
    }

    #[test]
    fn images_lie_side_by_side_whatever_the_number_of_threads() {
        let images: Vec<_> = (0..9).map(|image| png(3, 2, |_, _| image)).collect();
        let encoded: Vec<_> = (images.iter().enumerate())
            .map(|(at, image)| (at != 4).then_some(&image[..]))
            .collect();
        for threads in [1, 2, 20] {
            let found = SIZE.decode(&encoded, threads, false).unwrap();
            let expected: Vec<u8> = (0..9)
                .flat_map(|at| [if at == 4 { 0 } else { at }; 18])
                .collect();
            assert_eq!((found.pixels, found.failed), (expected, 0));
            assert_eq!(found.mask, [1, 1, 1, 1, 0, 1, 1, 1, 1]);
        }
        assert!(SIZE.decode(&[], 2, false).unwrap().pixels.is_empty());
    }

    #[test]
    fn a_jpeg_of_the_size_is_the_same_in_place() {
        let (color, gray) = (
            &include_bytes!("../tests/fixtures/color.jpeg")[..],
            &include_bytes!("../tests/fixtures/gray.jpeg")[..],
        );
        for (is_gray, channels) in [(false, 3), (true, 1)] {
            let size = ImageSize {
                height: NonZeroU32::new(12).unwrap(),
                width: NonZeroU32::new(20).unwrap(),
                is_gray,
                crops: false,
            };
            let shape = (12, 20, channels);
            for (bytes, stored) in [(color, 3), (gray, 1)] {
                let mut pixels = vec![7; size.bytes()];
                let is_in_place = Image::decode_jpeg_into(bytes, shape, &mut pixels).unwrap();
                assert_eq!(is_in_place, stored == channels);
                let other = Image::decode_without_alpha(bytes).unwrap();
                let other = other.with_channels(channels).values;
                let found = size.decode(&[Some(bytes), None, Some(bytes)], 2, false);
                assert_eq!(
                    found.unwrap().pixels,
                    [&other[..], &vec![0; other.len()], &other].concat()
                );
                if is_in_place {
                    assert_eq!(pixels, other);
                }
            }
        }
        // Another size, another format.
        let mut pixels = vec![7; 18];
        assert!(!Image::decode_jpeg_into(color, (2, 3, 3), &mut pixels).unwrap());
        assert!(!Image::decode_jpeg_into(&png(3, 2, |_, _| 1), (2, 3, 3), &mut pixels).unwrap());
        assert_eq!(pixels, [7; 18]);
    }

    #[test]
    fn what_cannot_be_decoded_is_an_error_or_black() {
        let good = png(3, 2, |_, _| 7);
        let encoded = [Some(&good[..]), Some(&b"x"[..]), Some(&b"y"[..])];
        let error = SIZE.decode(&encoded, 2, false).unwrap_err().to_string();
        assert!(error.contains("row 1 of the batch"), "{error}");
        let found = SIZE.decode(&encoded, 2, true).unwrap();
        assert_eq!((found.failed, found.mask), (2, vec![1, 0, 0]));
        assert_eq!(found.pixels[..18], [7; 18]);
        assert_eq!(found.pixels[18..], [0; 36]);
    }

    #[test]
    fn an_image_is_resized_as_a_whole_or_its_middle_is() {
        // Black, but for a white square in the middle. The filter looks at a pixel beyond the edge.
        let wide = png(40, 20, |x, _| if (10..30).contains(&x) { 255 } else { 0 });
        let square = ImageSize {
            height: NonZeroU32::new(10).unwrap(),
            width: NonZeroU32::new(10).unwrap(),
            is_gray: true,
            crops: true,
        };
        let middle = square.decode(&[Some(&wide)], 1, false).unwrap();
        let is_white = |(at, pixel): (usize, &u8)| *pixel == 255 || matches!(at % 10, 0 | 9);
        assert!(middle.pixels.iter().enumerate().all(is_white));
        assert!(middle.pixels.iter().all(|pixel| *pixel > 200));
        let whole = ImageSize {
            crops: false,
            ..square
        };
        let whole = whole.decode(&[Some(&wide)], 1, false).unwrap();
        let row = &whole.pixels[..10];
        assert_eq!(
            (row[0], row[1], row[4], row[5], row[9]),
            (0, 0, 255, 255, 0)
        );
    }
}
