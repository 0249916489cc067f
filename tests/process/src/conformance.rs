//! The plugin rules, checked by `elasticrun plugin test` as a user runs it.

use std::{path::Path, process::Command};

use crate::binaries;

/// Runs the conformance suite over a plugin in `directory`. `spec` is its name with the options of a working
/// configuration.
///
/// # Panics
/// When the plugin breaks a rule. The message is the output of the suite.
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
