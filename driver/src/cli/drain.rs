//! `elasticrun drain HOST`: the options.

use std::time::Duration;

use clap::{Args, Command};
use elasticrun_plugin_sdk::hosts::without_final_dot;
use elasticrun_protocol::HostId;

use super::{
    Invocation,
    command::{self, base},
};
use crate::{
    admin_socket::Request,
    config::{Error, duration},
};

/// The command `drain`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainRequest {
    /// The id of the run. `None` stands for the only run.
    pub run: Option<String>,
    /// The request to the driver.
    pub request: Request,
}

#[derive(Args, Debug)]
struct Options {
    /// Host to drain, by its name in the job
    host: String,
    /// Time until the host goes away; its workers may continue for a part of it if too few others remain
    #[arg(long = "in", value_name = "TIME")]
    within: Option<String>,
    /// Id of the run, if you have several on this machine
    #[arg(long, value_name = "ID")]
    run: Option<String>,
}

const ABOUT: &str = "Drains a host: its workers leave at a common commit, and the job does not use it again. Run this on the driver's machine.";

/// The command for clap.
pub(super) fn command() -> Command {
    Options::augment_args(base("drain", "elasticrun drain")).about(ABOUT)
}

/// Parses the words after `drain`.
pub(super) fn parse(words: Vec<String>) -> Result<Invocation, Error> {
    command::parse(command(), words, |options: Options| {
        let within = options.within.as_deref().map(read_time).transpose()?;
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Ok(Invocation::Drain(DrainRequest {
            run: options.run,
            request: Request::Drain {
                // The job knows hosts without the final dot of a full name.
                host: HostId::new(without_final_dot(&options.host)),
                within_ms: within.map(millis),
            },
        }))
    })
}

fn read_time(word: &str) -> Result<Duration, Error> {
    duration::parse(word).ok_or_else(|| Error::Usage {
        message: format!("--in {word}: expected {}", duration::ALLOWED),
    })
}
