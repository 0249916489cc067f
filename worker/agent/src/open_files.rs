//! The limit of open files. Driver and agent raise theirs. Workers and agents that they start get the limit that the user
//! had, since some programs cannot use descriptors above 1,023. Plugins and discovery scripts have the raised limit.

use std::sync::OnceLock;

use nix::{
    libc::rlim_t,
    sys::resource::{Resource, getrlimit, setrlimit},
};

/// The limit is raised to at most so many. Some systems allow a billion.
const MOST: rlim_t = 1 << 20;

/// The limits before they were raised: soft and hard.
static BEFORE: OnceLock<(rlim_t, rlim_t)> = OnceLock::new();

/// Raises the soft limit of open files of this process to its hard limit. Each host takes about five descriptors of the
/// driver. If the system refuses, the limit stays.
pub fn raise_open_files() {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return;
    };
    let raised = hard.min(MOST);
    if soft < raised && setrlimit(Resource::RLIMIT_NOFILE, raised, hard).is_ok() {
        let _ = BEFORE.set((soft, hard));
    }
}

/// Restores the limit of [`raise_open_files`]. Between fork and exec this is one system call.
pub fn restore_open_files() {
    if let Some((soft, hard)) = BEFORE.get() {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, *soft, *hard);
    }
}
