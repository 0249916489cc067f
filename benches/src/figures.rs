//! Statistics of many trials, in milliseconds.

use std::time::Duration;

/// A time in milliseconds.
pub fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Prints the head of a table that [`print()`] fills.
pub fn print_head() {
    println!(
        "{:34} {:>6} {:>8} {:>8} {:>8} {:>8}",
        "", "trials", "median", "p90", "p99", "max"
    );
}

/// Prints a row of the table.
pub fn print(name: &str, times: &mut [f64]) {
    let shares = [0.5, 0.9, 0.99, 1.0].map(|share| quantile(times, share));
    let columns = shares.map(|time| time.map_or("-".to_owned(), |ms| format!("{ms:.2}")));
    println!(
        "{name:34} {:>6} {:>8} {:>8} {:>8} {:>8}",
        times.len(),
        columns[0],
        columns[1],
        columns[2],
        columns[3]
    );
}

/// The quantile at `share`. `None` without times.
pub fn quantile(times: &mut [f64], share: f64) -> Option<f64> {
    times.sort_by(f64::total_cmp);
    let rank = (share * times.len() as f64).ceil() as usize;
    times.get(rank.max(1) - 1).copied().map(round)
}

/// Rounds to the microsecond.
pub fn round(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}
