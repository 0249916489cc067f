//! Any bytes as a footer.

use super::{footer::decode, footer_check, note};
use crate::caught_panic;

/// Reads the bytes as a footer. Gives whether Arrow's reader takes it.
pub fn check_any_footer(footer: &[u8]) -> bool {
    note::find(footer, "no such key");
    if footer_check::check(footer).is_err() {
        return false;
    }
    caught_panic::catch(|| decode(footer)).is_ok_and(|decoded| decoded.is_ok())
}
