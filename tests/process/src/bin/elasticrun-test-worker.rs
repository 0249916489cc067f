//! The test worker as a program: runs [`elasticrun_process_tests::worker`].

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    elasticrun_process_tests::worker::main()
}
