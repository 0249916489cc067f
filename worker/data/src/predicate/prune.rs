//! Whether a row group may hold a row that a predicate is true for, from the statistics in its footer.
//!
//! Bounds in footers may be wider than the values, and say nothing about NaN. So the answer is "no" only where
//! it is certain.

use std::cmp::Ordering;

use arrow_schema::{DataType, TimeUnit};
use parquet::file::{metadata::RowGroupMetaData, statistics::Statistics};

use super::{Comparison, Filter, Predicate, Value};
use crate::{
    dataset::{Constant, Dataset, Source},
    error::Result,
};

/// See the module.
pub(crate) fn may_hold(dataset: &Dataset, filter: &Filter, group: u32) -> bool {
    let bounds = |name: &str| Bounds::of(dataset, filter, group, name);
    may_be(&filter.predicate, true, &bounds)
}

impl Dataset {
    /// For each row group whether it may hold a row that the predicate keeps, from the statistics in the
    /// footers. Others need not be assigned to anybody; if they are, they are processed without being read.
    ///
    /// # Errors
    /// A column that is not there, differs between files, or cannot be compared with its value.
    pub fn may_hold(&self, predicate: &Predicate) -> Result<Vec<bool>> {
        let filter = Filter::new(self, predicate.clone())?;
        let groups = 0..self.groups().len() as u32;
        Ok(groups.map(|group| may_hold(self, &filter, group)).collect())
    }
}

/// What is known of a column in a row group, or in a page.
#[derive(Clone, Debug, Default)]
pub(super) struct Bounds {
    /// All values lie between these.
    range: Option<(Bound, Bound)>,
    /// Whether some row has no value, and whether some row has one, as far as is known.
    nulls: Option<bool>,
    values: Option<bool>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Bound {
    Int(i128),
    Float(f64),
    Bytes(Vec<u8>),
}

/// Whether the predicate may be `wanted` for some row. Where it is unknown it is neither true nor false.
pub(super) fn may_be(predicate: &Predicate, wanted: bool, bounds: &dyn Fn(&str) -> Bounds) -> bool {
    match predicate {
        Predicate::Compare {
            column,
            comparison,
            value,
        } => compare(&bounds(column), *comparison, value, wanted),
        Predicate::In { column, values } if wanted => {
            let bounds = bounds(column);
            values
                .iter()
                .any(|value| compare(&bounds, Comparison::Equal, value, true))
        }
        Predicate::In { column, .. } => bounds(column).values != Some(false),
        Predicate::IsNull { column } if wanted => bounds(column).nulls != Some(false),
        Predicate::IsNull { column } => bounds(column).values != Some(false),
        Predicate::Not(inner) => may_be(inner, !wanted, bounds),
        Predicate::And(parts) if wanted => parts.iter().all(|part| may_be(part, true, bounds)),
        Predicate::And(parts) => parts.iter().any(|part| may_be(part, false, bounds)),
        Predicate::Or(parts) if wanted => parts.iter().any(|part| may_be(part, true, bounds)),
        Predicate::Or(parts) => parts.iter().all(|part| may_be(part, false, bounds)),
    }
}

fn compare(bounds: &Bounds, comparison: Comparison, value: &Value, wanted: bool) -> bool {
    if bounds.values == Some(false) {
        return false;
    }
    let Some((low, high)) = &bounds.range else {
        return true;
    };
    // NaN makes comparisons false outside of any bounds.
    let is_float = matches!(low, Bound::Float(_));
    let comparison = match (comparison, wanted) {
        (comparison, true) => comparison,
        (_, false) if is_float => return true,
        (Comparison::Equal, false) => Comparison::NotEqual,
        (Comparison::NotEqual, false) => Comparison::Equal,
        (Comparison::Less, false) => Comparison::GreaterOrEqual,
        (Comparison::LessOrEqual, false) => Comparison::Greater,
        (Comparison::Greater, false) => Comparison::LessOrEqual,
        (Comparison::GreaterOrEqual, false) => Comparison::Less,
    };
    let holds = |bound: &Bound, comparison: Comparison| match bound.order(value) {
        Some(order) => comparison.holds(Some(order)),
        None => true,
    };
    match comparison {
        Comparison::Less | Comparison::LessOrEqual => holds(low, comparison),
        Comparison::Greater | Comparison::GreaterOrEqual => holds(high, comparison),
        Comparison::Equal => {
            holds(low, Comparison::LessOrEqual) && holds(high, Comparison::GreaterOrEqual)
        }
        Comparison::NotEqual => true,
    }
}

impl Bound {
    /// Its order to a value; nothing if they cannot be compared.
    fn order(&self, value: &Value) -> Option<Ordering> {
        match (self, value) {
            (Self::Int(bound), Value::Int(value)) => Some(bound.cmp(&i128::from(*value))),
            (Self::Int(bound), Value::Bool(value)) => Some(bound.cmp(&i128::from(*value))),
            // Bounds of 64 bits are rounded here, and a bound that is rounded to the value may lie on
            // either side of it.
            (Self::Int(bound), Value::Float(value)) => (*bound as f64)
                .partial_cmp(value)
                .filter(|order| order.is_ne()),
            (Self::Float(bound), Value::Float(value)) => bound.partial_cmp(value),
            (Self::Float(bound), Value::Int(value)) => bound
                .partial_cmp(&(*value as f64))
                .filter(|order| order.is_ne()),
            (Self::Bytes(bound), Value::Bytes(value)) => Some(bound.cmp(value)),
            (Self::Bytes(bound), Value::Text(value)) => {
                Some(bound.as_slice().cmp(value.as_bytes()))
            }
            _ => None,
        }
    }
}

impl Bounds {
    fn of(dataset: &Dataset, filter: &Filter, group: u32, name: &str) -> Self {
        let place = &dataset.groups()[group as usize];
        let file = dataset.file_of(group);
        let schema = &filter.selection.schema;
        let known = || {
            let (number, field) = schema.column_with_name(name)?;
            let root = match &filter.selection.sources(place.file)[number] {
                Source::Column(root) => *root,
                Source::Name(value) => return Some(Self::of_constant(value)),
            };
            let metadata = file.metadata.metadata().row_group(place.index as usize);
            let statistics = statistics(file.metadata.parquet_schema(), metadata, root)?;
            Some(Self::from_statistics(
                statistics,
                field.data_type(),
                place.rows,
            ))
        };
        known().unwrap_or_default()
    }

    /// What the name of a directory says.
    fn of_constant(value: &Constant) -> Self {
        let both = |bound: Bound| Some((bound.clone(), bound));
        Self {
            range: match value {
                Constant::Int(value) => both(Bound::Int((*value).into())),
                Constant::Text(value) => both(Bound::Bytes(value.as_bytes().to_vec())),
                Constant::Null => None,
            },
            nulls: Some(*value == Constant::Null),
            values: Some(*value != Constant::Null),
        }
    }

    pub(super) fn from_statistics(
        statistics: &Statistics,
        data_type: &DataType,
        rows: u32,
    ) -> Self {
        let nulls = statistics.null_count_opt();
        Self {
            range: range(statistics, data_type),
            nulls: nulls.map(|nulls| nulls > 0),
            values: nulls.map(|nulls| nulls < u64::from(rows)),
        }
    }
}

/// The statistics of a top-level column that is no list and no structure.
fn statistics<'a>(
    schema: &parquet::schema::types::SchemaDescriptor,
    group: &'a RowGroupMetaData,
    root: usize,
) -> Option<&'a Statistics> {
    let leaf = (0..group.num_columns()).find(|leaf| schema.get_column_root_idx(*leaf) == root)?;
    if schema.get_column_root(leaf).is_group() {
        return None;
    }
    group.column(leaf).statistics()
}

/// The bounds, for types whose order in the file is that of their values.
fn range(statistics: &Statistics, data_type: &DataType) -> Option<(Bound, Bound)> {
    use DataType::{
        Binary, Boolean, Date32, Dictionary, Float32, Float64, Int8, Int16, Int32, Int64,
        LargeBinary, LargeUtf8, Time32, Time64, Timestamp, UInt8, UInt16, UInt32, UInt64, Utf8,
        Utf8View,
    };
    let float = |low: f64, high: f64| {
        (!low.is_nan() && !high.is_nan()).then_some((Bound::Float(low), Bound::Float(high)))
    };
    match (statistics, data_type) {
        // Files hold seconds as milliseconds.
        (Statistics::Int64(_), Timestamp(TimeUnit::Second, _))
        | (Statistics::Int32(_), Time32(TimeUnit::Second)) => None,
        (Statistics::Boolean(bounds), Boolean) => Some((
            Bound::Int((*bounds.min_opt()?).into()),
            Bound::Int((*bounds.max_opt()?).into()),
        )),
        (Statistics::Int32(bounds), Int8 | Int16 | Int32 | Date32 | Time32(_)) => Some((
            Bound::Int((*bounds.min_opt()?).into()),
            Bound::Int((*bounds.max_opt()?).into()),
        )),
        (Statistics::Int32(bounds), UInt8 | UInt16 | UInt32)
            if !statistics.is_min_max_deprecated() =>
        {
            Some((
                Bound::Int((*bounds.min_opt()? as u32).into()),
                Bound::Int((*bounds.max_opt()? as u32).into()),
            ))
        }
        (Statistics::Int64(bounds), Int64 | Time64(_) | Timestamp(..)) => Some((
            Bound::Int((*bounds.min_opt()?).into()),
            Bound::Int((*bounds.max_opt()?).into()),
        )),
        (Statistics::Int64(bounds), UInt64) if !statistics.is_min_max_deprecated() => Some((
            Bound::Int((*bounds.min_opt()? as u64).into()),
            Bound::Int((*bounds.max_opt()? as u64).into()),
        )),
        (Statistics::Float(bounds), Float32) => {
            float((*bounds.min_opt()?).into(), (*bounds.max_opt()?).into())
        }
        (Statistics::Double(bounds), Float64) => float(*bounds.min_opt()?, *bounds.max_opt()?),
        (Statistics::ByteArray(_), Dictionary(_, values)) => range(statistics, values),
        (Statistics::ByteArray(bounds), Binary | LargeBinary | Utf8 | LargeUtf8 | Utf8View)
            if !statistics.is_min_max_deprecated() =>
        {
            Some((
                Bound::Bytes(bounds.min_opt()?.data().to_vec()),
                Bound::Bytes(bounds.max_opt()?.data().to_vec()),
            ))
        }
        _ => None,
    }
}
