//! Dials hosts of a round, to see whether this one reaches them: their memory ports, which prove that an agent of the
//! job is there. Nothing is asked over the connections.

use std::time::Duration;

use elasticrun_protocol::{
    HostId,
    auth::{Purpose, Secret},
    control::ProbeHost,
};
use tokio::{
    net::TcpStream,
    sync::mpsc,
    task::{AbortHandle, JoinSet},
    time::timeout,
};

use crate::{error::PeerError, inbox::Note, wire};

/// The probe that runs. A newer one replaces it, and it ends with the agent.
#[derive(Debug)]
pub(crate) struct Prober {
    notes: mpsc::Sender<Note>,
    task: Option<AbortHandle>,
}

impl Prober {
    /// Tells what it finds there.
    pub(crate) fn new(notes: mpsc::Sender<Note>) -> Self {
        Self { notes, task: None }
    }

    /// Dials all at once; each has so long to answer.
    pub(crate) fn probe(
        &mut self,
        number: u64,
        hosts: Vec<ProbeHost>,
        within: Duration,
        secret: Secret,
    ) {
        self.end();
        let notes = self.notes.clone();
        let task = tokio::spawn(async move {
            let unreachable = dial_all(hosts, within, &secret).await;
            let probed = Note::Probed {
                number,
                unreachable,
            };
            // Fails only at the agent's own end.
            let _ = notes.send(probed).await;
        });
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

/// The hosts that did not answer as agents of this job in time.
async fn dial_all(hosts: Vec<ProbeHost>, within: Duration, secret: &Secret) -> Vec<HostId> {
    let mut dials = JoinSet::new();
    for probed in hosts {
        let secret = secret.clone();
        dials.spawn(async move {
            let answered = timeout(within, dial(&probed, &secret)).await;
            match answered.unwrap_or(Err(PeerError::TimedOut)) {
                Ok(()) => None,
                Err(error) => {
                    let ProbeHost { host, address } = probed;
                    tracing::warn!(%host, %address, %error, "a host of the round is not reached");
                    Some(host)
                }
            }
        });
    }
    let mut unreachable: Vec<_> = dials.join_all().await.into_iter().flatten().collect();
    unreachable.sort();
    unreachable
}

async fn dial(probed: &ProbeHost, secret: &Secret) -> Result<(), PeerError> {
    let mut stream = TcpStream::connect(probed.address).await?;
    wire::dial(&mut stream, secret, Purpose::Memory).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::net::TcpListener;

    use super::*;
    use crate::{execute::data_secret, memory::Shelf, memory_port};

    fn secret() -> Secret {
        data_secret(&Secret::random().expect("the system gives random bytes"))
    }

    fn host(name: &str, port: u16) -> ProbeHost {
        ProbeHost {
            host: HostId::new(name),
            address: (Ipv4Addr::LOCALHOST, port).into(),
        }
    }

    #[tokio::test]
    async fn an_agent_of_the_job_answers_and_nobody_else_does() {
        let (ours, others) = (secret(), secret());
        let mut tasks = JoinSet::new();
        let mut open = async |secret: &Secret| {
            let shelf = Shelf::default();
            let local = Ipv4Addr::LOCALHOST.into();
            memory_port::open(local, secret.clone(), shelf, &mut tasks).await
        };
        let ready = open(&ours).await.unwrap();
        let foreign = open(&others).await.unwrap();
        // One that accepts and is silent, and one where nobody listens.
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
        let (sender, mut notes) = mpsc::channel(1);
        let mut prober = Prober::new(sender);
        prober.probe(6, hosts.clone(), Duration::from_secs(60), ours.clone());
        prober.probe(7, hosts, Duration::from_millis(300), ours);
        let Some(Note::Probed {
            number,
            unreachable,
        }) = notes.recv().await
        else {
            panic!("it says what it found");
        };
        let names: Vec<_> = unreachable.iter().map(HostId::as_str).collect();
        assert_eq!((number, names), (7, vec!["closed", "foreign", "silent"]));
    }
}
