//! The peer: a raw gloo that makes its survivors a group again, in process.

use std::{path::Path, process::Command, time::Duration};

use anyhow::{Context, Result, ensure};

/// Times of `trials` times destroy + init + barrier on so many ranks, from the first's start to the last's end.
pub(crate) fn trials(python: &Path, ranks: usize, trials: usize) -> Result<Vec<Duration>> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/recovery_gloo.py");
    let output = Command::new(python)
        .arg(script)
        .args([ranks.to_string(), trials.to_string()])
        .output()
        .with_context(|| format!("cannot run {}", python.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "gloo failed: {}", said.trim());
    let text = String::from_utf8(output.stdout)?;
    let millis: Vec<f64> = text
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    ensure!(
        millis.len() == trials,
        "gloo gave {} times, not {trials}",
        millis.len()
    );
    Ok(millis
        .into_iter()
        .map(|millis| Duration::from_secs_f64(millis / 1e3))
        .collect())
}
