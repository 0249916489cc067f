//! What a person may ask of a running job: `elasticrun drain HOST`.
//!
//! The driver listens on a Unix socket in the directory of this user's runs (0700): who may enter it may ask.
//! A request is one line of JSON, and so is its answer; a connection carries one of each.
//!
//! The socket goes with its driver. One that a killed driver left behind answers nobody and is removed by
//! whoever looks for a job next.

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
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest request or answer in bytes.
const LONGEST: u64 = 64 << 10;

/// What the name of a socket begins and ends with; between is the run's id.
const NAME: (&str, &str) = ("driver-", ".sock");

/// Something that a person asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Leave a host at a common commit and do not use it again.
    Drain {
        /// Which host.
        host: HostId,
        /// Time until it goes, in milliseconds; unknown if missing.
        within_ms: Option<u64>,
    },
}

/// What became of it: a line for a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It is done, or begun.
    Done(String),
    /// It is not, and why.
    Refused(String),
}

/// A request and who waits for its answer.
#[derive(Debug)]
pub struct Asked {
    /// What for.
    pub request: Request,
    /// Where the answer goes.
    pub answer: oneshot::Sender<Answer>,
}

/// Requests that the job has not answered yet.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    asked: u64,
    waiting: BTreeMap<u64, Waiting>,
}

#[derive(Debug)]
struct Waiting {
    /// What is said when it is granted.
    granted: String,
    answer: oneshot::Sender<Answer>,
}

impl Pending {
    /// The event by which the job hears of a request.
    pub(crate) fn ask(&mut self, asked: Asked) -> Event {
        let Request::Drain { host, within_ms } = asked.request;
        self.asked += 1;
        let waiting = Waiting {
            granted: format!("{host} is being left"),
            answer: asked.answer,
        };
        self.waiting.insert(self.asked, waiting);
        let within = within_ms.map(Duration::from_millis);
        Event::Requested {
            id: self.asked,
            request: core::Request::Drain { host, within },
        }
    }

    /// The job has answered.
    pub(crate) fn answer(&mut self, id: u64, answer: Result<(), Refusal>) {
        if let Some(waiting) = self.waiting.remove(&id) {
            let answer = match answer {
                Ok(()) => Answer::Done(waiting.granted),
                Err(why) => Answer::Refused(why.to_string()),
            };
            // Who asked may have gone.
            let _ = waiting.answer.send(answer);
        }
    }
}

/// A socket of this driver; dropping it removes it.
#[derive(Debug)]
pub struct Socket {
    path: PathBuf,
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Another may have removed it.
        let _ = fs::remove_file(&self.path);
    }
}

/// Listens for requests to this run until `stop`.
///
/// # Errors
/// The socket cannot be made.
pub fn serve(
    run_id: &str,
    sender: mpsc::Sender<Asked>,
    stop: CancellationToken,
    tasks: &TaskTracker,
) -> anyhow::Result<Socket> {
    let path = elasticrun_agent::runs_directory()?.join(format!("{}{run_id}{}", NAME.0, NAME.1));
    let listener = UnixListener::bind(&path).with_context(|| path.display().to_string())?;
    let connections = tasks.clone();
    tasks.spawn(async move {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = stop.cancelled() => return,
            };
            // Out of descriptors, most likely: who asked asks again.
            let Ok((stream, _)) = accepted else { continue };
            let sender = sender.clone();
            connections.spawn(async move {
                if let Ok(Err(error)) = timeout(PATIENCE, converse(stream, sender)).await {
                    tracing::debug!(%error, "a request to the driver failed");
                }
            });
        }
    });
    Ok(Socket { path })
}

async fn converse(
    stream: tokio::net::UnixStream,
    sender: mpsc::Sender<Asked>,
) -> anyhow::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut line = String::new();
    let mut read = tokio::io::BufReader::new(read.take(LONGEST));
    read.read_line(&mut line).await?;
    let answer = match serde_json::from_str(&line) {
        Ok(request) => {
            let (answer, answered) = oneshot::channel();
            sender.send(Asked { request, answer }).await?;
            answered.await?
        }
        Err(error) => Answer::Refused(format!("this driver does not know such a request: {error}")),
    };
    let mut line = serde_json::to_vec(&answer)?;
    line.push(b'\n');
    write.write_all(&line).await?;
    Ok(())
}

/// Asks the run of this id, or the only one of this user on this machine, and gives its answer.
///
/// # Errors
/// No such run, or several; it does not answer, or refuses.
pub fn ask(run: Option<&str>, request: &Request) -> anyhow::Result<String> {
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
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    Ok(serde_json::from_str(&answer)?)
}

/// The drivers of this user on this machine, by run.
fn running() -> anyhow::Result<Vec<(String, UnixStream)>> {
    let directory = elasticrun_agent::runs_directory()?;
    let mut runs = Vec::new();
    for entry in fs::read_dir(&directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        let Some(id) = run_of(&path) else { continue };
        match UnixStream::connect(&path) {
            Ok(stream) => runs.push((id.to_owned(), stream)),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                let _ = fs::remove_file(&path);
            }
            Err(_) => {}
        }
    }
    runs.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(runs)
}

fn run_of(path: &Path) -> Option<&str> {
    let name = path.file_name()?.to_str()?;
    name.strip_prefix(NAME.0)?.strip_suffix(NAME.1)
}
