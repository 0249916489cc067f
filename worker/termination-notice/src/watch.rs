//! All sources of a host, as one.

use std::path::PathBuf;

use elasticrun_protocol::Notice;
use tokio::{sync::mpsc, task::JoinSet};

use crate::{azure, cloud::Clouds, ec2, file, gce, signals};

/// Notices that may wait for the reader.
const WAITING: usize = 16;

/// What to watch beside the cloud that the machine is of and SIGUSR1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// A file whose appearance is a notice; its text may be the seconds that are left.
    pub file: Option<PathBuf>,
}

/// What the sources of a host say. Dropping it ends them.
#[derive(Debug)]
pub struct Notices {
    receiver: mpsc::Receiver<Notice>,
    approval: Option<azure::Approval>,
    /// Ended when this is dropped.
    _tasks: JoinSet<()>,
}

impl Notices {
    /// Begins to listen. Call it in a runtime of tokio; SIGUSR1 is handled from now on.
    pub fn listen(sources: Sources) -> Self {
        let (sender, receiver) = mpsc::channel(WAITING);
        let sender = Sender(sender);
        let clouds = Clouds::here();
        let approval = clouds.azure.as_ref().map(azure::Approval::of);
        let mut tasks = JoinSet::new();
        tasks.spawn(signals::watch(sender.clone()));
        if let Some(at) = clouds.ec2 {
            tasks.spawn(ec2::watch(at, sender.clone()));
        }
        if let Some(at) = clouds.gce {
            tasks.spawn(gce::watch(at, sender.clone()));
        }
        if let Some(approval) = approval.clone() {
            tasks.spawn(azure::watch(approval, sender.clone()));
        }
        if let Some(path) = sources.file {
            tasks.spawn(file::watch(path, sender));
        }
        Self {
            receiver,
            approval,
            _tasks: tasks,
        }
    }

    /// The next notice. Cancel-safe; it waits for ever if none comes.
    pub fn poll_next(
        &mut self,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Notice>> {
        self.receiver.poll_recv(cx)
    }

    /// The host is left: whoever waits for that is told. Takes some seconds at most.
    pub async fn host_left(&self) {
        if let Some(approval) = &self.approval {
            approval.approve().await;
        }
    }
}

/// Where sources tell what they hear.
#[derive(Clone, Debug)]
pub(crate) struct Sender(mpsc::Sender<Notice>);

impl Sender {
    pub(crate) fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    pub(crate) async fn tell(&self, notice: Notice) {
        // The agent ends: nobody has to know any more.
        let _ = self.0.send(notice).await;
    }
}
