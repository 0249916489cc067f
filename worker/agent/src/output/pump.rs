//! From the pipes of processes to the queue.

use std::{cell::RefCell, collections::BTreeMap, io, os::fd::OwnedFd, rc::Rc};

use elasticrun_protocol::{Process, control};
use tokio::{
    io::AsyncReadExt,
    net::unix::pipe,
    sync::{mpsc, watch},
    task::JoinSet,
    time::timeout,
};

use super::{
    LAST_LINES,
    lines::{self, Lines, Tail},
    queue::Queue,
};
use crate::{inbox::Note, process::SharedRank};

const CHUNK: usize = 64 * 1024;

/// The pumps of all processes, living and dead.
pub(super) struct Pumps {
    queue: Rc<Queue>,
    inbox: mpsc::Sender<Note>,
    /// Tells the pumps of a process that it has ended.
    living: BTreeMap<Process, watch::Sender<bool>>,
    tasks: JoinSet<()>,
}

impl Pumps {
    pub(super) fn new(queue: Rc<Queue>, inbox: mpsc::Sender<Note>) -> Self {
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
                Err(error) => tracing::error!(%error, %process, "its output cannot be read"),
            }
        }
        let inbox = self.inbox.clone();
        self.tasks
            .spawn_local(see_it_end(process, watch, streams, tail, inbox));
        while self.tasks.try_join_next().is_some() {}
    }

    /// Its leader has ended.
    pub(super) fn ended(&mut self, process: Process) {
        match self.living.remove(&process) {
            Some(ended) => {
                ended.send_replace(true);
            }
            None => tracing::error!(%process, "its output was never read"),
        }
    }

    /// The agent ends, and with it who still holds a pipe.
    pub(super) fn end(&mut self) {
        self.tasks.abort_all();
    }
}

async fn see_it_end(
    process: Process,
    mut ended: watch::Receiver<bool>,
    mut streams: JoinSet<()>,
    tail: Rc<RefCell<Tail>>,
    inbox: mpsc::Sender<Note>,
) {
    // An error means that the agent ends.
    if ended.wait_for(|ended| *ended).await.is_err() {
        return;
    }
    let all = async { while streams.join_next().await.is_some() {} };
    if timeout(LAST_LINES, all).await.is_err() {
        tracing::debug!(%process, "a child of it still holds its output");
    }
    let tail = tail.borrow_mut().take();
    // Fails only at the agent's own end.
    let _ = inbox.send(Note::OutputEnded { process, tail }).await;
    while streams.join_next().await.is_some() {}
}

struct Pump {
    process: Process,
    rank: SharedRank,
    stderr: bool,
    ended: watch::Receiver<bool>,
    queue: Rc<Queue>,
    tail: Rc<RefCell<Tail>>,
    dropped: u64,
}

impl Pump {
    async fn run(mut self, mut pipe: pipe::Receiver) {
        let mut lines = Lines::default();
        let mut chunk = vec![0; CHUNK];
        loop {
            match pipe.read(&mut chunk).await {
                Ok(0) => break,
                Ok(count) => {
                    let whole = lines.push(&chunk[..count]);
                    self.deliver(whole).await;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    tracing::warn!(%error, process = %self.process, "its output ends early");
                    break;
                }
            }
        }
        self.deliver(lines.rest()).await;
        self.deliver_note();
    }

    async fn deliver(&mut self, text: Vec<u8>) {
        if text.is_empty() {
            return;
        }
        self.tail.borrow_mut().push(&text);
        if self.finds_room().await {
            self.deliver_note();
            let text = String::from_utf8_lossy(&text).into_owned();
            self.queue.push(self.output(text));
        } else {
            self.dropped += lines::count(&text);
        }
    }

    /// Waits for room as long as the process lives and the queue is patient.
    async fn finds_room(&mut self) -> bool {
        if *self.ended.borrow() {
            return self.queue.has_room_for_last();
        }
        tokio::select! {
            room = self.queue.wait_for_room() => room,
            _ = self.ended.wait_for(|ended| *ended) => self.queue.has_room_for_last(),
        }
    }

    /// Says how many lines were dropped, if some were.
    fn deliver_note(&mut self) {
        if self.dropped > 0 && self.queue.has_room_for_last() {
            let note = format!("[elasticrun] {} lines dropped\n", self.dropped);
            self.queue.push(self.output(note));
            self.dropped = 0;
        }
    }

    fn output(&self, text: String) -> control::Output {
        control::Output {
            process: self.process,
            rank: self.rank.get(),
            stderr: self.stderr,
            text,
        }
    }
}
