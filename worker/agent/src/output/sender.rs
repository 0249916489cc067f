//! Sends pieces from the queue to the driver over the connection for output.
//!
//! Each piece has a number, and is kept until the driver has acknowledged it. After a broken connection the sender
//! repeats what it keeps, and the driver drops what it has. So no piece is lost, and none arrives twice.

use std::{cell::Cell, collections::VecDeque, net::SocketAddr, rc::Rc, sync::Arc, time::Duration};

use elasticrun_protocol::{
    HostId,
    control::{self, OutputOf, OutputTaken},
    opening::Purpose,
};
use elasticrun_tls::TlsStream;
use tokio::{
    net::TcpStream,
    time::{sleep, timeout},
};

use super::queue::Queue;
use crate::{
    connect::{self, HANDSHAKE_TIMEOUT},
    duplex::Duplex,
    error::PeerError,
    keys::Keys,
};

const RECONNECT_INTERVAL: Duration = Duration::from_millis(500);

/// The pieces that the driver has not acknowledged.
#[derive(Debug)]
struct Sender {
    /// A random number that names this sender.
    id: u64,
    host: HostId,
    /// The number of the last piece.
    last: u64,
    unacknowledged: VecDeque<control::Output>,
}

/// Sends until the queue is closed, and the driver has all pieces. Reconnects after a failure.
pub(super) async fn run(
    keys: Arc<Keys>,
    driver: Rc<Cell<SocketAddr>>,
    host: HostId,
    queue: Rc<Queue>,
) {
    let mut sender = Sender {
        id: getrandom::u64().unwrap_or_default(),
        host,
        last: 0,
        unacknowledged: VecDeque::new(),
    };
    loop {
        let sent = match connect::dial(driver.get(), &keys, Purpose::Output).await {
            Ok(connection) => {
                let conn = Duplex::new(connection.stream, connection.frames);
                sender.send(conn, &queue).await
            }
            Err(error) => Err(error),
        };
        match sent {
            Ok(()) => return,
            Err(error) => tracing::debug!(%error, "no connection for output"),
        }
        let has_sent_all = sender.unacknowledged.is_empty() && queue.len() == 0;
        if queue.is_closed() && (has_sent_all || queue.has_given_up_driver()) {
            return;
        }
        tokio::select! {
            () = sleep(RECONNECT_INTERVAL) => {}
            () = queue.wait_closed(), if !queue.is_closed() => {}
        }
    }
}

impl Sender {
    /// Sends until the queue is closed and all pieces are acknowledged.
    async fn send(
        &mut self,
        mut conn: Duplex<TlsStream<TcpStream>>,
        queue: &Queue,
    ) -> Result<(), PeerError> {
        conn.queue(&OutputOf {
            host: self.host.clone(),
            sender: Some(self.id),
        })?;
        if !self.unacknowledged.is_empty() {
            let taken = timeout(HANDSHAKE_TIMEOUT, conn.next::<OutputTaken>()).await;
            self.acknowledged(taken.map_err(|_| PeerError::TimedOut)??, queue);
            for piece in &self.unacknowledged {
                conn.queue(piece)?;
            }
        }
        let mut ended = false;
        while !ended || !self.unacknowledged.is_empty() {
            tokio::select! {
                biased;
                taken = conn.next::<OutputTaken>() => self.acknowledged(taken?, queue),
                piece = queue.next(), if !ended && conn.has_capacity() => match piece {
                    Some(piece) => conn.queue(self.number(piece))?,
                    None => ended = true,
                },
            }
        }
        // All pieces are taken. A shutdown lets the driver see the end.
        conn.shutdown().await;
        Ok(())
    }

    /// Numbers a piece and keeps it.
    fn number(&mut self, mut piece: control::Output) -> &control::Output {
        self.last += 1;
        piece.number = self.last;
        self.unacknowledged.push_back(piece);
        &self.unacknowledged[self.unacknowledged.len() - 1]
    }

    fn acknowledged(&mut self, OutputTaken { number }: OutputTaken, queue: &Queue) {
        while let Some(piece) = (self.unacknowledged).pop_front_if(|piece| piece.number <= number) {
            queue.taken(piece.as_bytes().len());
        }
    }
}
