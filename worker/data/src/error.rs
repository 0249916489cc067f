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
    pub column: Option<String>,
}

/// The kind of problem.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    #[error("no such file: it was there when the data set was opened, or its name is wrong")]
    NotFound,
    #[error("permission denied: the user of this process must be able to read it")]
    PermissionDenied,
    #[error(
        "changed since the data set was opened: it had {was}, it has {is}; open the data set again"
    )]
    Changed { was: String, is: String },
    #[error("cannot be read: {0}")]
    Io(#[source] std::io::Error),
    #[error("is no Parquet file, or a damaged one: {0}")]
    BadFooter(String),
    #[error("is damaged: {0}")]
    Corrupt(String),
    #[error(
        "is of type {found}, but {expected} in {first}; the files of a data set must agree in the columns that are read"
    )]
    TypeDiffers {
        expected: DataType,
        found: DataType,
        first: String,
    },
    #[error(
        "is missing here, but is in {first}; the files of a data set must agree in the columns that are read"
    )]
    ColumnMissing { first: String },
    #[error("no such column; the columns are {known}")]
    NoSuchColumn { known: String },
    #[error("holds no Parquet file")]
    NoFiles,
    #[error("has {rows} rows; a row group may have {max}")]
    TooManyRows { rows: i64, max: u32 },
    #[error("the batch holds more than 2 GiB of this column; ask for fewer rows a batch")]
    BatchTooLarge,
    #[error("piece of row group {group}, rows {lo} to {hi}: {why}")]
    BadPiece {
        group: u32,
        lo: u32,
        hi: u32,
        why: String,
    },
    #[error("cannot compare a column of type {found} with {value}")]
    BadPredicate { found: DataType, value: String },
    #[error("no image that is known: {0}")]
    BadImage(String),
    #[error("cannot order windows: {0}")]
    BadTimestamps(String),
    #[error("{0}")]
    BadOption(String),
}

impl Error {
    pub fn location(&self) -> &Location {
        &self.0.location
    }

    pub fn problem(&self) -> &Problem {
        &self.0.problem
    }

    /// [`Problem::Corrupt`] without a location.
    pub(crate) fn corrupt(why: String) -> Self {
        Problem::Corrupt(why).into()
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

impl From<Problem> for Error {
    fn from(problem: Problem) -> Self {
        Self(Box::new(Inner {
            location: Location::default(),
            problem,
        }))
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
