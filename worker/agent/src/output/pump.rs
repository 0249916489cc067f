//! Moves output from the pipes of processes to the queue.

use std::{cell::RefCell, collections::BTreeMap, io, os::fd::OwnedFd, rc::Rc};

use elasticrun_protocol::{Process, control};
use tokio::{
    io::AsyncReadExt,
    net::unix::pipe,
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};

use super::{DRAIN_TIMEOUT, pieces::Pieces, queue::Queue, tail::Tail};
use crate::{inbox::InboxMessage, process::SharedRank, spans};

const CHUNK: usize = 64 * 1024;

/// The pumps of all processes, running and ended.
pub(super) struct Pumps {
    queue: Rc<Queue>,
    inbox: mpsc::Sender<InboxMessage>,
    /// For each running process, the channel that tells its pumps that it has ended.
    living: BTreeMap<Process, watch::Sender<bool>>,
    tasks: JoinSet<()>,
}

impl Pumps {
    pub(super) fn new(queue: Rc<Queue>, inbox: mpsc::Sender<InboxMessage>) -> Self {
        Self {
            queue,
            inbox,
            living: BTreeMap::new(),
            tasks: JoinSet::new(),
        }
    }

    /// Pumps both streams of a process until their end.
    pub(super) fn read(
        &mut self,
        process: Process,
        rank: SharedRank,
        stdout: OwnedFd,
        stderr: OwnedFd,
    ) {
        let (ended, watch) = watch::channel(false);
        self.living.insert(process, ended);
        let tail = Rc::new(RefCell::new(Tail::default()));
        let mut streams = JoinSet::new();
        for (stderr, fd) in [(false, stdout), (true, stderr)] {
            let pump = Pump {
                process,
                rank: rank.clone(),
                stderr,
                ended: watch.clone(),
                queue: Rc::clone(&self.queue),
                tail: Rc::clone(&tail),
                dropped: 0,
            };
            match pipe::Receiver::from_owned_fd(fd) {
                Ok(pipe) => {
                    streams.spawn_local(pump.run(pipe));
                }
                Err(error) => spans::worker(process)
                    .in_scope(|| tracing::error!(%error, "its output cannot be read")),
            }
        }
        let inbox = self.inbox.clone();
        self.tasks
            .spawn_local(report_end(process, watch, streams, tail, inbox));
        while self.tasks.try_join_next().is_some() {}
    }

    /// Reports that the leader of a process has ended.
    pub(super) fn ended(&mut self, process: Process) {
        match self.living.remove(&process) {
            Some(ended) => {
                ended.send_replace(true);
            }
            None => {
                spans::worker(process).in_scope(|| tracing::error!("its output was never read"))
            }
        }
    }

    /// Ends all pumps, at the agent's end. The processes that still hold a pipe end with the agent.
    pub(super) fn end(&mut self) {
        self.tasks.abort_all();
    }
}

async fn report_end(
    process: Process,
    mut ended: watch::Receiver<bool>,
    mut streams: JoinSet<()>,
    tail: Rc<RefCell<Tail>>,
    inbox: mpsc::Sender<InboxMessage>,
) {
    // An error means that the agent ends.
    if ended.wait_for(|ended| *ended).await.is_err() {
        return;
    }
    let all = async { while streams.join_next().await.is_some() {} };
    if timeout(DRAIN_TIMEOUT, all).await.is_err() {
        spans::worker(process).in_scope(|| tracing::debug!("a child of it still holds its output"));
    }
    let tail = tail.borrow_mut().take();
    // Fails only at the agent's own end.
    let _ = inbox
        .send(InboxMessage::OutputEnded { process, tail })
        .await;
    while streams.join_next().await.is_some() {}
}

struct Pump {
    process: Process,
    rank: SharedRank,
    stderr: bool,
    ended: watch::Receiver<bool>,
    queue: Rc<Queue>,
    tail: Rc<RefCell<Tail>>,
    /// Bytes dropped since the last piece that was queued.
    dropped: u64,
}

impl Pump {
    async fn run(mut self, mut pipe: pipe::Receiver) {
        let mut pieces = Pieces::default();
        let mut chunk = vec![0; CHUNK];
        loop {
            let read = pipe.read(&mut chunk);
            let read = match pieces.due() {
                None => read.await,
                Some(due) => match timeout_at(due, read).await {
                    Ok(read) => read,
                    Err(_) => {
                        self.deliver(pieces.take()).await;
                        continue;
                    }
                },
            };
            match read {
                Ok(0) => break,
                Ok(count) => {
                    let piece = pieces.push(&chunk[..count], Instant::now());
                    self.deliver(piece).await;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    spans::worker(self.process)
                        .in_scope(|| tracing::warn!(%error, "its output ends early"));
                    break;
                }
            }
        }
        self.deliver(pieces.take()).await;
        if self.dropped > 0 {
            // Reports the number of bytes.
            self.push(Vec::new());
        }
    }

    async fn deliver(&mut self, piece: Vec<u8>) {
        if piece.is_empty() {
            return;
        }
        self.tail.borrow_mut().push(self.stderr, &piece);
        if self.has_capacity().await {
            self.push(piece);
        } else {
            self.dropped += piece.len() as u64;
        }
    }

    /// Waits for capacity while the process runs, up to the timeout of the queue.
    async fn has_capacity(&mut self) -> bool {
        if *self.ended.borrow() {
            return self.queue.has_capacity_for_ended();
        }
        tokio::select! {
            fits = self.queue.wait_for_capacity() => fits,
            _ = self.ended.wait_for(|ended| *ended) => self.queue.has_capacity_for_ended(),
        }
    }

    fn push(&mut self, piece: Vec<u8>) {
        let mut output = control::Output::new(self.process, self.rank.get(), self.stderr, piece);
        output.dropped = std::mem::take(&mut self.dropped);
        self.queue.push(output);
    }
}
