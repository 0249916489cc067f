//! `elasticrun --spark MASTER`: executes the bridge program of the Python package.
//!
//! The bridge makes a SparkContext and starts this program again as its child. It is the embedder of that driver
//! ([`crate::embedder`]).

use std::{env, ffi::OsString, path::PathBuf};

use crate::{cli::SparkRequest, python_exec};

/// Replaces this process by the bridge. Returns only on failure, with the exit code.
pub fn run(request: &SparkRequest) -> u8 {
    let workers = &request.workers;
    let words = [
        request.master.clone(),
        workers.np.to_string(),
        workers.min_np.to_string(),
        workers.max_np.map_or("-".to_owned(), |max| max.to_string()),
        workers.spares.to_string(),
    ];
    let words = (words.into_iter())
        .chain(request.options.iter().cloned())
        .chain(["--".to_owned()])
        .chain(request.command.iter().cloned());
    python_exec::exec_module(
        &python(),
        "elasticrun.spark",
        words.map(OsString::from),
        "--spark: set PYSPARK_DRIVER_PYTHON to a Python with elasticrun and pyspark",
    )
}

/// The Python that pyspark would use, else the one beside this program, else the one on the PATH.
fn python() -> PathBuf {
    let named = |name| env::var_os(name).filter(|value: &OsString| !value.is_empty());
    if let Some(python) = named("PYSPARK_DRIVER_PYTHON").or_else(|| named("PYSPARK_PYTHON")) {
        return python.into();
    }
    python_exec::installed_python()
}
