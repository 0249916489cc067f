//! Whether a predicate may be true for a row of a row group, from the statistics in its footer.
//!
//! Bounds in footers may be wider than the values, and ignore NaN. So the result is only false where that is certain.

use std::cmp::Ordering;

use arrow_buffer::i256;
use arrow_schema::{DataType, TimeUnit};
use parquet::file::{metadata::RowGroupMetaData, statistics::Statistics};

use super::{Comparison, Decimal, Filter, Predicate, Value, compare::order_to, decimal::Threshold};
use crate::{
    dataset::{ColumnSource, Dataset, PartitionValue},
    error::Result,
};

/// Whether the row group may have a row that the filter keeps.
pub(crate) fn may_hold(dataset: &Dataset, filter: &Filter, group: u32) -> bool {
    let bounds = |name: &str| Bounds::from_row_group(dataset, filter, group, name);
    may_be(&filter.predicate, true, &bounds)
}

impl Dataset {
    /// For each row group, whether it may have a row that the predicate keeps, from the statistics in the footers.
    /// Other row groups need not be assigned to a worker. If they are, they are processed without being read.
    ///
    /// # Errors
    /// If a column does not exist, differs between files, or cannot be compared with its value.
    pub fn may_hold(&self, predicate: &Predicate) -> Result<Vec<bool>> {
        let filter = Filter::new(self, predicate.clone())?;
        let groups = 0..self.groups().len() as u32;
        Ok(groups.map(|group| may_hold(self, &filter, group)).collect())
    }
}

/// The statistics of a column in a row group or in a page.
#[derive(Clone, Debug, Default)]
pub(super) struct Bounds {
    /// Bounds of all values.
    range: Option<(Bound, Bound)>,
    /// Whether some row is null, and whether some row has a value; `None` if unknown.
    nulls: Option<bool>,
    values: Option<bool>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Bound {
    Int(i128),
    Float(f64),
    /// The unscaled value of a decimal, and its scale.
    Decimal(i256, i8),
    Bytes(Vec<u8>),
}

/// Whether the predicate may evaluate to `wanted` for some row. An unknown result is neither true nor false.
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
    // NaN is outside of any bounds, and makes comparisons false.
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
    let holds = |bound: &Bound, comparison: Comparison| match bound.compare(value) {
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
    /// Its order to a value; `None` if they cannot be compared.
    fn compare(&self, value: &Value) -> Option<Ordering> {
        match (self, value) {
            (Self::Int(bound), Value::Int(value)) => Some(bound.cmp(&i128::from(*value))),
            (Self::Int(bound), Value::Bool(value)) => Some(bound.cmp(&i128::from(*value))),
            // 64-bit bounds are rounded here. A bound that equals the value after rounding may be on either side of
            // it.
            (Self::Int(bound), Value::Float(value)) => (*bound as f64)
                .partial_cmp(value)
                .filter(|order| order.is_ne()),
            (Self::Float(bound), Value::Float(value)) => bound.partial_cmp(value),
            (Self::Float(bound), Value::Int(value)) => bound
                .partial_cmp(&(*value as f64))
                .filter(|order| order.is_ne()),
            (Self::Float(bound), Value::Decimal(value)) => bound.partial_cmp(&value.to_float()),
            (Self::Int(bound), Value::Decimal(value)) => {
                Some(order_to_decimal(i256::from_i128(*bound), 0, *value))
            }
            (Self::Decimal(bound, scale), value) => {
                let value = match value {
                    Value::Int(value) => Decimal::from(*value),
                    Value::Float(value) => Decimal::from_float(*value)?,
                    Value::Decimal(value) => *value,
                    _ => return None,
                };
                Some(order_to_decimal(*bound, *scale, value))
            }
            (Self::Bytes(bound), Value::Bytes(value)) => Some(bound.cmp(value)),
            (Self::Bytes(bound), Value::Text(value)) => {
                Some(bound.as_slice().cmp(value.as_bytes()))
            }
            _ => None,
        }
    }
}

/// The order of `unscaled / 10^scale` to a decimal.
fn order_to_decimal(unscaled: i256, scale: i8, value: Decimal) -> Ordering {
    let Threshold { whole, is_between } = value.threshold(scale.into());
    order_to(&unscaled, &whole, is_between)
}

impl Bounds {
    fn from_row_group(dataset: &Dataset, filter: &Filter, group: u32, name: &str) -> Self {
        let row_group = &dataset.groups()[group as usize];
        let file = dataset.file_of(group);
        let known = || {
            let (operand, number) = filter.operand(name)?;
            let root = match &filter.selection.sources(row_group.file)[number] {
                ColumnSource::Column(root) => *root,
                ColumnSource::Partition(value) => return Some(Self::from_partition(value)),
            };
            let metadata = file.metadata.metadata().row_group(row_group.index as usize);
            let schema = file.metadata.parquet_schema();
            let statistics = statistics(schema, metadata, root, &operand.fields)?;
            // The data set may have a wider type.
            let column = file.metadata.schema().field(root).data_type();
            let data_type = operand.data_type(column)?;
            Some(Self::from_statistics(statistics, data_type, row_group.rows))
        };
        known().unwrap_or_default()
    }

    /// The bounds of a partition column.
    fn from_partition(value: &PartitionValue) -> Self {
        let both = |bound: Bound| Some((bound.clone(), bound));
        Self {
            range: match value {
                PartitionValue::Int(value) => both(Bound::Int((*value).into())),
                PartitionValue::Text(value) => both(Bound::Bytes(value.as_bytes().to_vec())),
                PartitionValue::Null => None,
            },
            nulls: Some(*value == PartitionValue::Null),
            values: Some(*value != PartitionValue::Null),
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

/// The statistics of a top-level column, or of a field within it, that is neither a list nor a structure. Nulls of structures
/// count as nulls of their fields.
fn statistics<'a>(
    schema: &parquet::schema::types::SchemaDescriptor,
    group: &'a RowGroupMetaData,
    root: usize,
    fields: &[String],
) -> Option<&'a Statistics> {
    let leaf = (0..group.num_columns()).find(|leaf| {
        let column = schema.column(*leaf);
        let is_root = schema.get_column_root_idx(*leaf) == root;
        is_root && column.max_rep_level() == 0 && column.path().parts()[1..] == *fields
    })?;
    group.column(leaf).statistics()
}

/// The bounds, for types whose order in the file is that of their values.
fn range(statistics: &Statistics, data_type: &DataType) -> Option<(Bound, Bound)> {
    use DataType::{
        Binary, Boolean, Date32, Decimal32, Decimal64, Decimal128, Decimal256, Dictionary, Float32,
        Float64, Int8, Int16, Int32, Int64, LargeBinary, LargeUtf8, Time32, Time64, Timestamp,
        UInt8, UInt16, UInt32, UInt64, Utf8, Utf8View,
    };
    let float = |low: f64, high: f64| {
        (!low.is_nan() && !high.is_nan()).then_some((Bound::Float(low), Bound::Float(high)))
    };
    let both = |low: Option<i256>, high: Option<i256>, scale: i8| {
        Some((Bound::Decimal(low?, scale), Bound::Decimal(high?, scale)))
    };
    match (statistics, data_type) {
        (
            Statistics::Int32(bounds),
            Decimal32(_, scale) | Decimal64(_, scale) | Decimal128(_, scale) | Decimal256(_, scale),
        ) => both(
            bounds.min_opt().map(|bound| i256::from(*bound)),
            bounds.max_opt().map(|bound| i256::from(*bound)),
            *scale,
        ),
        (
            Statistics::Int64(bounds),
            Decimal32(_, scale) | Decimal64(_, scale) | Decimal128(_, scale) | Decimal256(_, scale),
        ) => both(
            bounds.min_opt().map(|bound| i256::from(*bound)),
            bounds.max_opt().map(|bound| i256::from(*bound)),
            *scale,
        ),
        (
            Statistics::FixedLenByteArray(bounds),
            Decimal32(_, scale) | Decimal64(_, scale) | Decimal128(_, scale) | Decimal256(_, scale),
        ) if !statistics.is_min_max_deprecated() => both(
            bounds.min_opt().and_then(|bound| big_endian(bound.data())),
            bounds.max_opt().and_then(|bound| big_endian(bound.data())),
            *scale,
        ),
        // Files store seconds as milliseconds.
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

/// A number in two's complement, the highest byte first. `None` if it has more than 256 bits.
fn big_endian(bytes: &[u8]) -> Option<i256> {
    let sign = match bytes.first()? {
        0..=0x7f => 0,
        _ => 0xff,
    };
    let mut all = [sign; 32];
    let start = all.len().checked_sub(bytes.len())?;
    all[start..].copy_from_slice(bytes);
    Some(i256::from_be_bytes(all))
}
