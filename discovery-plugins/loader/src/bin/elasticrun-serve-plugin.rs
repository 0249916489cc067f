//! The process of an isolated plugin, for tests and for programs that embed this library. The binary `elasticrun` serves its
//! own plugins.

#![forbid(unsafe_code)]

use std::{env, path::Path, process::ExitCode};

fn main() -> ExitCode {
    let path = env::args_os().nth(1).unwrap_or_default();
    match elasticrun_plugin_loader::serve(Path::new(&path)) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("elasticrun-serve-plugin: {error}");
            ExitCode::FAILURE
        }
    }
}
