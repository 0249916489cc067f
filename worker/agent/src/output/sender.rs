//! Sends pieces from the queue to the driver over the connection for output.

use std::{net::SocketAddr, rc::Rc, time::Duration};

use elasticrun_protocol::{
    HostId,
    auth::Purpose,
    control::{self, OutputOf},
    frame,
};
use tokio::{io::AsyncWriteExt, net::TcpStream, time::sleep};

use super::queue::Queue;
use crate::{AgentOptions, connect, error::PeerError, wire};

const RECONNECT_INTERVAL: Duration = Duration::from_secs(1);

/// Sends until the queue is closed and empty. Reconnects after a failure; the piece that was being sent then may
/// arrive twice or not at all.
pub(super) async fn run(options: AgentOptions, driver: SocketAddr, host: HostId, queue: Rc<Queue>) {
    let mut unsent = None;
    loop {
        match connect(&options, driver, &host).await {
            Ok(mut stream) => match send(&mut stream, &queue, &mut unsent).await {
                Ok(()) => {
                    // All pieces are written. A shutdown lets the driver read them to the end.
                    let _ = stream.shutdown().await;
                    return;
                }
                Err(error) => tracing::debug!(%error, "the connection for output ended"),
            },
            Err(error) => tracing::debug!(%error, "no connection for output"),
        }
        if queue.is_closed() {
            return;
        }
        tokio::select! {
            () = sleep(RECONNECT_INTERVAL) => {}
            () = queue.wait_closed() => {}
        }
    }
}

async fn connect(
    options: &AgentOptions,
    driver: SocketAddr,
    host: &HostId,
) -> Result<TcpStream, PeerError> {
    let (mut stream, ..) = connect::dial(driver, options, Purpose::Output).await?;
    wire::write(&mut stream, &OutputOf { host: host.clone() }).await?;
    Ok(stream)
}

async fn send(
    stream: &mut TcpStream,
    queue: &Queue,
    unsent: &mut Option<control::Output>,
) -> Result<(), PeerError> {
    loop {
        if unsent.is_none() {
            *unsent = queue.next().await;
        }
        let Some(piece) = unsent else { return Ok(()) };
        let frame = frame::to_frame(piece)?;
        let mut rest = frame.as_slice();
        while !rest.is_empty() {
            let count = stream.write(rest).await?;
            rest = &rest[count..];
            queue.advanced();
        }
        queue.taken(piece.as_bytes().len());
        *unsent = None;
    }
}
