//! What the Python package does for this program: commands that are Python's.

use std::{
    env,
    ffi::OsString,
    io::{self, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
};

use crate::exit;

/// `elasticrun data ...`: what can be asked about data sets, which the package answers.
pub fn data(words: Vec<OsString>) -> u8 {
    become_module(
        &own(),
        "elasticrun.data",
        words.into_iter(),
        "data: install the Python package, which brings it, beside this program",
    )
}

/// The Python that this program was installed with, else that on the PATH.
pub(crate) fn own() -> PathBuf {
    let beside = env::current_exe().ok();
    let beside = beside.map(|program| program.with_file_name("python3"));
    beside
        .filter(|python| python.is_file())
        .unwrap_or_else(|| "python3".into())
}

/// Becomes `python -m module words`; comes back only if that cannot be, with the exit code. `advice` begins with what
/// was asked for.
pub(crate) fn become_module(
    python: &Path,
    module: &str,
    words: impl Iterator<Item = OsString>,
    advice: &str,
) -> u8 {
    let error = Command::new(python).args(["-m", module]).args(words).exec();
    let (asked, advice) = advice.split_once(": ").unwrap_or(("", advice));
    let name = python.display();
    let _ = writeln!(
        io::stderr(),
        "elasticrun: {asked}: cannot run {name}: {error}; {advice}"
    );
    exit::USAGE
}
