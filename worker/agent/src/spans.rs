//! What a log record of an agent belongs to: the spans job > round > host > worker, as in the driver's log.
//!
//! A thread or task inherits no span. Code that starts one enters the current span there.

use elasticrun_protocol::{HostId, Process, Round};
use tracing::{Span, error_span, field::Empty};

/// The spans of one run of an agent. They exist at every log level.
#[derive(Clone, Debug)]
pub(crate) struct Spans {
    job: Span,
    host: HostId,
}

impl Spans {
    /// The spans of a host. An agent that registers itself learns the run later.
    pub(crate) fn new(run_id: Option<&str>, host: &HostId) -> Self {
        let job = error_span!("job", run = Empty);
        if let Some(run_id) = run_id {
            job.record("run", run_id);
        }
        let host = host.clone();
        Self { job, host }
    }

    /// Names the run, also in the spans that exist. Call it once, and only if [`Spans::new`] was given none.
    pub(crate) fn set_run(&self, run_id: &str) {
        self.job.record("run", run_id);
    }

    /// The host, in no round.
    pub(crate) fn host(&self) -> Span {
        error_span!(parent: &self.job, "host", id = %self.host)
    }

    /// The host in a round.
    pub(crate) fn round(&self, round: Round) -> Span {
        let round = error_span!(parent: &self.job, "round", number = round.0);
        error_span!(parent: &round, "host", id = %self.host)
    }
}

/// A worker, in the current span. Make it for the record that is about the worker, and write the record in it.
pub(crate) fn worker(process: Process) -> Span {
    if let Some(number) = process.server_number() {
        return error_span!("server", number);
    }
    let Process {
        local_rank,
        generation,
    } = process;
    error_span!(
        "worker",
        local_rank = local_rank.0,
        generation = generation.0
    )
}
