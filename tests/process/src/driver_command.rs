//! How the drivers of a run are started: program, arguments before its own, and environment.

use std::{
    ffi::OsString,
    fs::File,
    process::{Child, Command, Stdio},
};

/// The start of a driver of a run.
#[derive(Clone, Debug)]
pub(crate) struct DriverCommand {
    /// The words up to the program, with it.
    program: Vec<String>,
    environment: Vec<(OsString, OsString)>,
}

impl DriverCommand {
    /// `program` through the programs `before` it, with these variables beside those of the test.
    pub(crate) fn new(
        before: &[String],
        program: String,
        environment: Vec<(OsString, OsString)>,
    ) -> Self {
        // A shell that runs the tests in its background ignores these signals, and the driver would too.
        let words = ["env", "--default-signal=HUP,INT,QUIT"].map(str::to_owned);
        let program = (words.into_iter())
            .chain(before.iter().cloned())
            .chain([program])
            .collect();
        Self {
            program,
            environment,
        }
    }

    /// All words of a driver with these arguments.
    pub(crate) fn words(&self, arguments: &[String]) -> Vec<String> {
        [&self.program[..], arguments].concat()
    }

    /// Starts a driver.
    ///
    /// # Panics
    /// When it cannot be started.
    pub(crate) fn spawn(&self, arguments: &[String], stdout: File, stderr: File) -> Child {
        let words = self.words(arguments);
        Command::new(&words[0])
            .args(&words[1..])
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(stderr)
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", words[0]))
    }
}
