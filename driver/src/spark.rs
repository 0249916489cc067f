//! `elasticrun --spark MASTER`: becomes the bridge program of the Python package, which makes a SparkContext and starts
//! this program again as its child, with a parent that lends hosts ([`crate::parent`]).

use std::{
    env,
    ffi::OsString,
    io::{self, Write},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::Command,
};

use crate::{cli::SparkRequest, exit};

/// Becomes the bridge; comes back only if that cannot be, with the exit code.
pub fn run(request: &SparkRequest) -> u8 {
    let python = python();
    let error = Command::new(&python)
        .args(["-m", "elasticrun.spark"])
        .arg(&request.master)
        .arg(request.slots.to_string())
        .args(&request.options)
        .arg("--")
        .args(&request.command)
        .exec();
    let name = python.display();
    let _ = writeln!(
        io::stderr(),
        "elasticrun: --spark: cannot run {name}: {error}; set PYSPARK_DRIVER_PYTHON to a Python with elasticrun and pyspark"
    );
    exit::USAGE
}

/// The Python that pyspark would use here, else the one that this program was installed with, else that on the PATH.
fn python() -> PathBuf {
    let named = |name| env::var_os(name).filter(|value: &OsString| !value.is_empty());
    if let Some(python) = named("PYSPARK_DRIVER_PYTHON").or_else(|| named("PYSPARK_PYTHON")) {
        return python.into();
    }
    let beside = env::current_exe().ok();
    let beside = beside.map(|program| program.with_file_name("python3"));
    beside
        .filter(|python| python.is_file())
        .unwrap_or_else(|| "python3".into())
}
