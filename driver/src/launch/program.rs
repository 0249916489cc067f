//! The program of this driver, which is also the program of its agents.

use std::{
    env,
    path::{Path, PathBuf},
};

/// The file of the running program. It is the same file after an upgrade has replaced the one at [`Program::path`].
pub(super) const RUNNING: &str = "/proc/self/exe";

/// Where this program was when its driver started.
#[derive(Clone, Debug)]
pub(super) struct Program(PathBuf);

impl Program {
    /// The program of this process. Call it at the start of the driver: the kernel marks the path of a file that is
    /// replaced later as deleted.
    pub(super) fn current() -> Self {
        Self(env::current_exe().unwrap_or_else(|_| "elasticrun".into()))
    }

    /// The path at the start of the driver. Another program may be there by now.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}
