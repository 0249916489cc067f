//! The life cycle of an agent: take the lock, reach the driver, join, serve. A self-registered agent repeats it.

use std::{os::unix::ffi::OsStringExt, time::Duration};

use elasticrun_protocol::HostId;
use tracing::Instrument as _;

use crate::{
    AgentOptions, Error, keys::Keyring, memory::KeptCommits, orphans, scheduling, session::serve,
    spans::Spans, stop_signals::StopSignals,
};

/// Why an agent ended in good order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The driver ordered the end.
    ShutDown {
        /// The exit code of the job, if the job has ended and the driver tells it.
        job_code: Option<u8>,
    },
    /// A signal ordered the end.
    Stopped,
    /// The driver was lost and did not come back in time; the workers were ended.
    Orphaned,
    /// The process that the agent was started under is gone ([`AgentOptions::abandoned`]); the workers were killed.
    Abandoned,
}

/// Serves one host of a run until the driver or a signal ends it, or the driver is lost.
///
/// Call it once in a process, on a current-thread runtime of tokio with all drivers enabled. It changes the process:
/// it handles signals, and orphans of the workers become its children. Not cancel-safe: if the future is
/// dropped, the workers end only with the process.
///
/// # Errors
/// See [`Error`]; no worker is left behind.
pub async fn run(mut options: AgentOptions) -> Result<Ended, Error> {
    scheduling::use_short_time_slices();
    orphans::become_subreaper().map_err(Error::system("become the reaper of orphans"))?;
    let mut first = Some(StopSignals::listen(&options.stop_signals)?);
    // SIGINT is for the driver, which then sends commands.
    let ignores = !options.one_run && !options.stop_signals.contains(&libc::SIGINT);
    let _interrupt = match ignores {
        true => Some(StopSignals::listen(&[libc::SIGINT])?),
        false => None,
    };
    let host = match &options.host {
        Some(host) => host.clone(),
        None => HostId::new(machine_name()?),
    };
    let mut run_id = options.run_id.clone();
    let mut keyring = Keyring::new(&options.access)?;
    let mut kept = KeptCommits::default();
    let mut is_retry = false;
    loop {
        let spans = Spans::new(options.run_id.as_deref(), &host);
        let in_host = spans.host();
        let terminate = match first.take() {
            Some(signals) => signals,
            None => StopSignals::listen(&options.stop_signals)?,
        };
        let (keyring, kept) = (&mut keyring, &mut kept);
        let served = serve(
            &options,
            &host,
            spans,
            &mut run_id,
            terminate,
            keyring,
            kept,
        );
        let ended = match served.instrument(in_host).await {
            Err(error) if is_retry => {
                tracing::debug!(%error, "the driver is gone");
                return Ok(Ended::Orphaned);
            }
            ended => ended?,
        };
        if ended != Ended::Orphaned || options.task.is_some() || options.one_run {
            return Ok(ended);
        }
        if options.self_registered {
            tracing::info!("the driver is gone; waiting for the next one");
        } else if kept.is_empty() {
            return Ok(ended);
        } else {
            // The driver may only have been out of reach, and the commits kept here may have no other copy. So try once
            // more; the address of a driver that is gone refuses at once.
            is_retry = true;
            options.connect_timeout = Duration::ZERO;
        }
    }
}

/// The name of this machine, which an agent has without another one.
///
/// # Errors
/// The system does not tell it, or it is empty or not UTF-8.
pub fn machine_name() -> Result<String, Error> {
    let name = nix::unistd::gethostname().map_err(|error| Error::System {
        what: "ask for the name of this machine",
        source: error.into(),
    })?;
    let name = String::from_utf8(name.into_vec()).map_err(|_| Error::NoHostName)?;
    if name.is_empty() {
        return Err(Error::NoHostName);
    }
    Ok(name)
}
