//! Durations in text: `50ms`, `5s`, `10m`, `1h`, `1.5h`; a bare number is seconds.
//!
//! Parsing is exact, without floating point. [`parse`] reads the output of [`show`] back to the same nanosecond. The longest
//! duration is a year, so that adding deadlines cannot overflow.

use std::time::Duration;

/// The longest duration that is accepted.
pub const LONGEST: Duration = Duration::from_hours(8760);

/// The accepted forms, for messages.
pub const ALLOWED: &str =
    "a duration such as 50ms, 5s, 10m or 1h, at most 8760h (a bare number is seconds)";

const UNITS: [(&str, u128); 5] = [
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("", 1_000_000_000),
];

/// Parses a duration, truncated to nanoseconds.
///
/// `None` if it is not a duration, is negative, or is longer than [`LONGEST`].
#[must_use]
pub fn parse(text: &str) -> Option<Duration> {
    let text = text.trim();
    let number_end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(number_end);
    let (_, unit_nanos) = UNITS.iter().find(|(name, _)| *name == unit.trim_start())?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let nanos = digits(whole)?
        .checked_mul(*unit_nanos)?
        .checked_add(part(fraction, *unit_nanos)?)?;
    let duration = Duration::from_nanos(u64::try_from(nanos).ok()?);
    (duration <= LONGEST).then_some(duration)
}

fn digits(text: &str) -> Option<u128> {
    if text.is_empty() {
        Some(0)
    } else {
        text.parse().ok()
    }
}

/// The nanoseconds of a fraction of a unit. `fraction` holds the digits after the point.
fn part(fraction: &str, unit_nanos: u128) -> Option<u128> {
    let kept = &fraction[..fraction.len().min(18)];
    let scale = 10_u128.pow(u32::try_from(kept.len()).ok()?);
    Some(digits(kept)? * unit_nanos / scale)
}

/// Writes a duration in the largest unit that needs no fraction, else as a fraction of milliseconds.
#[must_use]
pub fn show(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    if nanos == 0 {
        return "0s".to_owned();
    }
    for (unit, unit_nanos) in [UNITS[3], UNITS[2], UNITS[1], UNITS[0]] {
        if nanos.is_multiple_of(unit_nanos) {
            return format!("{}{unit}", nanos / unit_nanos);
        }
    }
    let text = format!("{}.{:06}", nanos / 1_000_000, nanos % 1_000_000);
    format!("{}ms", text.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_what_people_write() {
        for (text, nanos) in [
            ("50ms", 50_000_000),
            ("5s", 5_000_000_000),
            ("5", 5_000_000_000),
            ("0", 0),
            ("10m", 600_000_000_000),
            ("1h", 3_600_000_000_000),
            ("1.5h", 5_400_000_000_000),
            (".5", 500_000_000),
            ("2.", 2_000_000_000),
            (" 2 s ", 2_000_000_000),
            ("0.1ms", 100_000),
            ("0.0000000001s", 0),
            ("8760h", 31_536_000_000_000_000),
        ] {
            assert_eq!(parse(text), Some(Duration::from_nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn refuses_the_rest() {
        for text in [
            "",
            ".",
            "s",
            "ms",
            "-1",
            "-1s",
            "+1s",
            "1e3",
            "1d",
            "1S",
            "1 2",
            "1.2.3",
            "inf",
            "nan",
            "8761h",
            "99999999999999999999999999999999999999999999h",
            "٣s",
            "1s1s",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(nanos in 0..=LONGEST.as_nanos() as u64) {
            let duration = Duration::from_nanos(nanos);
            prop_assert_eq!(parse(&show(duration)), Some(duration));
        }

        #[test]
        fn whole_units_are_read_back(count in 0_u64..8760, unit in 0_usize..4) {
            let text = format!("{count}{}", UNITS[unit].0);
            let duration = parse(&text).expect("within a year");
            prop_assert_eq!(u128::from(count) * UNITS[unit].1, duration.as_nanos());
            prop_assert_eq!(parse(&show(duration)), Some(duration));
        }

        #[test]
        fn no_text_makes_it_panic(text in ".*") {
            let _ = parse(&text);
        }
    }
}
