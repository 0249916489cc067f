//! The test worker as a program. See [`elasticrun_process_tests::worker`].

use std::process::ExitCode;

fn main() -> ExitCode {
    elasticrun_process_tests::worker::main()
}
