//! Lets the driver know at once that this agent has died.
//!
//! ```text
//! agent  --dial, LastWillOf-->  driver
//!   |  LastWill, encrypted and not sent, with the socket
//!   v
//! reaper process --when the agent is dead and its workers are killed: the bytes--> driver
//! ```
//! Without it the driver cannot tell a dead agent from one that it does not reach, and waits until the workers there are
//! certain to have stopped. An agent that the driver has launched needs none: its launch ends.
//!
//! Not promised: that the driver learns of each death. The reaper process may be killed as well.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use elasticrun_protocol::{
    HostId,
    control::{LastWill, LastWillOf},
    frame,
    opening::Purpose,
};
use elasticrun_tls::opening;
use tokio::{
    io::AsyncReadExt,
    net::TcpStream,
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};
use tracing::Instrument as _;

use crate::{
    connect::{self, HANDSHAKE_TIMEOUT, process_number},
    error::PeerError,
    keys::Keys,
    reaper_process::WillHolder,
};

/// The pause before a connection is opened. The handshakes of many agents that join at once come first.
const PAUSE: Duration = Duration::from_secs(1);

/// What the driver reports.
const WHY: &str = "its agent died";

/// Keeps a last will at the driver as long as the agent lives.
#[derive(Debug)]
pub(crate) struct LastWillKeeper(watch::Sender<SocketAddr>);

impl LastWillKeeper {
    /// Starts the task.
    pub(crate) fn start(
        keys: Arc<Keys>,
        driver: SocketAddr,
        host: HostId,
        holder: WillHolder,
        tasks: &mut JoinSet<()>,
    ) -> Self {
        let (driver, at) = watch::channel(driver);
        tasks.spawn(keep(keys, at, host, holder).in_current_span());
        Self(driver)
    }

    /// The driver is at this address from now on.
    pub(crate) fn driver_back(&self, driver: SocketAddr) {
        self.0.send_replace(driver);
    }
}

async fn keep(
    keys: Arc<Keys>,
    mut driver: watch::Receiver<SocketAddr>,
    host: HostId,
    holder: WillHolder,
) {
    loop {
        sleep(PAUSE).await;
        let address = *driver.borrow_and_update();
        match seal(address, &keys, &host, &holder).await {
            Ok(mut stream) => tokio::select! {
                () = ended(&mut stream) => {}
                moved = driver.changed() => if moved.is_err() { return },
            },
            // An older release does not know this purpose, and would log each attempt.
            Err(error @ PeerError::Untrusted(_)) => {
                tracing::debug!(%error, "the driver takes no last will");
                if driver.changed().await.is_err() {
                    return;
                }
            }
            Err(error) => tracing::debug!(%error, "the last will is not at the driver yet"),
        }
    }
}

/// Opens a connection, and gives it with the encrypted message to the reaper process.
async fn seal(
    driver: SocketAddr,
    keys: &Keys,
    host: &HostId,
    holder: &WillHolder,
) -> Result<TcpStream, PeerError> {
    let mut connection = connect::dial(driver, keys, Purpose::LastWill).await?;
    let agent = process_number().map_err(std::io::Error::other)?;
    let of = LastWillOf {
        host: host.clone(),
        agent,
    };
    let sent = opening::write(&mut connection.stream, &of);
    timeout(HANDSHAKE_TIMEOUT, sent)
        .await
        .map_err(|_| PeerError::TimedOut)??;
    let (mut session, stream, _) = connection.stream.into_parts();
    let message = frame::to_frame(&LastWill { why: WHY.into() })?;
    session.send(&message).map_err(opening::Error::from)?;
    let mut sealed = Vec::new();
    session.take_outgoing(&mut sealed);
    holder.hold(&stream, &sealed)?;
    Ok(stream)
}

/// Waits until the connection ends. What the driver sends, such as tickets of TLS, has no meaning here.
async fn ended(stream: &mut TcpStream) {
    let mut bytes = [0; 1024];
    while stream.read(&mut bytes).await.is_ok_and(|count| count > 0) {}
}
