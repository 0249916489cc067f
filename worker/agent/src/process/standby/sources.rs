//! The Python files of the fork server, as files that an interpreter can run.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

const FILES: [(&str, &str); 5] = [
    ("channels.py", include_str!("python/channels.py")),
    ("fork_server.py", include_str!("python/fork_server.py")),
    ("interpreter.py", include_str!("python/interpreter.py")),
    ("preloading.py", include_str!("python/preloading.py")),
    (
        "script_imports.py",
        include_str!("python/script_imports.py"),
    ),
];

/// Writes the files into a new directory in the run directory. Returns the path of the program.
pub(super) fn write(run_directory: &Path) -> io::Result<PathBuf> {
    let directory = run_directory.join("standby");
    fs::create_dir_all(&directory)?;
    for (name, text) in FILES {
        fs::write(directory.join(name), text)?;
    }
    Ok(directory.join("fork_server.py"))
}
