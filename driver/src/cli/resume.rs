//! `elasticrun resume RUN_ID`: the options.

use std::path::PathBuf;

use clap::{Args, Command};

use super::{
    Invocation,
    command::{self, base},
};
use crate::{config::Error, resume::ResumeRequest};

#[derive(Args, Debug)]
struct Options {
    /// Id of the run, as the log of its driver shows it
    run_id: String,
    /// Journal of the run [default: under the state directory of the user]
    #[arg(long, value_name = "PATH")]
    journal: Option<PathBuf>,
}

const ABOUT: &str = "Continues a run whose driver has died, or shows the outcome of a run that has ended.\n\n\
    Run this on the machine and as the user of the driver. Ends with the exit code of the run, or with 7 if the run cannot \
    be resumed.";

/// The longest id of a run.
const MAX_ID: usize = 64;

/// The command for clap.
pub(super) fn command() -> Command {
    Options::augment_args(base("resume", "elasticrun resume")).about(ABOUT)
}

/// Parses the words after `resume`.
pub(super) fn parse(words: Vec<String>) -> Result<Invocation, Error> {
    command::parse(command(), words, |Options { run_id, journal }| {
        if !is_id(&run_id) {
            return Err(Error::Usage {
                message: format!("resume {run_id}: expected the id of a run, such as 1a2b3c4d"),
            });
        }
        Ok(Invocation::Resume(ResumeRequest {
            run: run_id,
            journal,
        }))
    })
}

/// Whether a text can be the id of a run, which is also the name of a directory.
fn is_id(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=MAX_ID).contains(&text.len()) && text.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_names_no_other_directory() {
        assert!(is_id("1a2b3c4d"));
        for wrong in ["", "..", "a/b", "a.b", "a b", &"a".repeat(65)] {
            assert!(!is_id(wrong), "{wrong:?}");
        }
    }
}
