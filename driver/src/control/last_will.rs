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

/// Waits for the message, until the connection ends or the driver does.
///
/// # Errors
/// The connection has failed, or what came is no such message. An end without a message is none: the agent has ended in order,
/// has lost the connection, or was killed with its reaper process.
pub(super) async fn serve(
    mut stream: TlsStream<TcpStream>,
    mut frames: FrameBuffer,
    of: LastWillOf,
    port: &Port,
) -> Result<(), Error> {
    tracing::debug!(host = %of.host, "the death of an agent would be reported");
    let read = tokio::select! {
        read = opening::read::<LastWill>(&mut stream, &mut frames) => read,
        () = port.stop.cancelled() => return Ok(()),
    };
    let LastWill { why } = match read {
        Ok(will) => will,
        Err(Error::Closed) => return Ok(()),
        Err(error) => return Err(error),
    };
    let LastWillOf { host, agent } = of;
    let died = Input::Died { host, agent, why };
    // Fails only at the end of the driver.
    let _ = port.control.send(died).await;
    Ok(())
}
