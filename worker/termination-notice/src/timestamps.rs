//! Parses the timestamps of metadata services, as the time that is left.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp, fmt::rfc2822};

/// The time from `now` to a timestamp such as `2026-01-05T08:22:00Z`; zero if it has passed.
pub(crate) fn until_iso(text: &str, now: Timestamp) -> Option<Duration> {
    left(text.parse().ok()?, now)
}

/// The time from `now` to a timestamp such as `Mon, 05 Jan 2026 18:29:47 GMT`; zero if it has passed.
pub(crate) fn until_rfc2822(text: &str, now: Timestamp) -> Option<Duration> {
    left(
        rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?,
        now,
    )
}

fn left(time: Timestamp, now: Timestamp) -> Option<Duration> {
    let left = time.duration_since(now);
    Some(Duration::try_from(left.max(SignedDuration::ZERO)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_become_the_time_that_is_left() {
        let now: Timestamp = "2026-01-05T08:20:00Z".parse().unwrap();
        let seconds = |n| Some(Duration::from_secs(n));
        assert_eq!(until_iso("2026-01-05T08:22:00Z", now), seconds(120));
        assert_eq!(until_iso("2026-01-05T08:19:00Z", now), seconds(0));
        assert_eq!(until_iso("soon", now), None);
        assert_eq!(
            until_rfc2822("Mon, 05 Jan 2026 08:20:30 GMT", now),
            seconds(30)
        );
        assert_eq!(until_rfc2822("", now), None);
    }
}
