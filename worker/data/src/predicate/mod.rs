//! Conditions on columns, in three-valued logic as in SQL.
//!
//! A row is kept if the condition is true. Null is neither equal nor unequal to a value. NaN is unequal to every
//! value, and neither less nor greater.

mod compare;
mod decimal;
mod evaluate;
mod filter;
mod operand;
mod pages;
mod prune;

use std::fmt;

pub use decimal::Decimal;
pub(crate) use filter::Filter;
pub(crate) use pages::{ColumnPages, rows_that_may_hold};
pub(crate) use prune::may_hold;

/// A condition on the columns of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Predicate {
    /// A column compared with a value.
    Compare {
        /// Name of a column of the data set, or of a field of a structure with dots, `place.city`. It need not be in the
        /// batch.
        column: String,
        /// The operator.
        comparison: Comparison,
        /// The right operand.
        value: Value,
    },
    /// A column that has one of these values.
    In {
        /// Name of a column of the data set, or of a field of a structure.
        column: String,
        /// The accepted values. No row is kept if there are none.
        values: Vec<Value>,
    },
    /// A column that is null.
    IsNull {
        /// Name of a column of the data set, or of a field of a structure.
        column: String,
    },
    /// The negation. If the condition is unknown because of a null, its negation is unknown too.
    Not(Box<Predicate>),
    /// All of these; true if empty.
    And(Vec<Predicate>),
    /// At least one of these; false if empty.
    Or(Vec<Predicate>),
}

/// A comparison with the column on the left and the value on the right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `=`. False for NaN.
    Equal,
    /// `<>`. True for NaN.
    NotEqual,
    /// `<`. False for NaN.
    Less,
    /// `<=`. False for NaN.
    LessOrEqual,
    /// `>`. False for NaN.
    Greater,
    /// `>=`. False for NaN.
    GreaterOrEqual,
}

/// A value that a column is compared with.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// For booleans.
    Bool(bool),
    /// For all numbers. Dates and times are in the unit of their column.
    Int(i64),
    /// For all numbers. For decimals it is the shortest number that is read as this float.
    Float(f64),
    /// For all numbers. For floats it is the nearest float.
    Decimal(Decimal),
    /// For strings.
    Text(String),
    /// For byte strings.
    Bytes(Vec<u8>),
}

impl Predicate {
    /// The columns that it needs, each once, in order of appearance.
    pub fn columns(&self) -> Vec<&str> {
        let mut columns = Vec::new();
        self.add_columns(&mut columns);
        columns
    }

    fn add_columns<'a>(&'a self, columns: &mut Vec<&'a str>) {
        match self {
            Self::Compare { column, .. } | Self::In { column, .. } | Self::IsNull { column } => {
                if !columns.contains(&column.as_str()) {
                    columns.push(column);
                }
            }
            Self::Not(inner) => inner.add_columns(columns),
            Self::And(parts) | Self::Or(parts) => {
                for part in parts {
                    part.add_columns(columns);
                }
            }
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => write!(f, "{value}"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value:?}"),
            Self::Decimal(value) => write!(f, "{value}"),
            Self::Text(value) => write!(f, "{value:?}"),
            Self::Bytes(value) => write!(f, "b\"{}\"", value.escape_ascii()),
        }
    }
}
