//! Whether the former driver of a run lives on, although its lease in etcd has ended.

use std::time::Duration;

use elasticrun_protocol::opening::Purpose;
use elasticrun_tls::{ClientConfig, Credentials, Role, opening};
use tokio::{net::TcpStream, time::timeout};

use crate::trust::Trust;

/// How long each address has for its answer.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Whether a driver of the run answers at one of these addresses. Another program there has no certificate of the run. A driver that
/// stands still does not answer.
pub(crate) async fn answers(endpoints: &[String], run: &str, trust: &Trust) -> bool {
    let Ok(client) = client(run, trust) else {
        return false;
    };
    for endpoint in endpoints {
        let dialled = async {
            let stream = TcpStream::connect(endpoint).await.ok()?;
            opening::dial(stream, &client, Purpose::Control, TIMEOUT)
                .await
                .ok()
        };
        if timeout(TIMEOUT, dialled).await.ok().flatten().is_some() {
            return true;
        }
    }
    false
}

/// A client with the certificate of a host of the run.
fn client(run: &str, trust: &Trust) -> Result<ClientConfig, elasticrun_tls::Error> {
    let name = format!("standby of {run}");
    let credentials = Credentials::issue(trust.certificate_authority(), trust.secret(), &name)?;
    ClientConfig::new(&credentials.agent, Role::Driver)
}
