//! The admin socket: requests of an operator to a running job, such as `elasticrun drain HOST`.
//!
//! The driver listens on a Unix socket in the directory of this user's runs (0700). Every process that can open the
//! directory may send requests. A request is one line of JSON, and so is its answer. A connection carries one of each.
//!
//! The driver removes its socket when it ends. A killed driver leaves its socket behind. The next driver removes it, and so
//! does the next command that looks for a job.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, bail};
use elasticrun_core::{self as core, Event, Refusal};
use elasticrun_protocol::HostId;
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt},
    net::UnixListener,
    sync::{mpsc, oneshot},
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// How long either side waits for the other.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The size limit of a request or an answer, in bytes.
const MAX_LINE: u64 = 64 << 10;

/// Prefix and suffix of a socket's name. The run's id is between them.
const NAME: (&str, &str) = ("driver-", ".sock");

/// A request of an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Drain a host: its workers leave at a common commit, and the job does not use it again.
    Drain {
        /// The host.
        host: HostId,
        /// Time until the host goes away, in milliseconds. `None` if it is unknown.
        within_ms: Option<u64>,
    },
}

/// The result of a request, as one line for the operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The request is granted.
    Done(String),
    /// The request is refused, with the reason.
    Refused(String),
}

/// A request with the channel for its answer.
#[derive(Debug)]
pub struct AdminRequest {
    /// The request.
    pub request: Request,
    /// Takes the answer.
    pub answer: oneshot::Sender<Answer>,
}

/// Requests that the job has not answered yet.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// Number of the last request.
    last_id: u64,
    waiting: BTreeMap<u64, Waiting>,
}

#[derive(Debug)]
struct Waiting {
    /// The line that answers a granted request.
    granted: String,
    answer: oneshot::Sender<Answer>,
}

impl Pending {
    /// Registers a request and returns the event for the job.
    pub(crate) fn register(&mut self, received: AdminRequest) -> Event {
        let Request::Drain { host, within_ms } = received.request;
        self.last_id += 1;
        let waiting = Waiting {
            granted: format!("{host} is being left"),
            answer: received.answer,
        };
        self.waiting.insert(self.last_id, waiting);
        let within = within_ms.map(Duration::from_millis);
        Event::Requested {
            id: self.last_id,
            request: core::Request::Drain { host, within },
        }
    }

    /// Passes the answer of the job on.
    pub(crate) fn answer(&mut self, id: u64, answer: Result<(), Refusal>) {
        if let Some(waiting) = self.waiting.remove(&id) {
            let answer = match answer {
                Ok(()) => Answer::Done(waiting.granted),
                Err(why) => Answer::Refused(why.to_string()),
            };
            // The requester may have closed its connection.
            let _ = waiting.answer.send(answer);
        }
    }
}

/// The socket of this driver. Dropping it removes the file.
#[derive(Debug)]
pub struct Socket {
    path: PathBuf,
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Another process may have removed it.
        let _ = fs::remove_file(&self.path);
    }
}

/// Serves requests to this run until `stop`.
///
/// # Errors
/// The socket cannot be created.
pub fn serve(
    run_id: &str,
    sender: mpsc::Sender<AdminRequest>,
    stop: CancellationToken,
    tasks: &TaskTracker,
) -> anyhow::Result<Socket> {
    let path = elasticrun_agent::runs_directory()?.join(format!("{}{run_id}{}", NAME.0, NAME.1));
    let listener = bind(&path).with_context(|| path.display().to_string())?;
    let connections = tasks.clone();
    tasks.spawn(async move {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = stop.cancelled() => return,
            };
            // Most likely out of descriptors: the requester retries.
            let Ok((stream, _)) = accepted else { continue };
            let sender = sender.clone();
            connections.spawn(async move {
                if let Ok(Err(error)) = timeout(TIMEOUT, serve_one(stream, sender)).await {
                    tracing::debug!(%error, "a request to the driver failed");
                }
            });
        }
    });
    Ok(Socket { path })
}

/// Listens at a path. A driver of the same run that was killed may have left its socket there.
fn bind(path: &Path) -> io::Result<UnixListener> {
    let error = match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => error,
        bound => return bound,
    };
    match UnixStream::connect(path) {
        Err(refused) if refused.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path)?;
            UnixListener::bind(path)
        }
        _ => Err(error),
    }
}

/// Removes what killed drivers and agents of this user have left on this machine. Blocks.
pub fn remove_stale() {
    elasticrun_agent::remove_stale_runs();
    if let Err(error) = running() {
        tracing::debug!(%error, "sockets of killed drivers stay");
    }
}

/// A socket that takes no connection is that of a killed driver if it is older. A driver that starts makes its socket first
/// and listens then.
const STARTS_WITHIN: Duration = Duration::from_secs(10);

/// Serves the one request of a connection.
async fn serve_one(
    stream: tokio::net::UnixStream,
    sender: mpsc::Sender<AdminRequest>,
) -> anyhow::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut line = String::new();
    let mut read = tokio::io::BufReader::new(read.take(MAX_LINE));
    if read.read_line(&mut line).await? == 0 {
        // Another driver or command asked only whether this one listens.
        return Ok(());
    }
    let answer = match serde_json::from_str(&line) {
        Ok(request) => {
            let (answer, answered) = oneshot::channel();
            sender.send(AdminRequest { request, answer }).await?;
            answered.await?
        }
        Err(error) => Answer::Refused(format!("this driver does not know such a request: {error}")),
    };
    let mut line = serde_json::to_vec(&answer)?;
    line.push(b'\n');
    write.write_all(&line).await?;
    Ok(())
}

/// Sends a request to the run with this id, else to the only run of this user on this machine. Returns its answer.
///
/// # Errors
/// There is no such run, or several. The run does not answer, or refuses.
pub fn request(run: Option<&str>, request: &Request) -> anyhow::Result<String> {
    let mut runs = running()?;
    if let Some(wanted) = run {
        runs.retain(|(id, _)| id == wanted);
    }
    let names: Vec<_> = runs.iter().map(|(id, _)| id.clone()).collect();
    let (id, stream) = match (runs.pop(), runs.is_empty(), run) {
        (Some(only), true, _) => only,
        (Some(_), false, _) => bail!(
            "several jobs run: choose one with --run {}",
            names.join(" or --run ")
        ),
        (None, _, Some(wanted)) => {
            bail!("--run {wanted}: no such job of this user runs on this machine")
        }
        (None, _, None) => {
            bail!("no job of this user runs on this machine: ask where its driver runs")
        }
    };
    let answer = exchange(stream, request).with_context(|| format!("run {id} does not answer"))?;
    match answer {
        Answer::Done(line) => Ok(line),
        Answer::Refused(why) => bail!(why),
    }
}

fn exchange(mut stream: UnixStream, request: &Request) -> anyhow::Result<Answer> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    Ok(serde_json::from_str(&answer)?)
}

/// Connections to the drivers of this user on this machine, by run id.
fn running() -> anyhow::Result<Vec<(String, UnixStream)>> {
    running_in(&elasticrun_agent::runs_directory()?, STARTS_WITHIN)
}

/// Connections to the drivers with a socket in this directory. Removes sockets of this age that nobody listens at.
fn running_in(directory: &Path, age: Duration) -> anyhow::Result<Vec<(String, UnixStream)>> {
    let mut runs = Vec::new();
    for entry in fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        let Some(id) = run_id(&path) else { continue };
        match UnixStream::connect(&path) {
            Ok(stream) => runs.push((id.to_owned(), stream)),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && is_of(&path, age) => {
                let _ = fs::remove_file(&path);
            }
            Err(_) => {}
        }
    }
    runs.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(runs)
}

/// Whether a file was changed at least so long ago.
fn is_of(path: &Path, age: Duration) -> bool {
    let changed = fs::symlink_metadata(path).and_then(|of_file| of_file.modified());
    changed.is_ok_and(|at| at.elapsed().unwrap_or_default() >= age)
}

fn run_id(path: &Path) -> Option<&str> {
    let name = path.file_name()?.to_str()?;
    name.strip_prefix(NAME.0)?.strip_suffix(NAME.1)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn the_socket_of_a_killed_driver_of_the_run_is_replaced() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("driver-r.sock");
        drop(UnixListener::bind(&path).expect("a socket"));
        let listener = bind(&path).expect("nobody listens at it");
        let error = bind(&path).expect_err("a driver listens");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        drop(listener);
    }

    #[test]
    fn sockets_of_killed_drivers_are_removed() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |run| directory.path().join(format!("{}{run}{}", NAME.0, NAME.1));
        let _lives = UnixListener::bind(path("lives")).expect("a socket");
        // A closed listener leaves its file, as a killed one does.
        drop(UnixListener::bind(path("killed")).expect("a socket"));
        let runs = |age| {
            let runs = running_in(directory.path(), age).expect("it can be read");
            runs.into_iter().map(|(run, _)| run).collect::<Vec<_>>()
        };
        assert_eq!(runs(Duration::from_secs(3600)), ["lives"]);
        assert!(path("killed").exists(), "its driver may be about to listen");
        assert_eq!(runs(Duration::ZERO), ["lives"]);
        assert!(path("lives").exists() && !path("killed").exists());
    }
}
