//! The images, which the Python package ships as a text file.

use anyhow::{Context, Result, ensure};

/// 64 pixels from 0 to 16 and a digit in each line. Its source and licence are in the README beside it.
const LINES: &str = include_str!("../../../worker/python/python/elasticrun/examples/digits.csv");
const PIXELS: usize = 64;
/// The darkest shade. White is 0.
const BLACK: u64 = 16;
/// A feature for each pixel, and one that all images have.
const FEATURES: u64 = PIXELS as u64 + 1;

/// An image and the digit that it shows.
#[derive(Debug)]
pub(crate) struct Image {
    /// A key for each pixel that is not white, with its shade from 0 to 1, and one that all images have. In ascending order.
    pub(crate) features: Vec<(u64, f32)>,
    /// 0 to 9.
    pub(crate) digit: usize,
}

/// The key of a feature. Servers serve equal ranges of all keys, so features are spread over them.
fn key(feature: u64) -> u64 {
    feature * (u64::MAX / FEATURES)
}

/// Every fifth image is for the test.
pub(crate) fn is_for_test(row: usize) -> bool {
    row % 5 == 4
}

/// All images.
pub(crate) fn images() -> Result<Vec<Image>> {
    let lines = LINES.lines().enumerate();
    lines
        .map(|(row, line)| image(line).with_context(|| format!("line {}", row + 1)))
        .collect()
}

fn image(line: &str) -> Result<Image> {
    let numbers: Vec<u64> = (line.split(','))
        .map(|number| number.trim().parse())
        .collect::<Result<_, _>>()?;
    ensure!(numbers.len() == PIXELS + 1, "{} numbers", numbers.len());
    let (pixels, digit) = (&numbers[..PIXELS], numbers[PIXELS]);
    ensure!(digit < 10, "{digit} is no digit");
    ensure!(pixels.iter().all(|&shade| shade <= BLACK), "a shade");
    let dark = (0..).zip(pixels).filter(|(_, shade)| **shade > 0);
    let features = dark.map(|(place, &shade)| (key(place), shade as f32 / BLACK as f32));
    let everywhere = (key(FEATURES - 1), 1.0);
    Ok(Image {
        features: features.chain([everywhere]).collect(),
        digit: digit as usize,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_whole_and_sparse() {
        let images = images().unwrap();
        assert_eq!(images.len(), 1797);
        for image in &images {
            assert!(image.features.is_sorted_by(|a, b| a.0 < b.0));
        }
        let features: usize = images.iter().map(|image| image.features.len()).sum();
        assert!(features / images.len() < 40);
    }

    #[test]
    fn a_wrong_line_is_refused() {
        assert!(image("1,2,3").is_err());
        assert!(image(&"x,".repeat(65)).is_err());
        let pixels = "0,".repeat(64);
        assert_eq!(image(&format!("{pixels}7")).unwrap().features.len(), 1);
        assert!(image(&format!("{pixels}10")).is_err());
        assert!(image(&format!("17,{}3", "0,".repeat(63))).is_err());
    }
}
