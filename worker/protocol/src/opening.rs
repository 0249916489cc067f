//! The first messages of a connection between two hosts, after mutual TLS: what it is for, and which version both sides speak.
//!
//! ```text
//! dialler                              listener
//!   Hello { versions, purpose }    ->
//!                                  <-  Verdict::Welcome { version } | Verdict::Refused { why }
//! ```
//! Releases of protocol versions 1 and 2 send their hello in clear, with more fields, and read a refusal in clear. Both messages
//! keep the form that such a release knows.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

/// The oldest protocol version that this build speaks. Earlier versions have no TLS.
pub const MIN_VERSION: u16 = 3;
/// The newest protocol version that this build speaks. Version 4 has queues, lists of keys and large values
/// ([`crate::store`]).
pub const MAX_VERSION: u16 = 4;
/// The only version for [`Purpose::Rendezvous`]. With version 5, heartbeats are requests of their own ([`crate::rendezvous`]).
pub const RENDEZVOUS_VERSION: u16 = 5;

const MAGIC: &str = "elasticrun";

/// The purpose of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// Commands and reports between driver and agent.
    Control,
    /// Output lines of workers, from agent to driver.
    Output,
    /// A committed state, from the agent that keeps it to a worker.
    Memory,
    /// Requests of workers to the job's key-value store, from agent to driver.
    Store,
    /// The death of an agent, which its reaper process reports to the driver.
    LastWill,
    /// The state or the keys of a dynamic rendezvous, from a node to the server of its endpoint ([`crate::rendezvous`]).
    Rendezvous,
}

impl Purpose {
    /// The versions that this build speaks for the purpose.
    fn versions(self) -> RangeInclusive<u16> {
        match self {
            Self::Rendezvous => RENDEZVOUS_VERSION..=RENDEZVOUS_VERSION,
            _ => MIN_VERSION..=MAX_VERSION,
        }
    }
}

/// What an opening has agreed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opened {
    /// The purpose of the connection.
    pub purpose: Purpose,
    /// The protocol version that both sides speak from now on.
    pub version: u16,
}

/// The first frame of the dialler.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// Always `elasticrun`.
    pub magic: String,
    /// The oldest version that the dialler speaks.
    pub min: u16,
    /// The newest version that the dialler speaks.
    pub max: u16,
    /// The dialler's release, only for messages to users.
    pub software: String,
    /// The purpose of the connection.
    pub purpose: Purpose,
}

/// The first frame of the listener.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The connection is open.
    Welcome {
        /// The version that both sides speak from now on.
        version: u16,
    },
    /// The connection ends.
    Refused {
        /// A message for the user.
        why: String,
    },
}

/// Why the sides of a connection do not agree.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// The peer does not speak this protocol.
    #[error("the peer does not speak elasticrun's protocol")]
    Stranger,
    /// The peers have no version in common.
    #[error(
        "the peer runs elasticrun {software} (protocol {min} to {max}), this is {own} (protocol {from} to {to}); install the same release on both",
        own = env!("CARGO_PKG_VERSION"),
        from = own_versions.start(),
        to = own_versions.end()
    )]
    Version {
        /// The peer's release.
        software: String,
        /// The peer's oldest version.
        min: u16,
        /// The peer's newest version.
        max: u16,
        /// The versions of this build.
        own_versions: RangeInclusive<u16>,
    },
    /// This port does not serve that purpose.
    #[error("the peer wants {0:?}, which is not served at this port")]
    Purpose(Purpose),
    /// The listener refused the dialler.
    #[error("refused by the peer: {0}")]
    Refused(String),
}

impl Hello {
    /// The hello of this build.
    pub fn new(purpose: Purpose) -> Self {
        Self {
            magic: MAGIC.into(),
            min: *purpose.versions().start(),
            max: *purpose.versions().end(),
            software: env!("CARGO_PKG_VERSION").into(),
            purpose,
        }
    }

    /// Judges the hello of a dialler. `serves` lists the purposes of this port.
    ///
    /// # Errors
    /// [`Error::Stranger`], [`Error::Version`] or [`Error::Purpose`].
    pub fn check(&self, serves: &[Purpose]) -> Result<Opened, Error> {
        if self.magic != MAGIC {
            return Err(Error::Stranger);
        }
        let own_versions = self.purpose.versions();
        let version = self.max.min(*own_versions.end());
        if self.min > version || version < *own_versions.start() {
            return Err(Error::Version {
                software: self.software.clone(),
                min: self.min,
                max: self.max,
                own_versions,
            });
        }
        if !serves.contains(&self.purpose) {
            return Err(Error::Purpose(self.purpose));
        }
        Ok(Opened {
            purpose: self.purpose,
            version,
        })
    }

    /// Reads the answer of the listener to this hello.
    ///
    /// # Errors
    /// [`Error::Refused`], or [`Error::Stranger`] for a version that this build does not speak.
    pub fn answered(&self, verdict: Verdict) -> Result<Opened, Error> {
        match verdict {
            Verdict::Welcome { version } if (self.min..=self.max).contains(&version) => {
                Ok(Opened {
                    purpose: self.purpose,
                    version,
                })
            }
            Verdict::Welcome { .. } => Err(Error::Stranger),
            Verdict::Refused { why } => Err(Error::Refused(why)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_speak_the_newest_version_that_both_know() {
        let hello = Hello::new(Purpose::Output);
        let newer = Hello {
            max: MAX_VERSION + 1,
            ..hello.clone()
        };
        for hello in [hello, newer] {
            let opened = hello.check(&[Purpose::Control, Purpose::Output]).unwrap();
            assert_eq!(opened.version, MAX_VERSION);
            let version = opened.version;
            assert_eq!(hello.answered(Verdict::Welcome { version }), Ok(opened));
        }
    }

    /// A node sends requests that an earlier server does not know, and an earlier node would write states that nobody reads.
    #[test]
    fn nodes_of_a_rendezvous_and_its_server_have_one_version() {
        let hello = Hello::new(Purpose::Rendezvous);
        assert!(hello.min > MAX_VERSION, "an earlier server refuses it");
        let opened = hello.check(&[Purpose::Rendezvous]).unwrap();
        assert_eq!(opened.version, RENDEZVOUS_VERSION);
        let version = opened.version;
        assert_eq!(hello.answered(Verdict::Welcome { version }), Ok(opened));
        let earlier = Hello {
            min: MIN_VERSION,
            max: MAX_VERSION,
            software: "0.0.9".into(),
            ..hello
        };
        let text = earlier
            .check(&[Purpose::Rendezvous])
            .unwrap_err()
            .to_string();
        assert!(text.contains("0.0.9 (protocol 3 to 4), this is"), "{text}");
        assert!(text.contains("(protocol 5 to 5)"), "{text}");
    }

    #[test]
    fn what_is_not_served_is_refused() {
        let hello = Hello::new(Purpose::Memory);
        assert_eq!(
            hello.check(&[Purpose::Control]),
            Err(Error::Purpose(Purpose::Memory))
        );
        let other = Hello {
            magic: "http".into(),
            ..hello.clone()
        };
        assert_eq!(other.check(&[Purpose::Memory]), Err(Error::Stranger));
        let why = "no".to_owned();
        assert_eq!(
            hello.answered(Verdict::Refused { why: why.clone() }),
            Err(Error::Refused(why))
        );
        let version = MAX_VERSION + 1;
        assert_eq!(
            hello.answered(Verdict::Welcome { version }),
            Err(Error::Stranger)
        );
    }

    #[test]
    fn a_release_without_tls_is_refused_by_its_version_and_reads_why() {
        let earlier = r#"{"magic":"elasticrun","min":1,"max":2,"software":"0.0.9","purpose":"control","nonce":"00"}"#;
        let earlier: Hello = serde_json::from_str(earlier).unwrap();
        let error = earlier.check(&[Purpose::Control]).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("0.0.9 (protocol 1 to 2)"), "{text}");
        let refused = Verdict::Refused { why: text.clone() };
        let refused = serde_json::to_value(refused).unwrap();
        assert_eq!(refused, serde_json::json!({"refused": {"why": text}}));
    }
}
