//! `elasticrun --spark MASTER`: executes the bridge program of the Python package.
//!
//! The bridge makes a SparkContext and starts this program again as its child. It is the embedder of that driver
//! ([`crate::embedder`]).

use std::{env, ffi::OsString, path::PathBuf};

use crate::{cli::SparkRequest, python_exec};

/// Replaces this process by the bridge. Returns only on failure, with the exit code.
pub fn run(request: &SparkRequest) -> u8 {
    python_exec::exec_module(
        &python(),
        "elasticrun.spark",
        words(request).into_iter().map(OsString::from),
        "--spark: set PYSPARK_DRIVER_PYTHON to a Python with elasticrun and pyspark",
    )
}

/// The arguments of the bridge. It passes on the environment of this process only where told to, so it gets the names of variables;
/// their values would be on a command line.
fn words(request: &SparkRequest) -> Vec<String> {
    let workers = &request.workers;
    let words = [
        request.master.clone(),
        workers.np.to_string(),
        workers.min_np.to_string(),
        workers.max_np.map_or("-".to_owned(), |max| max.to_string()),
        workers.spares.to_string(),
        request.passed.join(","),
    ];
    (words.into_iter())
        .chain(request.options.iter().cloned())
        .chain(["--".to_owned()])
        .chain(request.command.iter().cloned())
        .collect()
}

/// The Python that pyspark would use, else the one beside this program, else the one on the PATH.
fn python() -> PathBuf {
    let named = |name| env::var_os(name).filter(|value: &OsString| !value.is_empty());
    if let Some(python) = named("PYSPARK_DRIVER_PYTHON").or_else(|| named("PYSPARK_PYTHON")) {
        return python.into();
    }
    python_exec::installed_python()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Invocation, parse};

    /// The arguments of the bridge for a command line.
    fn given(line: &str) -> Vec<String> {
        let line = line.split_whitespace().map(OsString::from);
        match parse(line, []) {
            Ok(Invocation::Spark(request)) => super::words(&request),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_bridge_gets_the_names_of_variables_and_no_values() {
        // Cargo sets these two for each test.
        let config = tempfile::NamedTempFile::new().unwrap();
        let names = r#"env = ["CARGO_MANIFEST_DIR", "KEY=secret", "CARGO_PKG_NAME"]"#;
        std::fs::write(config.path(), names).unwrap();
        let path = config.path().display();
        let words = given(&format!("--spark yarn -np 2 --config {path} train"));
        assert_eq!(
            words[..6],
            [
                "yarn",
                "2",
                "2",
                "-",
                "0",
                "CARGO_MANIFEST_DIR,CARGO_PKG_NAME"
            ]
        );
        assert!(!words.join(" ").contains("secret"));
        let words = given("--spark yarn -np 2 --env CARGO_PKG_NAME --env KEY=x train");
        assert_eq!(words[5], "CARGO_PKG_NAME");
    }
}
