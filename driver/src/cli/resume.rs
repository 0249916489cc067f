//! `elasticrun resume RUN_ID`: the options.

use std::net::SocketAddr;

use clap::{Args, Command};

use super::{
    Invocation,
    command::{self, base},
};
use crate::{
    config::{Error, EtcdPlace, Journal},
    resume::{ResumeRequest, Standby},
};

#[derive(Args, Debug)]
struct Options {
    /// Id of the run, as the log of its driver shows it
    run_id: String,
    /// Journal of the run: a file, or etcd://HOST:PORT[,HOST:PORT...][/PREFIX] [default: under the state directory of the user]
    #[arg(long, value_name = "PATH|URL")]
    journal: Option<String>,
    /// Wait as long as the run has a driver, and continue the run when that is killed; needs a journal in etcd
    #[arg(long)]
    standby: bool,
    /// Where the standby driver listens once it continues the run [default: a free port]
    #[arg(long, value_name = "ADDRESS:PORT", requires = "standby")]
    listen: Option<SocketAddr>,
}

const ABOUT: &str = "Continues a run whose driver has died, or shows the outcome of a run that has ended.\n\n\
    Run this on the machine and as the user of the driver. With a journal in etcd, any machine that has its key shows the outcome or runs a standby driver. Ends with the exit code of the run, or with 7 if the run cannot \
    be resumed.";

/// The longest id of a run.
const MAX_ID: usize = 64;

/// The command for clap.
pub(super) fn command() -> Command {
    Options::augment_args(base("resume", "elasticrun resume")).about(ABOUT)
}

/// Parses the words after `resume`.
pub(super) fn parse(words: Vec<String>) -> Result<Invocation, Error> {
    command::parse(command(), words, |options| {
        let Options {
            run_id,
            journal,
            standby,
            listen,
        } = options;
        if !is_id(&run_id) {
            return Err(Error::Usage {
                message: format!("resume {run_id}: expected the id of a run, such as 1a2b3c4d"),
            });
        }
        let journal = place(journal)?;
        if standby && !matches!(journal, Journal::Etcd(_)) {
            return Err(Error::Usage {
                message: "resume --standby: needs --journal etcd://HOST:PORT, through which drivers on several machines find each other".to_owned(),
            });
        }
        Ok(Invocation::Resume(ResumeRequest {
            run: run_id,
            journal,
            standby: standby.then_some(Standby { listen }),
        }))
    })
}

/// The place of the journal that the user has named.
fn place(journal: Option<String>) -> Result<Journal, Error> {
    Ok(match journal {
        None => Journal::InStateDirectory,
        Some(text) if text.contains("://") => {
            let place = EtcdPlace::parse(&text).map_err(|allowed| Error::Usage {
                message: format!("resume --journal {text}: expected {allowed}"),
            })?;
            Journal::Etcd(place)
        }
        Some(path) => Journal::File(path.into()),
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
