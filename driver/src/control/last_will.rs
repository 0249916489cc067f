//! The connection over which the reaper process of an agent reports that the agent has died.

use elasticrun_protocol::{
    control::{LastWill, LastWillOf},
    frame::FrameBuffer,
};
use elasticrun_tls::{
    TlsStream,
    opening::{self, Error},
};
use tokio::net::TcpStream;

use super::{Input, Port};

/// Waits for the message, until the connection ends or the driver does, or until the host has been away for so long that it counts as
/// lost.
///
/// # Errors
/// The connection has failed, or what came is no such message. An end without a message is none: the agent has ended in order,
/// has lost the connection, or was killed with its reaper process.
pub(super) async fn serve(
    mut stream: TlsStream<TcpStream>,
    mut frames: FrameBuffer,
    of: LastWillOf,
    instance: u64,
    port: &Port,
) -> Result<(), Error> {
    let LastWillOf { host, agent } = of;
    tracing::debug!(%host, "the death of an agent would be reported");
    let open = port.side_connections.open(host.clone(), instance);
    let read = tokio::select! {
        biased;
        read = opening::read::<LastWill>(&mut stream, &mut frames) => read,
        () = open.given_up(port.away_timeout, &port.stop) => return Ok(()),
        () = port.stop.cancelled() => return Ok(()),
    };
    let LastWill { why } = match read {
        Ok(will) => will,
        Err(Error::Closed) => return Ok(()),
        Err(error) => return Err(error),
    };
    let died = Input::Died { host, agent, why };
    // Fails only at the end of the driver.
    let _ = port.control.send(died).await;
    Ok(())
}
