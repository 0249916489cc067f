//! Errors of this crate. Each names the file, the row group and the column, as far as they apply.

use std::fmt;

use arrow_schema::DataType;

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A problem and its location.
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    location: Location,
    problem: Problem,
}

/// The location of a problem. Parts that are unknown or do not apply are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// Path or address of the file.
    pub file: Option<String>,
    /// Index of the row group within its file.
    pub row_group: Option<usize>,
    /// Name of the top-level column.
    pub column: Option<String>,
}

/// The kind of problem.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The file does not exist, or no longer.
    #[error("no such file: it was there when the data set was opened, or its name is wrong")]
    NotFound,
    /// The name of a path is a pattern, and no file has this name.
    #[error(
        "no such file: names are taken as they are, so give the directory instead of a pattern"
    )]
    Pattern,
    /// The file system or the object store denies access.
    #[error("permission denied: the user of this process must be able to read it")]
    PermissionDenied,
    /// The size or the version of the file has changed since the data set was opened.
    #[error(
        "changed since the data set was opened: it had {was}, it has {is}; open the data set again"
    )]
    Changed {
        /// Size in bytes and version as of the opening.
        was: String,
        /// Size in bytes and version now.
        is: String,
    },
    /// Another error of the file system or the object store.
    #[error("cannot be read: {0}")]
    Io(#[source] std::io::Error),
    /// The footer of the file cannot be read, with the reason.
    #[error("is no Parquet file, or a damaged one: {0}")]
    BadFooter(String),
    /// A page or another part of the file cannot be decoded, with the reason.
    #[error("is damaged: {0}")]
    Corrupt(String),
    /// The file or the column is encrypted.
    #[error("is encrypted; elasticrun reads no encrypted files")]
    Encrypted,
    /// The pages are compressed by a codec that is not built in.
    #[error(
        "is compressed by {codec}, which this build does not read; it reads {}",
        READABLE_CODECS
    )]
    UnsupportedCodec {
        /// Name of the codec.
        codec: String,
    },
    /// A column has another type than in the first file.
    #[error(
        "is of type {found}, but {expected} in {first}; the files of a data set must agree in the columns that are read"
    )]
    TypeDiffers {
        /// Type in the first file.
        expected: DataType,
        /// Type in this file.
        found: DataType,
        /// Path or address of the first file.
        first: String,
    },
    /// A column of the first file is missing in this file.
    #[error(
        "is missing here, but is in {first}; the files of a data set must agree in the columns that are read"
    )]
    ColumnMissing {
        /// Path or address of the first file.
        first: String,
    },
    /// The options name a column that the data set lacks.
    #[error("no such column; the columns are {known}")]
    NoSuchColumn {
        /// Names of the columns that exist, separated by commas.
        known: String,
    },
    /// No Parquet file was found. Not returned at present: a data set without a file is empty.
    #[error("holds no Parquet file")]
    NoFiles,
    /// The row group has too many rows.
    #[error("has {rows} rows; a row group may have {max}")]
    TooManyRows {
        /// Rows of the row group.
        rows: i64,
        /// The largest number of rows that is supported.
        max: u32,
    },
    /// Decoding needs more memory than the process can get.
    #[error(
        "needs {} of memory, which this process cannot get: raise its limit, or write smaller row groups",
        in_units(*.bytes)
    )]
    OutOfMemory {
        /// Bytes that are needed.
        bytes: u64,
    },
    /// A column of the batch has more bytes than its Arrow type can address.
    #[error("the batch holds more than 2 GiB of this column; ask for fewer rows a batch")]
    BatchTooLarge,
    /// A queued piece is outside of the data set.
    #[error("piece of row group {group}, rows {lo} to {hi}: {why}")]
    BadPiece {
        /// Index of the row group in the data set.
        group: u32,
        /// First position of the piece.
        lo: u32,
        /// End of the positions, exclusive.
        hi: u32,
        /// What is wrong with the piece.
        why: String,
    },
    /// A predicate compares a column with a value of an unsuitable type.
    #[error("cannot compare a column of type {found} with {value}")]
    BadPredicate {
        /// Type of the column.
        found: DataType,
        /// The value, as text.
        value: String,
    },
    /// The bytes are no image that can be decoded, with the reason.
    #[error("no image that is known: {0}")]
    BadImage(String),
    /// The timestamp column cannot order the rows of an n-gram, with the reason.
    #[error("cannot order windows: {0}")]
    BadTimestamps(String),
    /// An option or a path is invalid. The text says which one and why.
    #[error("{0}")]
    BadOption(String),
}

/// The codecs that are built in, in a message.
const READABLE_CODECS: &str = "none, snappy, gzip, lz4, zstd and brotli";

impl Error {
    /// The file, the row group and the column, as far as they are known.
    pub fn location(&self) -> &Location {
        &self.0.location
    }

    /// The kind of problem, for callers that handle some kinds themselves.
    pub fn problem(&self) -> &Problem {
        &self.0.problem
    }

    /// [`Problem::Corrupt`] without a location.
    pub(crate) fn corrupt(why: impl Into<String>) -> Self {
        Problem::Corrupt(why.into()).into()
    }

    pub(crate) fn in_file(mut self, file: &str) -> Self {
        self.0.location.file.get_or_insert_with(|| file.to_owned());
        self
    }

    pub(crate) fn in_row_group(mut self, row_group: usize) -> Self {
        self.0.location.row_group.get_or_insert(row_group);
        self
    }

    pub(crate) fn in_column(mut self, column: &str) -> Self {
        self.0
            .location
            .column
            .get_or_insert_with(|| column.to_owned());
        self
    }
}

/// A number of bytes with one decimal and its unit.
fn in_units(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    let (mut number, mut unit) = (bytes as f64, 0);
    while number >= 999.95 && unit + 1 < UNITS.len() {
        number /= 1000.0;
        unit += 1;
    }
    match unit {
        0 => format!("{bytes} B"),
        unit => format!("{number:.1} {}", UNITS[unit]),
    }
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Self {
        Self(Box::new(Inner {
            location: Location::default(),
            problem,
        }))
    }
}

impl Problem {
    /// A path of a data set does not exist.
    pub(crate) fn no_such_path(path: &str) -> Self {
        match path.contains(['*', '?', '[']) {
            true => Problem::Pattern,
            false => Problem::NotFound,
        }
    }
}

impl From<std::io::Error> for Problem {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::NotFound => Problem::NotFound,
            std::io::ErrorKind::PermissionDenied => Problem::PermissionDenied,
            _ => Problem::Io(error),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Location {
            file,
            row_group,
            column,
        } = &self.0.location;
        if let Some(file) = file {
            write!(f, "{file}: ")?;
        }
        if let Some(row_group) = row_group {
            write!(f, "row group {row_group}: ")?;
        }
        if let Some(column) = column {
            write!(f, "column {column}: ")?;
        }
        write!(f, "{}", self.0.problem)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.0.problem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_a_unit() {
        for (bytes, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 kB"),
            (999_950, "1.0 MB"),
            (8_589_934_596, "8.6 GB"),
            (u64::MAX, "18.4 EB"),
        ] {
            assert_eq!(in_units(bytes), text);
        }
    }
}
