//! Probes whether this host reaches the other hosts of a round: it connects to their memory ports and authenticates.
//! It sends no request.

use std::{sync::Arc, time::Duration};

use elasticrun_protocol::{HostId, control::ProbeHost, opening::Purpose};
use elasticrun_tls::opening;
use tokio::{
    net::TcpStream,
    sync::mpsc,
    task::{AbortHandle, JoinSet},
    time::timeout,
};
use tracing::Instrument as _;

use crate::{connect::HANDSHAKE_TIMEOUT, error::PeerError, inbox::InboxMessage, keys::Keys};

/// Runs one probe at a time. A newer probe replaces the running one.
#[derive(Debug)]
pub(crate) struct Prober {
    inbox: mpsc::Sender<InboxMessage>,
    task: Option<AbortHandle>,
}

impl Prober {
    /// Sends results to the inbox.
    pub(crate) fn new(inbox: mpsc::Sender<InboxMessage>) -> Self {
        Self { inbox, task: None }
    }

    /// Probes all hosts at once. Each must answer within the timeout `within`.
    pub(crate) fn probe(
        &mut self,
        number: u64,
        hosts: Vec<ProbeHost>,
        within: Duration,
        keys: Arc<Keys>,
    ) {
        self.end();
        let inbox = self.inbox.clone();
        let probing = async move {
            let unreachable = dial_all(hosts, within, &keys).await;
            let probed = InboxMessage::Probed {
                number,
                unreachable,
            };
            // Fails only at the agent's own end.
            let _ = inbox.send(probed).await;
        };
        let task = tokio::spawn(probing.in_current_span());
        self.task = Some(task.abort_handle());
    }

    fn end(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        self.end();
    }
}

/// Returns the hosts that did not authenticate as agents of this job in time.
async fn dial_all(hosts: Vec<ProbeHost>, within: Duration, keys: &Arc<Keys>) -> Vec<HostId> {
    let mut dials = JoinSet::new();
    for probed in hosts {
        let keys = keys.clone();
        let dialled = async move {
            let answered = timeout(within, dial(&probed, &keys)).await;
            match answered.unwrap_or(Err(PeerError::TimedOut)) {
                Ok(()) => None,
                Err(error) => {
                    let ProbeHost { host, address } = probed;
                    tracing::warn!(%host, %address, %error, "a host of the round is not reached");
                    Some(host)
                }
            }
        };
        dials.spawn(dialled.in_current_span());
    }
    let mut unreachable: Vec<_> = dials.join_all().await.into_iter().flatten().collect();
    unreachable.sort();
    unreachable
}

async fn dial(probed: &ProbeHost, keys: &Keys) -> Result<(), PeerError> {
    let stream = TcpStream::connect(probed.address).await?;
    stream.set_nodelay(true)?;
    opening::dial(stream, &keys.to_agents, Purpose::Memory, HANDSHAKE_TIMEOUT).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use elasticrun_protocol::auth::Secret;
    use elasticrun_tls::{Authority, Credentials};
    use tokio::net::TcpListener;

    use super::*;
    use crate::{memory::CommitRegistry, memory_port, passing_on::PassingOn};

    /// The keys of a host of a job of its own.
    fn keys() -> Arc<Keys> {
        let authority = Authority::new("run").expect("randomness");
        let secret = Secret::random().expect("randomness");
        let credentials = Credentials::issue(&authority, &secret, "localhost").expect("randomness");
        Arc::new(Keys::new(&credentials).expect("sound"))
    }

    fn host(name: &str, port: u16) -> ProbeHost {
        ProbeHost {
            host: HostId::new(name),
            address: (Ipv4Addr::LOCALHOST, port).into(),
        }
    }

    #[tokio::test]
    async fn only_an_agent_of_the_job_answers() {
        let (ours, others) = (keys(), keys());
        let mut tasks = JoinSet::new();
        let mut open = async |keys: &Arc<Keys>| {
            let served = memory_port::Served {
                registry: CommitRegistry::default(),
                passing_on: PassingOn::new(keys.clone()),
            };
            let local = Ipv4Addr::LOCALHOST.into();
            memory_port::open(local, keys.clone(), served, &mut tasks).await
        };
        let ready = open(&ours).await.unwrap();
        let foreign = open(&others).await.unwrap();
        // One port accepts and sends nothing; nothing listens at the other one.
        let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = closed.local_addr().unwrap().port();
        drop(closed);
        let hosts = vec![
            host("silent", silent.local_addr().unwrap().port()),
            host("ready", ready),
            host("foreign", foreign),
            host("closed", port),
        ];
        let (sender, mut inbox) = mpsc::channel(1);
        let mut prober = Prober::new(sender);
        prober.probe(6, hosts.clone(), Duration::from_secs(60), ours.clone());
        prober.probe(7, hosts, Duration::from_millis(300), ours);
        let Some(InboxMessage::Probed {
            number,
            unreachable,
        }) = inbox.recv().await
        else {
            panic!("it says what it found");
        };
        let names: Vec<_> = unreachable.iter().map(HostId::as_str).collect();
        assert_eq!((number, names), (7, vec!["closed", "foreign", "silent"]));
    }
}
