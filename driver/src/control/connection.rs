//! The control connection of an agent, from its registration to its end.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use elasticrun_core::AgentConnected;
use elasticrun_protocol::{
    FromAgent, HostId, ToAgent,
    control::Register,
    frame::{self, FrameBuffer},
};
use elasticrun_tls::TlsStream;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, split},
    net::TcpStream,
    sync::mpsc,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, error_span};

use super::{Input, Port};

/// Capacity of the queue of commands to an agent. A healthy agent has a handful of them queued.
const ORDERS: usize = 4096;

/// How long an agent may take to read its last commands once its connection is closed.
const LINGER: Duration = Duration::from_secs(5);

/// Why the connection of an agent that has ended is lost.
const CLOSED: &str = "its agent closed the connection";

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    pub(super) from: SocketAddr,
    /// The number of the connection.
    pub(super) instance: u64,
    /// The version of the protocol that both ends speak.
    pub(super) version: u16,
}

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

/// Serves the connection until its agent, the driver or the network ends it.
pub(super) async fn serve(
    stream: TlsStream<TcpStream>,
    frames: FrameBuffer,
    register: Register,
    peer: Peer,
    port: &Port,
) {
    let Peer {
        from,
        instance,
        version,
    } = peer;
    let host = register.host.clone();
    let span = error_span!("host", id = %host);
    let (reader, writer) = split(stream);
    let (sender, receiver) = mpsc::channel(ORDERS);
    let close = CancellationToken::new();
    let written = write(writer, receiver, close.clone(), LINGER);
    port.tasks.spawn(written.instrument(span));
    let connected = Input::Connected {
        software: register.software.clone(),
        version,
        agent: connected(register, from.ip(), instance, &port.access.run_id),
        writer: Writer {
            frames: sender,
            close: close.clone(),
        },
    };
    if port.control.send(connected).await.is_err() {
        return;
    }
    let why = tokio::select! {
        why = read(reader, frames, &host, instance, port) => why,
        () = close.cancelled() => "closed by the driver".into(),
    };
    // Whatever the reason, the machine may be gone. An agent that lives opens its connections again.
    port.side_connections.host_is_away(&host);
    let _ = port
        .control
        .send(Input::Lost {
            host,
            instance,
            why,
        })
        .await;
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
        durable: register.durable,
        replicas: register.replicas,
        cuts: register.cuts,
        servers: register.servers,
        task: register.task,
        agent: register.agent,
        // Each version with TLS has the messages of a return.
        returns: true,
        adoption: register.adoption,
    }
}

/// Reads reports until the connection ends. Returns why it ended.
async fn read(
    mut reader: ReadHalf<TlsStream<TcpStream>>,
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
            Some(Ok(0)) => return CLOSED.into(),
            // The kernel closes the connection of an agent that was killed.
            Some(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return CLOSED.into();
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => return format!("the connection to its agent failed: {error}"),
            None => return format!("its agent was silent for {:?}", port.silence),
        }
    }
}

/// Reads the next bytes. `None` if the agent is silent for too long while the driver runs.
async fn read_some(
    reader: &mut (impl AsyncRead + Unpin),
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

/// Writes the queue, in batches. Once the connection is closed, the peer has [`LINGER`] to take what is left.
async fn write(
    mut writer: impl AsyncWrite + Unpin,
    mut queue: mpsc::Receiver<Vec<u8>>,
    close: CancellationToken,
    linger: Duration,
) {
    let over = async {
        close.cancelled().await;
        sleep(linger).await;
    };
    tokio::pin!(over);
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
        let write = async {
            writer.write_all(&batch).await?;
            writer.flush().await
        };
        let written = tokio::select! {
            biased;
            written = write => written,
            () = &mut over => return tracing::debug!("an agent does not read its last commands"),
        };
        if let Err(error) = written {
            tracing::debug!(%error, "cannot write to an agent");
            close.cancel();
            return;
        }
    }
    // It may have to write a last word, and the peer may not read.
    let _ = timeout(linger, writer.shutdown()).await;
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    #[tokio::test]
    async fn an_agent_that_does_not_read_its_last_commands_is_not_waited_for() {
        let (_agent, stream) = duplex(1);
        let (frames, queue) = mpsc::channel(1);
        frames.try_send(vec![0; 2]).expect("there is room");
        let close = CancellationToken::new();
        close.cancel();
        // Else it would wait for as long as the agent lives.
        write(stream, queue, close, Duration::ZERO).await;
    }
}
