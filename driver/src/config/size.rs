//! Sizes of memory in text: `512MiB`, `4GiB`; a bare number is bytes.

use toml::Value;

use super::value::Setting;

/// The accepted forms, for messages.
const ALLOWED: &str = "a size such as 512MiB, 4GiB or 1TiB, at least 1MiB";

const UNITS: [(&str, u64); 6] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
    ("", 1),
];

/// A number of bytes, at least [`Size::MIN`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size(u64);

impl Size {
    /// The smallest size. Less is a mistake in the unit.
    pub const MIN: Self = Self(1 << 20);

    /// The number of bytes.
    #[must_use]
    pub fn bytes(self) -> u64 {
        self.0
    }

    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let end = text
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let (_, bytes) = UNITS.iter().find(|(name, _)| *name == unit.trim_start())?;
        let size = Self(number.parse::<u64>().ok()?.checked_mul(*bytes)?);
        (size.0 >= Self::MIN.0).then_some(size)
    }
}

impl Setting for Size {
    fn read(words: &[String]) -> Result<Self, String> {
        match words {
            [word] => Self::parse(word).ok_or_else(|| ALLOWED.to_owned()),
            _ => Err(ALLOWED.to_owned()),
        }
    }

    fn show(&self) -> Option<Value> {
        let whole = UNITS
            .iter()
            .find(|(_, bytes)| self.0.is_multiple_of(*bytes));
        let (unit, bytes) = whole?;
        Some(Value::String(format!("{}{unit}", self.0 / bytes)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_have_binary_units() {
        for (text, bytes) in [
            ("1MiB", 1 << 20),
            (" 3 GiB ", 3 << 30),
            ("2048KiB", 2 << 20),
            ("1TiB", 1 << 40),
            ("5000000", 5_000_000),
            ("5000000B", 5_000_000),
        ] {
            assert_eq!(Size::parse(text).map(Size::bytes), Some(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in [
            "",
            "MiB",
            "4",
            "1023KiB",
            "4GB",
            "4G",
            "-1MiB",
            "1.5GiB",
            "1MiB 2MiB",
            "16777216TiB",
        ] {
            assert_eq!(Size::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_reads_as_the_same(bytes in Size::MIN.0..u64::MAX) {
            let size = Size(bytes);
            let shown = size.show().unwrap();
            prop_assert_eq!(Size::parse(shown.as_str().unwrap()), Some(size));
        }
    }
}
