//! Properties that hold for any answer of a gateway: for the fuzzer, and for a test of some thousand answers in the test suite.

#[cfg(test)]
mod tests;

use crate::{
    model::{LeaseAnswer, RangeAnswer, TxnAnswer, WatchAnswer},
    values::values_of,
};

/// Splits a stream into values: once as a whole, and once in parts whose size is the first byte. Reads each value as every
/// answer. Gives the count of values.
///
/// # Panics
/// If the parts give other values than the whole.
pub fn check(input: &[u8]) -> usize {
    let [size, stream @ ..] = input else {
        return 0;
    };
    let whole = values_of(std::iter::once(stream));
    let parts = values_of(stream.chunks(usize::from(*size).max(1)));
    assert_eq!(whole.0, parts.0);
    assert_eq!(
        whole.1.is_ok(),
        parts.1.is_ok(),
        "{:?} {:?}",
        whole.1,
        parts.1
    );
    for value in &whole.0 {
        let _ = serde_json::from_value::<LeaseAnswer>(value.clone());
        let _ = serde_json::from_value::<RangeAnswer>(value.clone());
        let _ = serde_json::from_value::<TxnAnswer>(value.clone());
        let _ = serde_json::from_value::<WatchAnswer>(value.clone());
    }
    whole.0.len()
}
