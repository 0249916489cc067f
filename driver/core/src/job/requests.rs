//! Requests of users to a running job, and whether they are granted.

use elasticrun_protocol::{HostId, Notice, NoticeKind};

use super::{Job, Out};
use crate::{Command, Refusal, Request, Time};

impl Job {
    /// Grants and carries out a request, or refuses it.
    pub(super) fn requested(&mut self, now: Time, id: u64, request: Request, out: &mut Out) {
        let answer = self.examine(&request);
        let accepted = answer.is_ok();
        out.push(Command::Answer { id, answer });
        if accepted {
            let Request::Drain { host, within } = request;
            let kind = NoticeKind::Operator;
            self.noticed(now, &host, Notice { kind, within }, out);
        }
    }

    fn examine(&self, request: &Request) -> Result<(), Refusal> {
        let Request::Drain { host, .. } = request;
        if self.results.outcome().is_some() {
            return Err(Refusal::Ending);
        }
        if !self.settings.elastic {
            return Err(Refusal::NotElastic);
        }
        if !self.hosts.contains(host) {
            let known = self.hosts.in_order().into_iter().cloned().collect();
            let host = host.clone();
            return Err(Refusal::UnknownHost { host, known });
        }
        Ok(())
    }

    /// Handles a request after the end of the job.
    pub(super) fn requested_late(&self, id: u64, request: &Request, out: &mut Out) {
        let answer = self.examine(request);
        out.push(Command::Answer { id, answer });
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ending => f.write_str("the job is ending"),
            Self::NotElastic => {
                f.write_str("the job is not elastic: its workers cannot go on elsewhere")
            }
            Self::UnknownHost { host, known } => {
                let known: Vec<_> = known.iter().map(HostId::as_str).collect();
                write!(
                    f,
                    "{host} is no host of this job; it has {}",
                    known.join(", ")
                )
            }
        }
    }
}
