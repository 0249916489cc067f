//! A node of several that elect the one that runs the driver (`elasticrun torchrun --rdzv etcd://...`).
//!
//! ```text
//! node (this process)
//!   |-- agent     joins the driver that leads, on whatever node that is
//!   '-- driver    that of a new run on the node that began the job, else one that waits: resume RUN --standby
//! ```
//! - There is no other engine: the driver that leads the run in etcd runs the job, as with `--journal etcd://...`.
//! - A node that gets SIGTERM or SIGINT leaves: its agent drains, and another driver takes over if this one led. The last node ends the
//!   job instead.
//! - A child that dies is started again. The workers of a node whose driver dies train on.
//!
//! Not promised: that the children end with a node that is killed. They go on until the end of the job.

mod children;
mod name;

use std::{
    collections::BTreeSet,
    fs,
    io::{self, Write},
    path::PathBuf,
    process::ExitStatus,
    time::Duration,
};

use anyhow::Context as _;
use nix::sys::signal::Signal;
use tokio::time::{Instant, sleep_until};

use self::{
    children::{Child, Fate},
    name::NodeName,
};
use crate::{
    cli::ElectedRequest,
    exit, join_token,
    journal::{self, Meeting, NodeJob, Seen},
    signals::{Signals, StopSignals, UserSignal},
};

/// How long a node waits for another one that has begun the job, and has no driver yet. Then it begins the job itself.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(15);

/// The longest time between two looks at a run. A watch may be silent for ever.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// How long an agent that was dismissed waits for the end of the job, and an agent of a job that has ended for its own end.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// Drivers of a run that wait, at most. The driver that leads names all of them to all agents.
const MAX_STANDBYS: usize = 3;

/// Runs this node until its job ends, or it leaves the job. Returns the exit code.
///
/// # Errors
/// etcd cannot be used, or a child cannot be started.
pub fn run(request: ElectedRequest) -> anyhow::Result<u8> {
    for note in &request.notes {
        say(note);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let ended = runtime.block_on(async {
        let signals = Signals::listen(&request.stop_signals)?;
        Node::join(request).await?.run(signals).await
    });
    // A lookup of a name may take long.
    runtime.shutdown_background();
    ended
}

/// What has happened.
enum Event {
    Signal(UserSignal),
    DriverEnded(ExitStatus),
    AgentEnded(ExitStatus),
    /// The run may have changed, or a pause is over.
    Look,
}

struct Node {
    request: ElectedRequest,
    meeting: Meeting,
    job: NodeJob,
    name: NodeName,
    token_file: PathBuf,
    /// The addresses of all drivers, for the agent.
    driver_file: PathBuf,
    seen: Seen,
    /// Since when this node knows the job.
    since: Instant,
    driver: Child,
    agent: Child,
    /// When a node whose agent was dismissed leaves, unless the job ends before.
    leaves_at: Option<Instant>,
    /// The signal by which the user ends this node.
    stopped_by: Option<i32>,
    told: BTreeSet<String>,
}

impl Node {
    async fn join(request: ElectedRequest) -> anyhow::Result<Self> {
        let meeting = Meeting::new(&request.etcd, &request.id).map_err(one_line)?;
        let job = meeting.join(None).await.map_err(one_line)?;
        let directory = journal::state_directory()
            .context("neither XDG_STATE_HOME nor HOME is set")?
            .join("nodes");
        fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
        let name = NodeName::take(&directory, &request.id)?;
        let (token_file, driver_file) = (name.path("token"), name.path("drivers"));
        join_token::write(&token_file, &job.token)?;
        Ok(Self {
            request,
            meeting,
            job,
            name,
            token_file,
            driver_file,
            seen: Seen::default(),
            since: Instant::now(),
            driver: Child::default(),
            agent: Child::default(),
            leaves_at: None,
            stopped_by: None,
            told: BTreeSet::new(),
        })
    }

    async fn run(mut self, mut signals: Signals) -> anyhow::Result<u8> {
        let ended = self.work(&mut signals).await;
        if ended.is_err() {
            self.agent.signal(Signal::SIGTERM);
            self.driver.signal(Signal::SIGKILL);
        }
        for file in [&self.token_file, &self.driver_file] {
            // It may not have been written.
            let _ = fs::remove_file(file);
        }
        ended
    }

    async fn work(&mut self, signals: &mut Signals) -> anyhow::Result<u8> {
        if self.job.is_new {
            self.start_first()?;
        }
        loop {
            self.look().await?;
            self.start_what_is_missing().await?;
            let ended = match self.next_event(signals).await {
                Event::Look => None,
                Event::Signal(UserSignal::ForAgents(number)) => {
                    self.agent.signal_number(number);
                    None
                }
                Event::Signal(UserSignal::Stop(number)) => self.stop(number, signals).await,
                Event::DriverEnded(status) => self.driver_ended(status).await?,
                Event::AgentEnded(status) => self.agent_ended(status).await?,
            };
            if let Some(code) = ended {
                return Ok(code);
            }
            if self.leaves_at.is_some_and(|at| at <= Instant::now()) {
                // An operator has drained this host, or it was lost for the job.
                self.hand_over().await;
                return Ok(exit::SUCCESS);
            }
        }
    }

    async fn next_event(&mut self, signals: &mut Signals) -> Event {
        let pause = [
            self.driver.paused_until(),
            self.agent.paused_until(),
            self.leaves_at,
        ];
        let pause = pause
            .into_iter()
            .flatten()
            .filter(|at| *at > Instant::now())
            .min();
        let limit = match self.seen.has_begun {
            true => LOOK_INTERVAL,
            false => LOOK_INTERVAL / 20,
        };
        let pause_ends = async {
            match pause {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            signal = signals.next() => Event::Signal(signal),
            status = self.driver.ended() => Event::DriverEnded(status),
            status = self.agent.ended() => Event::AgentEnded(status),
            () = pause_ends => Event::Look,
            () = self.meeting.changed(&self.job.run, &self.seen, limit) => Event::Look,
        }
    }

    /// Reads what the run is. A cluster that does not answer ends no node that has children.
    async fn look(&mut self) -> anyhow::Result<()> {
        match self.meeting.look(&self.job.run).await {
            Ok(seen) => {
                let is_new = seen.endpoints != self.seen.endpoints;
                if is_new && !seen.endpoints.is_empty() {
                    self.write_drivers(&seen.endpoints);
                }
                self.seen = seen;
            }
            Err(error) if self.driver.runs() || self.agent.runs() => {
                tracing::debug!(%error, "the run cannot be seen");
            }
            Err(error) => return Err(one_line(error)),
        }
        Ok(())
    }

    /// Writes where the driver is. An agent that the last driver has told of no standby driver finds the next one there.
    fn write_drivers(&mut self, endpoints: &[String]) {
        let new = self.name.path("drivers.new");
        let written = fs::write(&new, endpoints.join("\n"))
            .and_then(|()| fs::rename(&new, &self.driver_file));
        if let Err(error) = written {
            // Agents also know the standby drivers that their driver has named.
            let file = self.driver_file.display();
            self.say_once(&format!("{file} cannot be written: {error}"));
        }
    }

    /// Starts the driver of a new run, by the words of the user.
    fn start_first(&mut self) -> anyhow::Result<()> {
        let mut words = vec![
            "torchrun".into(),
            "--as-driver".into(),
            self.job.run.clone().into(),
        ];
        words.extend(["--join-token-file".into(), self.token_file.clone().into()]);
        words.extend(self.request.words.iter().cloned());
        self.driver.start(&words).context("cannot start a driver")
    }

    async fn start_what_is_missing(&mut self) -> anyhow::Result<()> {
        let run = self.job.run.clone();
        if !self.seen.has_begun && !self.driver.runs() {
            if self.since.elapsed() > BEGIN_TIMEOUT {
                self.begin_instead().await?;
            } else if self.since.elapsed() > BEGIN_TIMEOUT / 5 {
                self.say_once("another node has begun this job; waiting for its driver");
            }
            return Ok(());
        }
        let waits = self.seen.standbys < MAX_STANDBYS || self.seen.has_ended;
        if self.seen.has_begun && waits && self.driver.may_start() {
            let journal = self.request.etcd.to_string();
            let words = ["resume", &run, "--standby", "--journal", &journal].map(Into::into);
            self.driver.start(&words).context("cannot start a driver")?;
        }
        let joins = !self.seen.endpoints.is_empty() && !self.seen.has_ended;
        if joins && self.leaves_at.is_none() && self.agent.may_start() {
            let slots = self.request.slots.to_string();
            let drivers = self.seen.endpoints.join(",");
            let mut words = ["agent", "--one-run", "--join", &drivers]
                .map(Into::into)
                .to_vec();
            words.extend(["--slots", &slots, "--host", self.name.as_str()].map(Into::into));
            words.extend(["--join-token-file".into(), self.token_file.clone().into()]);
            words.extend(["--driver-file".into(), self.driver_file.clone().into()]);
            self.agent.start(&words).context("cannot start an agent")?;
        }
        Ok(())
    }

    /// Begins the job in the place of a node that has begun it and died.
    async fn begin_instead(&mut self) -> anyhow::Result<()> {
        let job = self
            .meeting
            .join(Some(&self.job.run))
            .await
            .map_err(one_line)?;
        join_token::write(&self.token_file, &job.token)?;
        (self.job, self.since) = (job, Instant::now());
        match self.job.is_new {
            true => self.start_first(),
            false => Ok(()),
        }
    }

    /// Handles the end of the driver of this node. Gives the exit code of the job if it has ended.
    async fn driver_ended(&mut self, status: ExitStatus) -> anyhow::Result<Option<u8>> {
        let was_first = std::mem::take(&mut self.job.is_new) && !self.seen.has_begun;
        match Fate::of(status) {
            Fate::Code(code) if was_first || !matches!(code, exit::JOURNAL | exit::REPLACED) => {
                self.end_agent().await;
                self.meeting
                    .close(&self.job.run, self.request.close_timeout)
                    .await;
                Ok(Some(code))
            }
            Fate::Signal(number) if self.stopped_by.is_some() => {
                if was_first {
                    // It has begun nothing.
                    self.meeting.close(&self.job.run, Duration::ZERO).await;
                }
                Ok(Some(exit::stopped_by(number)))
            }
            Fate::Code(_) | Fate::Signal(_) => {
                if !self.driver.pause() && !self.agent.runs() {
                    anyhow::bail!("the driver of this node ends again and again");
                }
                Ok(None)
            }
        }
    }

    /// Handles the end of the agent of this node.
    async fn agent_ended(&mut self, status: ExitStatus) -> anyhow::Result<Option<u8>> {
        match Fate::of(status) {
            Fate::Code(exit::SUCCESS) => self.leaves_at = Some(Instant::now() + END_TIMEOUT),
            // The driver refuses it for good: it has another number of workers. It has said so.
            Fate::Code(exit::USAGE) => {
                self.hand_over().await;
                return Ok(Some(exit::USAGE));
            }
            _ => {
                if !self.agent.pause() {
                    anyhow::bail!("the agent of this node ends again and again");
                }
            }
        }
        Ok(None)
    }

    /// Ends this node, as the user asks: it leaves the job, or ends the job if no other node is left. Gives the exit code, unless the
    /// driver has to end the job first.
    async fn stop(&mut self, number: i32, signals: &mut Signals) -> Option<u8> {
        self.stopped_by = Some(number);
        if self.others().await == 0 && self.driver.runs() {
            // The driver has handlers of its own.
            self.driver.signal(match Signal::try_from(number) {
                Ok(signal) if StopSignals::default().contains(number) => signal,
                _ => Signal::SIGTERM,
            });
            return None;
        }
        self.agent.signal(Signal::SIGTERM);
        while self.agent.runs() {
            tokio::select! {
                _ = self.agent.ended() => {}
                // Once more ends it at once.
                _ = signals.stop() => self.agent.signal(Signal::SIGTERM),
            }
        }
        self.hand_over().await;
        Some(exit::stopped_by(number))
    }

    /// The number of other nodes with a driver that leads or waits. Without an answer of etcd there may be some.
    async fn others(&self) -> usize {
        let Ok(seen) = self.meeting.look(&self.job.run).await else {
            return 1;
        };
        let all = seen.standbys + usize::from(!seen.endpoints.is_empty());
        all.saturating_sub(usize::from(self.driver.runs()))
    }

    /// Ends the driver of this node, which may lead. One of another node continues the run.
    async fn hand_over(&mut self) {
        self.driver.signal(Signal::SIGUSR2);
        self.driver.end_within(END_TIMEOUT).await;
    }

    /// Ends the agent of a job that has ended. It is about to end by itself.
    async fn end_agent(&mut self) {
        self.agent.wait(END_TIMEOUT).await;
        self.agent.signal(Signal::SIGTERM);
        self.agent.end_within(END_TIMEOUT).await;
    }

    fn say_once(&mut self, line: &str) {
        if self.told.insert(line.to_owned()) {
            say(&format!("job {}: {line}", self.request.id));
        }
    }
}

fn one_line(error: journal::Error) -> anyhow::Error {
    anyhow::Error::msg(error.to_string())
}

fn say(line: &str) {
    // If stderr is closed, there is no other place for the line.
    let _ = writeln!(io::stderr(), "elasticrun: {line}");
}
