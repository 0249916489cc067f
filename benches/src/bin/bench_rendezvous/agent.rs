//! A fake agent: it answers as an agent does, and does nothing else.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Result, ensure};
use elasticrun_protocol::{
    AgentCommand, AgentReport, DriverEpoch, FromAgent, HostId, Process, Round, ToAgent,
    control::{Held, Register, Waiting},
    frame::{FrameBuffer, to_frame},
    opening::Purpose,
};
use elasticrun_tls::{
    ClientConfig, Role, TlsStream, enrol,
    opening::{self, Connection},
    token::Token,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// How long the driver may take to enrol an agent, and to open its connection.
const LIMIT: Duration = Duration::from_secs(120);

/// An agent whose driver has answered with its set-up.
pub(crate) struct Agent {
    stream: TlsStream<TcpStream>,
    frames: FrameBuffer,
    /// Of messages, both ways, of all agents.
    bytes: Arc<AtomicU64>,
    epoch: DriverEpoch,
    sent: u64,
    workers: u32,
    /// Workers that have started and are not reported yet.
    waiting: Vec<Waiting>,
    /// Workers of the round.
    members: Vec<Process>,
    /// Rounds that were planned with this host.
    pub(crate) plans: u32,
}

impl Agent {
    /// Connects the agent of a host with so many workers.
    pub(crate) async fn connect(
        number: u32,
        workers: u32,
        address: SocketAddr,
        token: &Token,
        bytes: Arc<AtomicU64>,
    ) -> Result<Self> {
        let host = format!("host-{number:05}");
        let credentials = enrol::ask(dial(address).await?, token, &host, LIMIT).await?;
        let config = ClientConfig::new(&credentials.agent, Role::Driver)?;
        let stream = dial(address).await?;
        let Connection { stream, frames, .. } =
            opening::dial(stream, &config, Purpose::Control, LIMIT).await?;
        let mut agent = Self {
            stream,
            frames,
            bytes,
            epoch: DriverEpoch(0),
            sent: 0,
            workers,
            waiting: Vec::new(),
            members: Vec::new(),
            plans: 0,
        };
        let register = Register {
            task: None,
            keeps_run: None,
            agent: None,
            adoption: None,
            probes: false,
            durable: false,
            replicas: false,
            cuts: false,
            servers: false,
            host: HostId::new(host),
            software: env!("CARGO_PKG_VERSION").into(),
            slots: workers,
            detected_slots: None,
            self_registered: true,
            memory_port: 1,
            free_port: 2,
            address: None,
        };
        opening::write(&mut agent.stream, &register).await?;
        let first: ToAgent = agent.read().await?;
        agent.epoch = first.epoch;
        Ok(agent)
    }

    /// Answers the driver until the next round has started. Returns its size.
    pub(crate) async fn until_started(&mut self) -> Result<u32> {
        loop {
            let message: ToAgent = self.read().await?;
            match message.command {
                AgentCommand::Spawn(spawn) => {
                    self.comes(spawn.process, None).await?;
                }
                AgentCommand::Abort { round } => {
                    for process in std::mem::take(&mut self.members) {
                        self.comes(process, Some(round)).await?;
                    }
                }
                AgentCommand::Plan { round, members } => {
                    self.plans += 1;
                    self.answer(round, members).await?;
                }
                AgentCommand::Start(start) => {
                    ensure!(
                        start.members.len() == self.workers as usize,
                        "a member is missing"
                    );
                    self.members = start.members.iter().map(|member| member.process).collect();
                    return Ok(start.size);
                }
                _ => {}
            }
        }
    }

    /// Resets the connection, as the kernel of a host does that has lost its agent.
    pub(crate) fn reset(self) -> Result<()> {
        Ok(self.stream.get_ref().set_zero_linger()?)
    }

    /// A worker is at `run()`. All of the host are reported together.
    async fn comes(&mut self, process: Process, left: Option<Round>) -> Result<()> {
        self.waiting.push(Waiting {
            process,
            left,
            data_port: 3,
        });
        if self.waiting.len() < self.workers as usize {
            return Ok(());
        }
        let workers = std::mem::take(&mut self.waiting);
        self.report(AgentReport::Waiting { workers }).await
    }

    async fn answer(&mut self, round: Round, members: Vec<Process>) -> Result<()> {
        let held = |process: Process| Held {
            process,
            commit: None,
            shard: Default::default(),
            empty: false,
            data_port: 3,
        };
        self.report(AgentReport::Ready {
            round,
            members: members.into_iter().map(held).collect(),
            kept: Vec::new(),
            free_port: 2,
        })
        .await
    }

    async fn report(&mut self, report: AgentReport) -> Result<()> {
        self.sent += 1;
        let frame = to_frame(&FromAgent {
            epoch: self.epoch,
            number: self.sent,
            report,
        })?;
        self.bytes.fetch_add(frame.len() as u64, Ordering::Relaxed);
        self.stream.write_all(&frame).await?;
        Ok(self.stream.flush().await?)
    }

    async fn read<T: serde::de::DeserializeOwned>(&mut self) -> Result<T> {
        loop {
            if let Some(message) = self.frames.next_message()? {
                return Ok(message);
            }
            let n = self.stream.read_buf(self.frames.buffer()).await?;
            ensure!(n > 0, "the driver hung up");
            self.bytes.fetch_add(n as u64, Ordering::Relaxed);
        }
    }
}

async fn dial(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
