//! The roles of processes, as names in certificates.

use std::fmt;

use rustls::pki_types::ServerName;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// What a process is in its job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The driver, also one that takes the job over.
    Driver,
    /// The agent of a host.
    Agent,
    /// A worker process.
    Worker,
    /// A program whose function the workers call, such as one that calls `elasticrun.run`.
    Caller,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 4] = [Self::Driver, Self::Agent, Self::Worker, Self::Caller];

    fn word(self) -> &'static str {
        match self {
            Self::Driver => "driver",
            Self::Agent => "agent",
            Self::Worker => "worker",
            Self::Caller => "caller",
        }
    }

    /// The name that each certificate of this role has: `driver.elasticrun`.
    pub fn name(self) -> String {
        format!("{}.elasticrun", self.word())
    }

    /// The name that only the certificates of this role on one host have: 32 hexadecimal digits before [`Role::name`].
    ///
    /// The digits are a hash, since names of hosts and runs are not limited to the characters of a DNS name.
    pub fn name_on(self, run_id: &str, host: &str) -> String {
        let mut hash = Sha256::new();
        hash.update((run_id.len() as u64).to_be_bytes());
        hash.update(run_id);
        hash.update(host);
        let digits: String = hash.finalize()[..16]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        format!("{digits}.{}", self.name())
    }

    pub(crate) fn server_name(self) -> ServerName<'static> {
        server_name(self.name())
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

pub(crate) fn server_name(name: String) -> ServerName<'static> {
    name.try_into()
        .expect("letters, digits and dots are a DNS name")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_of_each_run_has_a_name_of_its_own() {
        let name = Role::Agent.name_on("run", "node-1");
        assert_eq!(name.len(), 32 + ".agent.elasticrun".len());
        for other in [
            Role::Worker.name_on("run", "node-1"),
            Role::Agent.name_on("run", "node-2"),
            Role::Agent.name_on("run2", "node-1"),
            // The boundary between run and host counts.
            Role::Agent.name_on("runn", "ode-1"),
        ] {
            assert_ne!(name, other);
        }
    }

    #[test]
    fn any_run_and_host_give_a_dns_name() {
        for text in ["", "a b", "ä.ö", "*", &"x".repeat(300)] {
            server_name(Role::Driver.name_on(text, text));
        }
    }
}
