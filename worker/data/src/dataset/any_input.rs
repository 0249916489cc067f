//! Any bytes as a footer.

use super::{footer::decode, footer_check, note};
use crate::caught_panic;

/// Reads the bytes as a footer. Gives whether Arrow's reader takes it.
///
/// # Panics
/// If a footer that passes the check has key-value metadata that cannot be read.
pub fn check_any_footer(footer: &[u8]) -> bool {
    let found = note::find(footer, "no such key");
    if footer_check::check(footer).is_err() {
        return false;
    }
    assert_eq!(found, Some(None), "metadata of a sound footer");
    caught_panic::catch(|| decode(footer)).is_ok_and(|decoded| decoded.is_ok())
}
