//! One connection of an agent, from its handshake to its end.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use bytes::BufMut;
use elasticrun_core::AgentConnected;
use elasticrun_protocol::{
    FromAgent, HostId, ToAgent,
    control::{Output, OutputOf, OutputTaken, Register},
    frame::{self, FrameBuffer},
    opening::Purpose,
    store::StoreOf,
};
use elasticrun_tls::{
    Error as TlsError, Handshake, TlsStream, enrol,
    opening::{self, Accepted, Connection},
};
use serde::de::DeserializeOwned;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, split},
    net::TcpStream,
    sync::mpsc,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, error_span};

use super::{AGENT_KEEPS_OUTPUT, HANDSHAKE, Input, LINGER, Port};
use crate::console::Piece;

/// Capacity of the queue of commands to an agent. A healthy agent has a handful of them queued.
const ORDERS: usize = 4096;

/// Why the connection of an agent that has ended is lost.
const CLOSED: &str = "its agent closed the connection";

/// How long TCP may wait for an acknowledgement. Missing heartbeats end the connection of an agent long before.
const TCP_TIMEOUT: Duration = Duration::from_secs(120);

/// What the control port serves.
const SERVES: [Purpose; 3] = [Purpose::Control, Purpose::Output, Purpose::Store];

/// Why a peer was refused, or its connection ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// Its connection was not opened.
    #[error(transparent)]
    Opening(#[from] opening::Error),
    /// It has no join token of this job.
    #[error(transparent)]
    Enrolment(#[from] enrol::Error),
    /// It names a host that is not the one of its certificate.
    #[error("it registers as host {host}, and has the certificate of another one")]
    OtherHost {
        /// The host that it names.
        host: HostId,
    },
    /// The stream failed.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
}

impl Error {
    /// Whether the peer does not trust this driver, as an agent does that has the keys of an earlier job.
    pub(super) fn is_refusal_of_peer(&self) -> bool {
        matches!(
            self,
            Self::Opening(opening::Error::Tls(TlsError::Refused(_)))
        )
    }
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

/// Serves one connection. `handshake` is held until the peer has proved itself.
pub(super) async fn run(
    stream: TcpStream,
    from: SocketAddr,
    instance: u64,
    port: Port,
    handshake: Handshake,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot switch off Nagle's algorithm");
    }
    if let Err(error) = elasticrun_agent::tune_control(&stream, TCP_TIMEOUT) {
        tracing::debug!(%error, "a connection is as it is");
    }
    // One for all that the peer must do to prove itself.
    let deadline = Instant::now() + HANDSHAKE;
    let opened = handshake.run(open(stream, from, &port, deadline)).await;
    // One that gives way to others has taken too long.
    let connection = match opened.unwrap_or(Err(opening::Error::TimedOut.into())) {
        Ok(Some(connection)) => connection,
        Ok(None) => return,
        Err(error) => return port.refusals.log(from, &error),
    };
    drop(handshake);
    let served = match connection.opened.purpose {
        Purpose::Control => control(connection, from, instance, &port).await,
        Purpose::Output => output(connection, instance, &port).await,
        Purpose::Store => store(connection, &port).await,
        Purpose::Memory => Ok(()),
    };
    match served {
        Err(error @ Error::OtherHost { .. }) => port.refusals.log(from, &error),
        Err(error) => tracing::debug!(peer = %from, %error, "a connection ended"),
        Ok(()) => {}
    }
}

/// Opens the connection of a peer. A host that proves a join token gets credentials, and connects again with them: `None`.
async fn open(
    stream: TcpStream,
    from: SocketAddr,
    port: &Port,
    deadline: Instant,
) -> Result<Option<Connection<TcpStream>>, Error> {
    let left = || deadline.saturating_duration_since(Instant::now());
    let stream = match opening::accept(stream, &port.tls, &SERVES, left()).await? {
        Accepted::Opened(connection) => return Ok(Some(connection)),
        Accepted::Enrolling(stream) => stream,
    };
    let find = |id| port.trust.find_token(id);
    let issue = |host| port.trust.issue(host);
    let host = enrol::grant(stream, left(), find, issue).await?;
    tracing::debug!(peer = %from, host, "a host has proved its join token");
    Ok(None)
}

/// Reads the first message of a peer, which names its host. The host must be that of its certificate.
async fn introduced<T: DeserializeOwned>(
    connection: &mut Connection<TcpStream>,
    port: &Port,
    host: impl Fn(&T) -> &HostId,
) -> Result<T, Error> {
    let (stream, frames) = (&mut connection.stream, &mut connection.frames);
    let message = timeout(HANDSHAKE, opening::read(stream, frames))
        .await
        .unwrap_or(Err(opening::Error::TimedOut))?;
    let host = host(&message);
    match stream.session().peer_is_on(&port.run_id, host.as_str()) {
        true => Ok(message),
        false => Err(Error::OtherHost { host: host.clone() }),
    }
}

async fn control(
    mut connection: Connection<TcpStream>,
    from: SocketAddr,
    instance: u64,
    port: &Port,
) -> Result<(), Error> {
    let register: Register =
        introduced(&mut connection, port, |first: &Register| &first.host).await?;
    let Connection {
        stream,
        frames,
        opened,
    } = connection;
    let host = register.host.clone();
    let span = error_span!("host", id = %host);
    let (reader, writer) = split(stream);
    let (sender, receiver) = mpsc::channel(ORDERS);
    let close = CancellationToken::new();
    let written = write(writer, receiver, close.clone(), LINGER);
    port.tasks.spawn(written.instrument(span));
    let connected = Input::Connected {
        software: register.software.clone(),
        version: opened.version,
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
        durable: register.durable,
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
            None => {
                port.outputs.fell_silent(host);
                return format!("its agent was silent for {:?}", port.silence);
            }
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

/// Passes the connection to the store's thread.
async fn store(mut connection: Connection<TcpStream>, port: &Port) -> Result<(), Error> {
    let agent = introduced(&mut connection, port, |first: &StoreOf| &first.host).await?;
    // The runtime of another thread takes the socket over.
    let (session, stream, unread) = connection.stream.into_parts();
    let stream = TlsStream::new(session, stream.into_std()?, unread);
    (port.store).connection_opened(agent, stream, connection.frames);
    Ok(())
}

/// Passes output of workers to the console.
async fn output(
    mut connection: Connection<TcpStream>,
    instance: u64,
    port: &Port,
) -> Result<(), Error> {
    let OutputOf { host, sender } =
        introduced(&mut connection, port, |first: &OutputOf| &first.host).await?;
    let Connection {
        mut stream,
        mut frames,
        ..
    } = connection;
    let open = port.outputs.open(host, instance);
    // A network that is back within this time still delivers what the workers have printed.
    let linger = port.orphan_timeout + AGENT_KEEPS_OUTPUT;
    let mut acknowledged = None;
    loop {
        while let Some(output) = frames
            .next_message::<Output>()
            .map_err(opening::Error::Frame)?
        {
            let host = open.host.clone();
            let number = output.number;
            if sender.is_some_and(|sender| !port.outputs.take(&host, sender, number)) {
                continue;
            }
            port.output.write(Piece { host, output }).await;
            // A worker that prints without end must not hold up the run loop.
            tokio::task::yield_now().await;
        }
        if let Some(sender) = sender {
            let number = port.outputs.taken(&open.host, sender);
            if acknowledged.replace(number) != Some(number) {
                let taken = OutputTaken { number };
                timeout(linger, opening::write(&mut stream, &taken))
                    .await
                    .unwrap_or(Ok(()))?;
            }
        }
        let buffer = frames.buffer();
        if read_output(&mut stream, buffer, &open.silent, &port.stop, linger).await? == 0 {
            return Ok(());
        }
    }
}

/// Reads the next bytes of output. Gives 0 at the end of the connection, and when it is given up: its host is silent, and no
/// byte has come for `linger`, or at the end of the job.
async fn read_output(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut impl BufMut,
    silent: &CancellationToken,
    ends: &CancellationToken,
    linger: Duration,
) -> std::io::Result<usize> {
    let given_up = async {
        silent.cancelled().await;
        let _ = timeout(linger, ends.cancelled()).await;
    };
    tokio::select! {
        biased;
        read = stream.read_buf(buffer) => read,
        () = given_up => Ok(0),
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use tokio::{io::duplex, task::yield_now};

    use super::*;

    /// Longer than any test.
    const LONG: Duration = Duration::from_secs(3600);

    /// The tokens of a silent host and of the end of the job.
    fn tokens(is_silent: bool, has_ended: bool) -> [CancellationToken; 2] {
        [is_silent, has_ended].map(|is_set| {
            let token = CancellationToken::new();
            if is_set {
                token.cancel();
            }
            token
        })
    }

    /// Reads twice from a connection that has brought a byte and is over then.
    async fn reads(is_silent: bool, has_ended: bool, linger: Duration) -> [usize; 2] {
        let (mut agent, mut stream) = duplex(8);
        agent.write_all(b"x").await.expect("there is room");
        let [silent, ends] = tokens(is_silent, has_ended);
        let mut buffer = BytesMut::new();
        let mut counts = [usize::MAX; 2];
        for count in &mut counts {
            let read = read_output(&mut stream, &mut buffer, &silent, &ends, linger);
            *count = read.await.expect("it is open");
        }
        counts
    }

    /// Whether a connection without a byte is waited for.
    async fn waits(is_silent: bool, has_ended: bool) -> bool {
        let (_agent, mut stream) = duplex(8);
        let [silent, ends] = tokens(is_silent, has_ended);
        let mut buffer = BytesMut::new();
        let read = read_output(&mut stream, &mut buffer, &silent, &ends, LONG);
        tokio::select! {
            biased;
            _ = read => false,
            () = yield_now() => true,
        }
    }

    #[tokio::test]
    async fn output_of_a_silent_host_is_read_and_its_connection_is_given_up() {
        assert_eq!(reads(true, false, Duration::ZERO).await, [1, 0]);
        assert!(waits(true, false).await, "more may be on its way");
    }

    #[tokio::test]
    async fn the_end_of_a_job_does_not_wait_for_the_output_of_a_silent_host() {
        assert_eq!(reads(true, true, LONG).await, [1, 0]);
        assert!(waits(false, true).await, "other hosts may have output");
    }

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
