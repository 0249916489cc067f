//! The connection over which an agent sends the output of its workers.

use std::time::Duration;

use bytes::BufMut;
use elasticrun_protocol::{
    control::{Output, OutputOf, OutputTaken},
    frame::FrameBuffer,
};
use elasticrun_tls::{TlsStream, opening};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    net::TcpStream,
    time::timeout,
};

use super::Port;
use crate::console::Piece;

/// How long an agent keeps output that its driver does not take (`AgentOptions::output_timeout`).
const AGENT_KEEPS_OUTPUT: Duration = Duration::from_secs(10);

/// Passes output of workers to the console.
///
/// # Errors
/// The connection fails.
pub(super) async fn serve(
    mut stream: TlsStream<TcpStream>,
    mut frames: FrameBuffer,
    sends: OutputOf,
    instance: u64,
    port: &Port,
) -> Result<(), opening::Error> {
    let OutputOf { host, sender } = sends;
    let open = port.side_connections.open(host, instance);
    // A network that is back within this time still delivers what the workers have printed.
    let linger = port.orphan_timeout + AGENT_KEEPS_OUTPUT;
    let mut acknowledged = None;
    loop {
        while let Some(output) = frames.next_message::<Output>()? {
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
        if read_output(&mut stream, buffer, open.given_up(linger, &port.stop)).await? == 0 {
            return Ok(());
        }
    }
}

/// Reads the next bytes of output. Gives 0 at the end of the connection, and when it is given up and no byte is there.
async fn read_output(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut impl BufMut,
    given_up: impl Future<Output = ()>,
) -> std::io::Result<usize> {
    tokio::select! {
        biased;
        read = stream.read_buf(buffer) => read,
        () = given_up => Ok(0),
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use tokio::{
        io::{AsyncWriteExt, duplex},
        task::yield_now,
    };
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::control::side_connections::{Open, SideConnections};

    /// Longer than any test.
    const LONG: Duration = Duration::from_secs(3600);

    /// A connection of a host, perhaps one that is away, and the end of the job.
    fn opened(is_away: bool, has_ended: bool) -> (Open, CancellationToken) {
        let all = SideConnections::default();
        let open = all.open("a".into(), 1);
        if is_away {
            all.host_is_away(&"a".into());
        }
        let ends = CancellationToken::new();
        if has_ended {
            ends.cancel();
        }
        (open, ends)
    }

    /// Reads twice from a connection that has brought a byte and is over then.
    async fn reads(is_away: bool, has_ended: bool, linger: Duration) -> [usize; 2] {
        let (mut agent, mut stream) = duplex(8);
        agent.write_all(b"x").await.expect("there is room");
        let (open, ends) = opened(is_away, has_ended);
        let mut buffer = BytesMut::new();
        let mut counts = [usize::MAX; 2];
        for count in &mut counts {
            let read = read_output(&mut stream, &mut buffer, open.given_up(linger, &ends));
            *count = read.await.expect("it is open");
        }
        counts
    }

    /// Whether a connection without a byte is waited for.
    async fn waits(is_away: bool, has_ended: bool) -> bool {
        let (_agent, mut stream) = duplex(8);
        let (open, ends) = opened(is_away, has_ended);
        let mut buffer = BytesMut::new();
        let read = read_output(&mut stream, &mut buffer, open.given_up(LONG, &ends));
        tokio::select! {
            biased;
            _ = read => false,
            () = yield_now() => true,
        }
    }

    #[tokio::test]
    async fn output_of_a_host_that_is_away_is_read_and_its_connection_is_given_up() {
        assert_eq!(reads(true, false, Duration::ZERO).await, [1, 0]);
        assert!(waits(true, false).await, "more may be on its way");
    }

    #[tokio::test]
    async fn the_end_of_a_job_does_not_wait_for_the_output_of_a_host_that_is_away() {
        assert_eq!(reads(true, true, LONG).await, [1, 0]);
        assert!(waits(false, true).await, "other hosts may have output");
    }
}
