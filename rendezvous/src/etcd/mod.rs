//! The state of runs in a cluster of etcd: no node serves the rendezvous, and any node may be lost.
//!
//! ```text
//! PREFIX/torch/RUN/state          the state as bytes; the revision of its last change is its token
//! PREFIX/torch/RUN/beats/NODE     the revision of its last change is the number of the node's last heartbeat
//! ```
//! A revision grows with each write to the cluster, for ever, so tokens grow also if a state ends and another one begins. A
//! state that is not there has the revision of the read as its token.
//!
//! # Not promised
//! - More than about 3,000 nodes. etcd with its defaults refuses a state of more than 1.5 MB, and more steps in one transaction than
//!   the heartbeats of all members need.
//! - A heartbeat is a revision of the cluster: let etcd compact its history, by `--auto-compaction-retention`.
//! - A cluster that was restored from a backup gives old revisions again. Give the run another id.
//! - Secrecy. Who may write to the cluster can change a run.

mod follow;
mod run;

use std::{path::Path, time::Duration};

use elasticrun_etcd::{Address, Client, Options, Tls};

use crate::Error;
pub(crate) use follow::{Followed, follow};
pub(crate) use run::{Beaten, Refused, Run, Write};

/// What keys begin with if the address has no prefix.
const PREFIX: &str = "/elasticrun";

/// The files that prove who the cluster and this process are. Each is PEM.
#[derive(Clone, Copy, Debug, Default)]
pub struct TlsFiles<'a> {
    /// The certificates that are trusted; without it, those of the system.
    pub ca: Option<&'a Path>,
    /// The certificates of this process, and their key.
    pub client: Option<(&'a Path, &'a Path)>,
}

/// A cluster of etcd that holds the states of runs.
#[derive(Clone, Debug)]
pub struct Cluster {
    address: Address,
    options: Options,
    shown: String,
}

impl Cluster {
    /// What the text of such an address begins with.
    pub const SCHEME: &'static str = "etcd://";

    /// The cluster at `etcd://HOST[:PORT][,HOST[:PORT]...][/PREFIX]`. Nothing is sent yet.
    ///
    /// # Errors
    /// The text is no such address, or a file of the certificates cannot be used.
    pub fn new(text: &str, tls: Option<TlsFiles<'_>>) -> Result<Self, Error> {
        let refused = |why: &dyn std::fmt::Display| Error::Cluster {
            why: why.to_string(),
        };
        let address = Address::parse(text.trim()).map_err(|error| refused(&error))?;
        let mut options = Options::new(address.endpoints.clone());
        if let Some(files) = tls {
            let tls = Tls::from_files(files.ca, files.client);
            options.tls = Some(tls.map_err(|error| refused(&error))?);
        }
        Ok(Self {
            options,
            shown: format!("etcd://{}{}", address.endpoints.join(","), address.prefix),
            address,
        })
    }

    /// The members of the cluster, each as `HOST:PORT`, at least one.
    pub fn members(&self) -> &[String] {
        &self.address.endpoints
    }

    /// How long one attempt may take that tries all members.
    pub fn patience(&self) -> Duration {
        let members = u32::try_from(self.members().len()).unwrap_or(u32::MAX);
        self.options
            .deadline
            .saturating_mul(members.saturating_add(1))
    }

    /// The keys of a run, with connections of their own: those of one runtime end with it.
    pub(crate) fn run(&self, name: &str) -> Run {
        let prefix = match self.address.prefix.as_str() {
            "" => PREFIX,
            prefix => prefix,
        };
        let client = Client::new(&self.options).expect("there is no password to send");
        Run::new(client, &format!("{prefix}/torch/{}", escaped(name)))
    }
}

impl std::fmt::Display for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.shown)
    }
}

/// A name without slashes, so that no key of a run is one of another run.
fn escaped(name: &str) -> String {
    name.replace('%', "%25").replace('/', "%2F")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_have_keys_of_their_own() {
        assert_eq!(escaped("elasticrun/job"), "elasticrun%2Fjob");
        assert_ne!(escaped("a/b"), escaped("a%2Fb"));
    }

    #[test]
    fn addresses_are_those_of_the_journal() {
        let cluster = Cluster::new("etcd://a,b:4/x", None).expect("an address");
        assert_eq!(cluster.members(), ["a:2379", "b:4"]);
        assert_eq!(cluster.to_string(), "etcd://a:2379,b:4/x");
        let error = Cluster::new("etcd://", None).expect_err("no host");
        assert!(
            error.to_string().contains("expected etcd://HOST"),
            "{error}"
        );
        let missing = TlsFiles {
            ca: Some(Path::new("/no/such/file")),
            client: None,
        };
        let error = Cluster::new("etcd://a", Some(missing)).expect_err("no file");
        assert!(error.to_string().contains("/no/such/file"), "{error}");
    }
}
