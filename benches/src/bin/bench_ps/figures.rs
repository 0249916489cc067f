//! Medians of samples, and how a row of a table shows them beside a peer.

use elasticrun_benches::figures::{quantile, round};
use serde_json::{Map, Value, json};

use crate::pair::Sample;

/// Medians of the samples of one case.
#[derive(Clone, Copy, Default)]
pub(crate) struct Figures {
    pub(crate) gb_per_s: f64,
    pub(crate) cpu_s_per_gb: f64,
    pub(crate) us: f64,
}

impl Figures {
    pub(crate) fn new(samples: &[Sample], bytes: usize) -> Self {
        let median = |each: &dyn Fn(&Sample) -> f64| {
            let mut values: Vec<f64> = samples.iter().map(each).collect();
            quantile(&mut values, 0.5).unwrap_or(f64::NAN)
        };
        let gb = |sample: &Sample| sample.count as f64 * bytes as f64 / 1e9;
        Self {
            gb_per_s: median(&|sample| gb(sample) / sample.seconds),
            cpu_s_per_gb: median(&|sample| sample.cpu_seconds / gb(sample)),
            us: median(&|sample| sample.median_us),
        }
    }

    pub(crate) fn insert(&self, key: &str, json: &mut Map<String, Value>) {
        json.insert(format!("{key}_gb_per_s"), json!(round(self.gb_per_s)));
        json.insert(
            format!("{key}_cpu_s_per_gb"),
            json!(round(self.cpu_s_per_gb)),
        );
        json.insert(format!("{key}_us"), json!(round(self.us)));
    }
}

/// A figure of ours, that of the peer, and their ratio; `-` without a peer.
pub(crate) fn beside(ours: f64, peer: Option<f64>, digits: usize) -> String {
    let show = |figure: Option<f64>, digits: usize| {
        figure.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.digits$}"))
    };
    let ratio = peer.map(|peer| ours / peer);
    let small = ratio.is_some_and(|ratio| ratio < 0.1);
    format!(
        " {:>9} {:>9} {:>6}",
        show(Some(ours), digits),
        show(peer, digits),
        show(ratio, if small { 3 } else { 2 })
    )
}

/// The head of columns of [`beside`].
pub(crate) fn head(metric: &str, peer: &str) -> String {
    format!(" {metric:>9} {peer:>9} {:>6}", "ratio")
}
