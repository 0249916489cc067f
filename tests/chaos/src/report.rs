//! The table of all scenarios, and whether they hold what a user is promised.

use elasticrun_benches::figures::quantile;

use crate::steps::Progress;

/// The longest gap between two steps of a disturbed job, in median steps.
const MAX_GAP: f64 = 3.0;

/// The longest time from a take-over until the next change of hosts is accepted, in milliseconds.
const MAX_ACCEPTANCE: f64 = 1000.0;

/// What a scenario has measured.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// The number of faults.
    pub(crate) faults: usize,
    pub(crate) progress: Progress,
    /// Milliseconds from a take-over until the next change of hosts was accepted.
    pub(crate) accepted: Vec<f64>,
}

impl Row {
    /// Adds another turn of the same scenario.
    pub(crate) fn add(&mut self, other: Self) {
        self.faults += other.faults;
        self.progress.add(other.progress);
        self.accepted.extend(other.accepted);
    }

    /// The figures of the table, and the bounds that are broken.
    fn figures(&mut self, timed: bool) -> (String, Vec<String>) {
        let Progress {
            steps,
            lost,
            rounds,
            gaps,
            throughput,
        } = &mut self.progress;
        let of = |times: &mut [f64], share| quantile(times, share).unwrap_or(f64::NAN);
        let (median, longest) = (of(gaps, 0.5), of(gaps, 1.0));
        let ratio = longest / median;
        let [rate, least, most] = [0.5, 0.0, 1.0].map(|share| of(throughput, share));
        let [usual, late] = [0.5, 0.99].map(|share| of(&mut self.accepted, share));
        let accepted = match self.accepted.is_empty() {
            true => format!("{:>9} {:>9}", "-", "-"),
            false => format!("{usual:>6.0} ms {late:>6.0} ms"),
        };
        let line = format!(
            "{:24} {:>6} {steps:>6} {lost:>5} {rounds:>6} {median:>8.1} ms {longest:>8.1} ms {ratio:>6.2} {rate:>8.1} {least:>7.1} {most:>7.1} {accepted}",
            self.name, self.faults
        );
        let mut broken = Vec::new();
        let name = self.name;
        if *lost > 0 {
            broken.push(format!("{name}: {lost} steps were trained twice"));
        }
        if *steps == 0 {
            broken.push(format!("{name}: no step"));
        }
        // A run without faults has no bound: it shows what the machine does by itself.
        if timed && self.faults > 0 {
            if ratio.is_nan() || ratio > MAX_GAP {
                broken.push(format!(
                    "{name}: the longest gap is {ratio:.2} median steps, more than {MAX_GAP}"
                ));
            }
            if late > MAX_ACCEPTANCE {
                broken.push(format!(
                    "{name}: a change of hosts was accepted after {late:.0} ms, more than {MAX_ACCEPTANCE}"
                ));
            }
        }
        (line, broken)
    }
}

/// Prints the table. Gives the bounds that are broken.
pub(crate) fn print(rows: Vec<Row>, timed: bool) -> Vec<String> {
    println!(
        "{:24} {:>6} {:>6} {:>5} {:>6} {:>11} {:>11} {:>6} {:>8} {:>7} {:>7} {:>9} {:>9}",
        "scenario",
        "faults",
        "steps",
        "lost",
        "rounds",
        "median step",
        "longest gap",
        "ratio",
        "steps/s",
        "least",
        "most",
        "accepted",
        "p99"
    );
    let mut broken = Vec::new();
    for mut row in rows {
        let (line, more) = row.figures(timed);
        println!("{line}");
        broken.extend(more);
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(row: &Row, timed: bool) -> Vec<String> {
        row.clone().figures(timed).1
    }

    #[test]
    fn each_bound_is_checked() {
        let good = Row {
            name: "driver",
            faults: 3,
            progress: Progress {
                steps: 4,
                lost: 0,
                rounds: 1,
                gaps: vec![10.0, 10.0, 29.0],
                throughput: vec![9.0],
            },
            accepted: vec![20.0, 900.0],
        };
        assert_eq!(broken(&good, true), [""; 0]);
        let mut row = good.clone();
        row.progress.gaps.push(31.0);
        assert!(broken(&row, true)[0].contains("3.10 median steps"));
        assert_eq!(broken(&row, false), [""; 0], "a smoke test is not timed");
        row.faults = 0;
        assert_eq!(broken(&row, true), [""; 0], "nobody disturbed it");
        let mut row = good.clone();
        row.accepted.push(1001.0);
        assert!(broken(&row, true)[0].contains("1001 ms"));
        let mut row = good;
        row.progress.lost = 2;
        assert!(broken(&row, false)[0].contains("2 steps were trained twice"));
    }
}
