//! One number for each row.

use arrow_array::{
    Array,
    cast::AsArray,
    types::{Date32Type, Time32MillisecondType, Time32SecondType},
};
use arrow_buffer::Buffer;
use arrow_schema::{DataType, TimeUnit};

/// Numbers side by side. The values under null rows are arbitrary.
#[derive(Clone, Debug)]
pub struct Numbers {
    /// The memory of all rows.
    pub values: Buffer,
    /// The bytes of one number.
    pub size: usize,
    /// The type as NumPy's array interface writes it, such as `<f4` or `<M8[us]`.
    pub kind: &'static str,
}

impl Numbers {
    /// Single bytes.
    pub fn bytes(values: Buffer) -> Self {
        Self {
            values,
            size: 1,
            kind: "|u1",
        }
    }

    /// Truth values: bytes that are 0 or 1.
    pub fn flags(values: Buffer) -> Self {
        Self {
            values,
            size: 1,
            kind: "|b1",
        }
    }

    /// Integers, such as offsets.
    pub fn integers(values: Vec<i64>) -> Self {
        Self::wide(values, "<i8")
    }

    /// How many they are.
    pub fn len(&self) -> usize {
        self.values.len() / self.size
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The numbers of an array; `None` for other types.
    pub(super) fn of(array: &dyn Array) -> Option<Self> {
        use DataType::{
            Boolean, Date32, Date64, Duration, Float16, Float32, Float64, Int8, Int16, Int32,
            Int64, Time32, Time64, Timestamp, UInt8, UInt16, UInt32, UInt64,
        };
        let wide = |values: Vec<i64>, kind| Some(Self::wide(values, kind));
        let widened = |values: &[i32]| values.iter().map(|value| i64::from(*value)).collect();
        let (kind, size) = match array.data_type() {
            Boolean => {
                let bits = array.as_boolean().values().iter();
                return Some(Self::flags(bits.map(u8::from).collect::<Vec<_>>().into()));
            }
            Date32 => {
                return wide(
                    widened(array.as_primitive::<Date32Type>().values()),
                    "<M8[D]",
                );
            }
            Time32(TimeUnit::Second) => {
                return wide(
                    widened(array.as_primitive::<Time32SecondType>().values()),
                    "<m8[s]",
                );
            }
            Time32(_) => {
                let times = array.as_primitive::<Time32MillisecondType>();
                return wide(widened(times.values()), "<m8[ms]");
            }
            Int8 => ("|i1", 1),
            UInt8 => ("|u1", 1),
            Int16 => ("<i2", 2),
            UInt16 => ("<u2", 2),
            Float16 => ("<f2", 2),
            Int32 => ("<i4", 4),
            UInt32 => ("<u4", 4),
            Float32 => ("<f4", 4),
            Int64 => ("<i8", 8),
            UInt64 => ("<u8", 8),
            Float64 => ("<f8", 8),
            Date64 => ("<M8[ms]", 8),
            Timestamp(TimeUnit::Second, _) => ("<M8[s]", 8),
            Timestamp(TimeUnit::Millisecond, _) => ("<M8[ms]", 8),
            Timestamp(TimeUnit::Microsecond, _) => ("<M8[us]", 8),
            Timestamp(TimeUnit::Nanosecond, _) => ("<M8[ns]", 8),
            Duration(TimeUnit::Second) => ("<m8[s]", 8),
            Duration(TimeUnit::Millisecond) => ("<m8[ms]", 8),
            Duration(TimeUnit::Microsecond) | Time64(TimeUnit::Microsecond) => ("<m8[us]", 8),
            Duration(TimeUnit::Nanosecond) | Time64(_) => ("<m8[ns]", 8),
            _ => return None,
        };
        let data = array.to_data();
        let values = data.buffers()[0].slice_with_length(data.offset() * size, array.len() * size);
        Some(Self { values, size, kind })
    }

    fn wide(values: Vec<i64>, kind: &'static str) -> Self {
        Self {
            values: Buffer::from_vec(values),
            size: 8,
            kind,
        }
    }
}
