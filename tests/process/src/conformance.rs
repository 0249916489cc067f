//! The rules of plugins, checked by `elasticrun plugin test` as a person would.

use std::{path::Path, process::Command};

use crate::binaries;

/// Runs the conformance suite over a plugin that is found in `directory`; `spec` names it, with options of a set-up
/// that works.
///
/// # Panics
/// When a rule is broken; the message is what the suite printed.
#[track_caller]
pub fn assert_conforms(spec: &str, directory: &Path) {
    let output = Command::new(binaries::elasticrun())
        .args(["plugin", "test", spec, "--plugin-dir"])
        .arg(directory)
        .output()
        .expect("elasticrun can be run");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains("9 of 9 passed"),
        "plugin test {spec}\n{said}"
    );
    println!("plugin test {spec}\n{said}");
}
