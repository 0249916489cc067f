//! One connection of an agent, from its handshake to its end.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use elasticrun_core::AgentConnected;
use elasticrun_protocol::{
    FromAgent, HostId, ToAgent,
    auth::Purpose,
    control::{OutputOf, Register},
    frame::{self, FrameBuffer},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, tcp::OwnedReadHalf, tcp::OwnedWriteHalf},
    sync::{OwnedSemaphorePermit, mpsc},
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, error_span};

use super::{HANDSHAKE, Input, Port, handshake, log_refused};
use crate::console::Piece;

/// Capacity of the queue of commands to an agent. A healthy agent has a handful of them queued.
const ORDERS: usize = 4096;

/// How long TCP may wait for an acknowledgement. Missing heartbeats end the connection of an agent long before.
const TCP_TIMEOUT: Duration = Duration::from_secs(120);

/// Sends commands to one agent. Cheap to clone. The connection closes when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Writer {
    frames: mpsc::Sender<Vec<u8>>,
    close: CancellationToken,
}

impl Writer {
    /// Queues a command. Returns whether the connection still takes commands.
    pub fn send(&self, command: &ToAgent) -> bool {
        match frame::to_frame(command) {
            Ok(frame) => self.send_frames(frame),
            Err(error) => {
                tracing::error!(%error, "a command is too large for a frame");
                false
            }
        }
    }

    /// Queues encoded commands. Returns whether the connection still takes commands.
    pub fn send_frames(&self, frames: Vec<u8>) -> bool {
        self.frames.try_send(frames).is_ok()
    }

    /// Closes the connection after the queued commands are sent.
    pub fn close(&self) {
        self.close.cancel();
    }
}

/// Serves one connection. `permit` is held until the peer has proved the secret.
pub(super) async fn run(
    mut stream: TcpStream,
    from: SocketAddr,
    instance: u64,
    port: Port,
    permit: OwnedSemaphorePermit,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot switch off Nagle's algorithm");
    }
    if let Err(error) = elasticrun_agent::tune_control(&stream, TCP_TIMEOUT) {
        tracing::debug!(%error, "a connection is as it is");
    }
    let mut frames = FrameBuffer::unproven();
    let proved = timeout(
        HANDSHAKE,
        handshake::accept(&mut stream, &mut frames, &port.secret),
    )
    .await;
    let purpose = match proved.unwrap_or(Err(handshake::Error::TimedOut)) {
        Ok(purpose) => purpose,
        Err(error) => return log_refused(from, &error),
    };
    drop(permit);
    let served = match purpose {
        Purpose::Control => control(stream, frames, from, instance, &port).await,
        Purpose::Output => output(stream, frames, &port).await,
        Purpose::Store => store(stream, frames, &port).await,
        Purpose::Memory => Ok(()),
    };
    if let Err(error) = served {
        tracing::debug!(peer = %from, %error, "a connection ended");
    }
}

async fn control(
    mut stream: TcpStream,
    mut frames: FrameBuffer,
    from: SocketAddr,
    instance: u64,
    port: &Port,
) -> Result<(), handshake::Error> {
    let register: Register = timeout(HANDSHAKE, handshake::read(&mut stream, &mut frames))
        .await
        .unwrap_or(Err(handshake::Error::TimedOut))?;
    let host = register.host.clone();
    let span = error_span!("host", id = %host);
    let (reader, writer) = stream.into_split();
    let (sender, receiver) = mpsc::channel(ORDERS);
    let close = CancellationToken::new();
    let written = write(writer, receiver, close.clone());
    port.tasks.spawn(written.instrument(span));
    let connected = Input::Connected {
        software: register.software.clone(),
        agent: connected(register, from.ip(), instance, &port.run_id),
        writer: Writer {
            frames: sender,
            close: close.clone(),
        },
    };
    if port.control.send(connected).await.is_err() {
        return Ok(());
    }
    let why = tokio::select! {
        why = read(reader, frames, &host, instance, port) => why,
        () = close.cancelled() => "closed by the driver".into(),
    };
    let _ = port
        .control
        .send(Input::Lost {
            host,
            instance,
            why,
        })
        .await;
    Ok(())
}

/// The registration as an event. Other hosts reach the agent at the address that it registers, else at the source address of
/// its connection.
fn connected(register: Register, from: IpAddr, instance: u64, run_id: &str) -> AgentConnected {
    AgentConnected {
        host: register.host,
        instance,
        address: register.address.unwrap_or(from).to_canonical(),
        memory_port: register.memory_port,
        free_port: register.free_port,
        slots: register.slots,
        detected_slots: register.detected_slots,
        self_registered: register.self_registered,
        keeps: register.keeps_run.as_deref() == Some(run_id),
        probes: register.probes,
        task: register.task,
        agent: register.agent,
    }
}

/// Reads reports until the connection ends. Returns why it ended.
async fn read(
    mut reader: OwnedReadHalf,
    mut frames: FrameBuffer,
    host: &HostId,
    instance: u64,
    port: &Port,
) -> String {
    loop {
        let mut reports: Vec<FromAgent> = Vec::new();
        loop {
            match frames.next_message() {
                Ok(Some(report)) => reports.push(report),
                Ok(None) => break,
                Err(error) => return error.to_string(),
            }
        }
        if !reports.is_empty() {
            let reported = Input::Reported {
                host: host.clone(),
                instance,
                reports,
            };
            if port.control.send(reported).await.is_err() {
                return "the driver ends".into();
            }
        }
        match read_some(&mut reader, &mut frames, port).await {
            Some(Ok(0)) => return "its agent closed the connection".into(),
            Some(Ok(_)) => {}
            Some(Err(error)) => return format!("the connection to its agent failed: {error}"),
            None => return format!("its agent was silent for {:?}", port.silence),
        }
    }
}

/// Reads the next bytes. `None` if the agent is silent for too long while the driver runs.
async fn read_some(
    reader: &mut OwnedReadHalf,
    frames: &mut FrameBuffer,
    port: &Port,
) -> Option<std::io::Result<usize>> {
    let since = port.clock.now();
    loop {
        let rest = port.silence.saturating_sub(port.clock.now().since(since));
        if rest.is_zero() {
            return None;
        }
        // `timeout` polls the socket first. After a stall of the driver some time is left, so that received bytes count.
        if let Ok(read) = timeout(rest, reader.read_buf(frames.buffer())).await {
            return Some(read);
        }
    }
}

/// Writes the queue, in batches.
async fn write(
    mut writer: OwnedWriteHalf,
    mut queue: mpsc::Receiver<Vec<u8>>,
    close: CancellationToken,
) {
    loop {
        let first = tokio::select! {
            biased;
            first = queue.recv() => first,
            () = close.cancelled() => None,
        };
        let Some(mut batch) = first else { break };
        while let Ok(more) = queue.try_recv() {
            batch.extend_from_slice(&more);
        }
        if let Err(error) = writer.write_all(&batch).await {
            tracing::debug!(%error, "cannot write to an agent");
            close.cancel();
            return;
        }
    }
    let _ = writer.shutdown().await;
}

/// Passes the connection to the store's thread.
async fn store(
    mut stream: TcpStream,
    mut frames: FrameBuffer,
    port: &Port,
) -> Result<(), handshake::Error> {
    let agent = timeout(HANDSHAKE, handshake::read(&mut stream, &mut frames))
        .await
        .unwrap_or(Err(handshake::Error::TimedOut))?;
    port.store
        .connection_opened(agent, stream.into_std()?, frames);
    Ok(())
}

async fn output(
    mut stream: TcpStream,
    mut frames: FrameBuffer,
    port: &Port,
) -> Result<(), handshake::Error> {
    let OutputOf { host } = timeout(HANDSHAKE, handshake::read(&mut stream, &mut frames))
        .await
        .unwrap_or(Err(handshake::Error::TimedOut))?;
    loop {
        while let Some(output) = frames.next_message()? {
            let host = host.clone();
            port.output.write(Piece { host, output }).await;
            // A worker that prints without end must not hold up the run loop.
            tokio::task::yield_now().await;
        }
        if stream.read_buf(frames.buffer()).await? == 0 {
            return Ok(());
        }
    }
}
