//! A [`Duration`] on the wire: whole milliseconds, rounded up, so that a wait never becomes none.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Whole milliseconds, rounded up.
pub fn from(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// For `#[serde(with)]`.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<S: Serializer>(
    value: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    value.map(from).serialize(serializer)
}

/// For `#[serde(with)]`.
///
/// # Errors
/// The value is not a number of milliseconds.
pub fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    Ok(Option::<u64>::deserialize(deserializer)?.map(Duration::from_millis))
}
