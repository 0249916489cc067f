//! Whether the former driver of a run lives on, although its lease in etcd has ended.

use std::time::Duration;

use elasticrun_protocol::opening::Purpose;
use elasticrun_tls::{ClientConfig, Credentials, Role, opening};
use tokio::{net::TcpStream, task::JoinSet, time::timeout};

use crate::trust::Trust;

/// How long the addresses have for an answer.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The address at which a driver of the run answers. All are asked at once, since one that swallows packets answers nothing. Another
/// program there has no certificate of the run. A driver that stands still does not answer.
pub(crate) async fn answers(endpoints: &[String], run: &str, trust: &Trust) -> Option<String> {
    let client = client(run, trust).ok()?;
    let mut dialled = JoinSet::new();
    for endpoint in endpoints {
        dialled.spawn(dial(endpoint.clone(), client.clone()));
    }
    let first = async {
        while let Some(answer) = dialled.join_next().await {
            if let Ok(Some(endpoint)) = answer {
                return Some(endpoint);
            }
        }
        None
    };
    timeout(TIMEOUT, first).await.ok().flatten()
}

/// The address, if a driver of the run answers there.
async fn dial(endpoint: String, client: ClientConfig) -> Option<String> {
    let stream = TcpStream::connect(&endpoint).await.ok()?;
    let dialled = opening::dial(stream, &client, Purpose::Control, TIMEOUT).await;
    dialled.is_ok().then_some(endpoint)
}

/// A client with the certificate of a host of the run.
fn client(run: &str, trust: &Trust) -> Result<ClientConfig, elasticrun_tls::Error> {
    let name = format!("standby of {run}");
    let credentials = Credentials::issue(trust.certificate_authority(), trust.secret(), &name)?;
    ClientConfig::new(&credentials.agent, Role::Driver)
}
