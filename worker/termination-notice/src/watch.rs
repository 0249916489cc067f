//! Merges all sources of a host into one stream of notices.

use std::{path::PathBuf, time::Duration};

use elasticrun_protocol::Notice;
use tokio::{sync::mpsc, task::JoinSet};
use tracing::Instrument as _;

use crate::{azure, cloud::Clouds, ec2, file, gce, sender, signals};

/// The sources beside the cloud of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// A file whose appearance is a notice; its text may be the seconds that are left.
    pub file: Option<PathBuf>,
    /// How long the host stays after SIGUSR1. None: until the end of the Slurm job, if Slurm has said when that is.
    pub signal_notice: Option<Duration>,
}

/// The notices of all sources of a host. Dropping it ends the sources.
#[derive(Debug)]
pub struct Notices {
    receiver: mpsc::Receiver<Notice>,
    approval: Option<azure::Approval>,
    /// The tasks of the sources, which end when this is dropped.
    _tasks: JoinSet<()>,
}

impl Notices {
    /// Starts all sources. Call it in a runtime of tokio. From now on SIGUSR1 does not end the process.
    pub fn listen(sources: Sources) -> Self {
        let (sender, receiver) = sender::channel();
        let clouds = Clouds::here();
        let approval = clouds.azure.as_ref().map(azure::Approval::new);
        let mut tasks = JoinSet::new();
        tasks.spawn(signals::watch(sources.signal_notice, sender.clone()).in_current_span());
        if let Some(base) = clouds.ec2 {
            tasks.spawn(ec2::watch(base, sender.clone()).in_current_span());
        }
        if let Some(base) = clouds.gce {
            tasks.spawn(gce::watch(base, sender.clone()).in_current_span());
        }
        if let Some(approval) = approval.clone() {
            tasks.spawn(azure::watch(approval, sender.clone()).in_current_span());
        }
        if let Some(path) = sources.file {
            tasks.spawn(file::watch(path, sender).in_current_span());
        }
        Self {
            receiver,
            approval,
            _tasks: tasks,
        }
    }

    /// Polls for the next notice.
    pub fn poll_next(
        &mut self,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Notice>> {
        self.receiver.poll_recv(cx)
    }

    /// Reports to the cloud that the job has left the host. Takes some seconds at most.
    pub async fn host_left(&self) {
        if let Some(approval) = &self.approval {
            approval.approve().await;
        }
    }
}
