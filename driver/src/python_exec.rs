//! Commands that the Python package implements. This process executes Python for them.

use std::{
    env,
    ffi::OsString,
    io::{self, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
};

use crate::exit;

/// Runs `elasticrun data ...`: questions about data sets. Returns only on failure, with the exit code.
pub fn data(words: Vec<OsString>) -> u8 {
    exec_module(
        &installed_python(),
        "elasticrun.data",
        words.into_iter(),
        "data: install the Python package, which brings it, beside this program",
    )
}

/// The Python beside this program, else the one on the PATH.
pub(crate) fn installed_python() -> PathBuf {
    let beside = env::current_exe().ok();
    let beside = beside.map(|program| program.with_file_name("python3"));
    beside
        .filter(|python| python.is_file())
        .unwrap_or_else(|| "python3".into())
}

/// Replaces this process by `python -m module words`. Returns only on failure, with the exit code.
///
/// `advice` is `COMMAND: TEXT`. The error message starts with the command and ends with the text.
pub(crate) fn exec_module(
    python: &Path,
    module: &str,
    words: impl Iterator<Item = OsString>,
    advice: &str,
) -> u8 {
    let error = Command::new(python).args(["-m", module]).args(words).exec();
    let (command, advice) = advice.split_once(": ").unwrap_or(("", advice));
    let name = python.display();
    let _ = writeln!(
        io::stderr(),
        "elasticrun: {command}: cannot run {name}: {error}; {advice}"
    );
    exit::USAGE
}
