//! `elasticrun token`: the options.

use std::time::Duration;

use clap::{Args, Command};

use super::{
    Invocation,
    command::{self, base},
};
use crate::{
    config::{Error, duration},
    join_token::LIFETIME,
};

#[derive(Args, Debug)]
struct Options {
    /// Time until the token expires [default: 24h]
    #[arg(long, value_name = "TIME")]
    lifetime: Option<String>,
}

const ABOUT: &str = "Prints a new join token, for a file that driver and agents get with --join-token-file.\n\n\
    Hosts join by it until it expires. Hosts that have joined stay.";

/// The command for clap.
pub(super) fn command() -> Command {
    Options::augment_args(base("token", "elasticrun token")).about(ABOUT)
}

/// Parses the words after `token`.
pub(super) fn parse(words: Vec<String>) -> Result<Invocation, Error> {
    command::parse(command(), words, |options: Options| {
        let Some(word) = options.lifetime else {
            return Ok(Invocation::Token(LIFETIME));
        };
        let lifetime =
            duration::parse(&word).filter(|lifetime| *lifetime >= Duration::from_secs(1));
        lifetime.map(Invocation::Token).ok_or_else(|| Error::Usage {
            message: format!(
                "--lifetime {word}: expected {}, and at least 1s",
                duration::ALLOWED
            ),
        })
    })
}
