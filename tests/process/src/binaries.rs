//! Paths of the programs under test.

use std::{env, path::PathBuf};

/// The binary `elasticrun` of this build.
///
/// # Panics
/// When it is not built. Cargo builds binaries of other packages only together with the whole workspace.
pub fn elasticrun() -> PathBuf {
    beside("elasticrun", "ELASTICRUN_TEST_BINARY")
}

/// The test worker of this build.
///
/// # Panics
/// When it is not built.
pub fn worker() -> PathBuf {
    beside("elasticrun-test-worker", "ELASTICRUN_TEST_WORKER")
}

/// The program of the example of parameter servers of this build.
///
/// # Panics
/// When it is not built.
pub fn example_of_servers() -> PathBuf {
    beside("ps-digits", "ELASTICRUN_TEST_PS_EXAMPLE")
}

/// The directory with the plugin libraries of this build.
///
/// # Panics
/// When they are not built.
pub fn plugins() -> PathBuf {
    let library = beside(
        "libelasticrun_plugin_misbehaving.so",
        "ELASTICRUN_TEST_PLUGIN",
    );
    library.parent().map(PathBuf::from).unwrap_or_default()
}

fn beside(name: &str, variable: &str) -> PathBuf {
    if let Some(path) = env::var_os(variable) {
        return path.into();
    }
    let own = env::current_exe().expect("the path of the test is known");
    let built = (own.ancestors().skip(1))
        .map(|directory| directory.join(name))
        .find(|path| path.is_file());
    built.unwrap_or_else(|| {
        panic!(
            "{name} is not built beside {}; run cargo build --workspace",
            own.display()
        )
    })
}
