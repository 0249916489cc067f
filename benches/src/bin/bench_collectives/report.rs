//! A table for people and a line of JSON for programs.

use std::{fmt::Write, time::Duration};

use crate::team::Sample;

/// Medians of one operation, number of ranks and size.
pub(crate) struct Cell {
    pub(crate) operation: String,
    pub(crate) ranks: u32,
    pub(crate) bytes: usize,
    pub(crate) shared: Sample,
    pub(crate) tcp: Sample,
    pub(crate) gloo: Option<Sample>,
}

/// All measurements.
pub(crate) struct Report {
    cells: Vec<Cell>,
}

impl Report {
    pub(crate) fn new() -> Self {
        println!(
            "{:<10} {:>5} {:>8} | {:>10} {:>10} | {:>12} {:>12} {:>12} | GB/s of the three  | processor time of all ranks",
            "operation", "ranks", "size", "shm / gloo", "TCP / gloo", "shared mem.", "TCP", "gloo"
        );
        Self { cells: Vec::new() }
    }

    pub(crate) fn add(&mut self, cell: Cell) {
        let ratio = |ours: Sample| {
            cell.gloo.map_or("-".to_owned(), |gloo| {
                format!("{:.4}x", ours.time.as_secs_f64() / gloo.time.as_secs_f64())
            })
        };
        let all = [Some(cell.shared), Some(cell.tcp), cell.gloo];
        let show =
            |each: &dyn Fn(Sample) -> String| all.map(|sample| sample.map_or("-".to_owned(), each));
        let times = show(&|sample| time(sample.time));
        let bandwidths =
            show(&|sample| format!("{:.2}", cell.bytes as f64 / sample.time.as_secs_f64() / 1e9));
        let processors = show(&|sample| time(sample.processor));
        println!(
            "{:<10} {:>5} {:>8} | {:>10} {:>10} | {:>12} {:>12} {:>12} | {:>5} {:>5} {:>5} | {}, {}, {}",
            cell.operation,
            cell.ranks,
            size(cell.bytes),
            ratio(cell.shared),
            ratio(cell.tcp),
            times[0],
            times[1],
            times[2],
            bandwidths[0],
            bandwidths[1],
            bandwidths[2],
            processors[0],
            processors[1],
            processors[2],
        );
        self.cells.push(cell);
    }

    /// Prints the JSON line. A bandwidth ratio is ours / gloo's, so more is better. A latency or
    /// time ratio is our time / gloo's, so less is better. The two keys without ranks are those of
    /// the largest number of ranks, on one host.
    pub(crate) fn finish(&self) {
        let mut line = r#"{"bench":"collectives""#.to_owned();
        let ratio = |cell: &Cell, ours: Sample| {
            let gloo = cell.gloo?.time;
            Some(ours.time.as_secs_f64() / gloo.as_secs_f64())
        };
        let number = |value: Option<f64>| value.map_or("null".to_owned(), |v| format!("{v:.5}"));
        let max_ranks = self.cells.iter().map(|cell| cell.ranks).max();
        let headline = |bytes: usize| {
            self.cells.iter().find(|cell| {
                cell.operation == "allreduce"
                    && Some(cell.ranks) == max_ranks
                    && cell.bytes == bytes
            })
        };
        if let Some(cell) = headline(64 << 20) {
            let inverse = ratio(cell, cell.shared).map(f64::recip);
            let _ = write!(
                line,
                r#","allreduce_64mib_bandwidth_ratio":{}"#,
                number(inverse)
            );
        }
        if let Some(cell) = headline(1 << 10) {
            let value = number(ratio(cell, cell.shared));
            let _ = write!(line, r#","allreduce_1kib_latency_ratio":{value}"#);
        }
        for cell in &self.cells {
            let name = format!(
                "{}_{}ranks_{}",
                cell.operation,
                cell.ranks,
                size(cell.bytes)
            );
            let name = name.to_lowercase();
            let us = |sample: Sample| format!("{:.1}", sample.time.as_secs_f64() * 1e6);
            let gloo = cell.gloo.map_or("null".to_owned(), us);
            let (shared, tcp) = (us(cell.shared), us(cell.tcp));
            let shared_ratio = number(ratio(cell, cell.shared));
            let tcp_ratio = number(ratio(cell, cell.tcp));
            let _ = write!(
                line,
                r#","shm_{name}_us":{shared},"tcp_{name}_us":{tcp},"gloo_{name}_us":{gloo}"#
            );
            let _ = write!(
                line,
                r#","shm_{name}_time_ratio":{shared_ratio},"tcp_{name}_time_ratio":{tcp_ratio}"#
            );
        }
        println!("{line}}}");
    }
}

fn size(bytes: usize) -> String {
    match bytes {
        b if b >= 1 << 20 && b.is_multiple_of(1 << 20) => format!("{}MiB", b >> 20),
        b if b >= 1 << 10 && b.is_multiple_of(1 << 10) => format!("{}KiB", b >> 10),
        b => format!("{b}B"),
    }
}

fn time(time: Duration) -> String {
    let us = time.as_secs_f64() * 1e6;
    if us < 1000.0 {
        format!("{us:.1} us")
    } else {
        format!("{:.2} ms", us / 1000.0)
    }
}
