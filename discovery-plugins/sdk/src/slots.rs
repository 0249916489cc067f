//! Slots that users set: by an option of the plugin, or by a tag or label of a host.

use crate::{PluginError, hosts::MAX_SLOTS};

/// Checks the option `slots` of a plugin.
///
/// # Errors
/// The number is not from 1 to [`MAX_SLOTS`].
pub fn check_option(slots: Option<u32>) -> Result<(), PluginError> {
    if slots.is_none_or(allowed) {
        return Ok(());
    }
    let why = format!("slots: must be a number from 1 to {MAX_SLOTS}");
    Err(PluginError::bad_config(why))
}

/// Parses a tag or label. `what` names it and its host, as in `the label slots of node-1`.
///
/// # Errors
/// The text is no number from 1 to [`MAX_SLOTS`].
pub fn from_label(text: &str, what: &str) -> Result<u32, PluginError> {
    let slots = text.trim().parse().ok().filter(|slots| allowed(*slots));
    slots.ok_or_else(|| {
        let must = format!("it must be a number from 1 to {MAX_SLOTS}");
        PluginError::bad_config(format!("{what} is {text:?}; {must}"))
    })
}

fn allowed(slots: u32) -> bool {
    (1..=MAX_SLOTS).contains(&slots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_of_slots_is_named() {
        assert_eq!(check_option(None), Ok(()));
        assert_eq!(check_option(Some(1024)), Ok(()));
        for slots in [0, 1025] {
            let error = check_option(Some(slots)).unwrap_err();
            assert_eq!(error.message, "slots: must be a number from 1 to 1024");
        }
        assert_eq!(from_label(" 8 ", "the tag"), Ok(8));
        for text in ["0", "1025", "many", "-1", ""] {
            let error = from_label(text, "the tag s of i-1").unwrap_err();
            let expected =
                format!("the tag s of i-1 is {text:?}; it must be a number from 1 to 1024");
            assert_eq!(error.message, expected);
        }
    }
}
