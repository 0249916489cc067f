//! Reads the images and their labels from Parquet.

use std::{collections::BTreeSet, fs::File, path::Path};

use arrow_array::{FixedSizeBinaryArray, UInt8Array, cast::AsArray};
use parquet::{arrow::arrow_reader::ParquetRecordBatchReaderBuilder, errors::ParquetError};

use crate::network::random;

/// Pixels of an image.
pub const PIXELS: usize = 64;

/// The ten digits.
pub const CLASSES: usize = 10;

/// Value of the darkest pixel.
const BLACK: f32 = 16.0;

/// One in this many images is kept for the test.
const TEST_SHARE: usize = 5;

/// Seed of the selection of the test images.
const SPLIT_SEED: u64 = 1998;

/// Why the data cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be opened.
    #[error("cannot open {path}; name it by --data")]
    Open {
        /// Its path.
        path: String,
        /// The system error.
        source: std::io::Error,
    },
    /// The file is not in Parquet format.
    #[error("the data is no Parquet file")]
    Parquet(#[from] ParquetError),
    /// A column is missing or of another type.
    #[error("the data has no column {0}; it is made by tools/make_data.py")]
    Column(&'static str),
    /// A label is not a digit.
    #[error("row {row} has label {label}, which is no digit")]
    Label {
        /// The row.
        row: usize,
        /// Its label.
        label: u8,
    },
}

/// An image with pixels from 0 to 1, and the digit that it shows.
#[derive(Clone, Debug, PartialEq)]
pub struct Digit {
    /// 8 rows of 8 pixels.
    pub pixels: [f32; PIXELS],
    /// 0 to 9.
    pub label: u8,
}

/// The data set, split into two parts.
#[derive(Clone, Debug)]
pub struct Digits {
    /// Four fifths.
    pub train: Vec<Digit>,
    /// One fifth, which the network never sees.
    pub test: Vec<Digit>,
}

impl Digits {
    /// Reads the file. The test images are selected with a fixed seed, so the split is the same in
    /// all workers.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn read(path: &Path) -> Result<Self, Error> {
        let digits = read(path)?;
        let mut drawn: Vec<usize> = (0..digits.len()).collect();
        drawn.sort_by_key(|row| random(SPLIT_SEED, *row as u64));
        let for_test: BTreeSet<usize> = drawn.into_iter().take(digits.len() / TEST_SHARE).collect();
        let (mut train, mut test) = (Vec::new(), Vec::new());
        for (row, digit) in digits.into_iter().enumerate() {
            let part = match for_test.contains(&row) {
                true => &mut test,
                false => &mut train,
            };
            part.push(digit);
        }
        Ok(Self { train, test })
    }
}

fn read(path: &Path) -> Result<Vec<Digit>, Error> {
    let file = File::open(path).map_err(|source| Error::Open {
        path: path.display().to_string(),
        source,
    })?;
    let mut digits = Vec::new();
    for batch in ParquetRecordBatchReaderBuilder::try_new(file)?.build()? {
        let batch = batch.map_err(ParquetError::from)?;
        let column = |name| batch.column_by_name(name).ok_or(Error::Column(name));
        let images: &FixedSizeBinaryArray = column("image")?
            .as_fixed_size_binary_opt()
            .ok_or(Error::Column("image"))?;
        let labels: &UInt8Array = column("label")?
            .as_primitive_opt()
            .ok_or(Error::Column("label"))?;
        for (row, label) in labels.values().iter().enumerate() {
            let bytes =
                <[u8; PIXELS]>::try_from(images.value(row)).map_err(|_| Error::Column("image"))?;
            if usize::from(*label) >= CLASSES {
                let row = digits.len();
                return Err(Error::Label { row, label: *label });
            }
            digits.push(Digit {
                pixels: bytes.map(|pixel| f32::from(pixel) / BLACK),
                label: *label,
            });
        }
    }
    Ok(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_whole() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/digits.parquet");
        let Digits { train, test } = Digits::read(&path).unwrap();
        assert_eq!((train.len(), test.len()), (1438, 359));
        for part in [&train, &test] {
            for digit in 0..10 {
                let count = part.iter().filter(|one| one.label == digit).count();
                assert!(count > part.len() / 20, "{count} of {digit}");
            }
            let pixels = part.iter().flat_map(|one| one.pixels);
            assert!(pixels.clone().all(|pixel| (0.0..=1.0).contains(&pixel)));
            assert!(pixels.fold(0.0, f32::max) == 1.0);
        }
    }

    #[test]
    fn a_missing_or_wrong_file_is_named() {
        let error = Digits::read(Path::new("/nowhere/digits.parquet")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot open /nowhere/digits.parquet; name it by --data"
        );
        let error =
            Digits::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).unwrap_err();
        assert!(matches!(error, Error::Parquet(_)), "{error}");
    }
}
