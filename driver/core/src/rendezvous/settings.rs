//! Settings of a rendezvous, with the names and defaults of PyTorch.

use std::time::Duration;

use super::mutant::{Mutant, planted};

/// The settings of a node. All nodes of a rendezvous need the same ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    min_nodes: usize,
    pub(super) max_nodes: usize,
    pub(super) join_timeout: Duration,
    pub(super) last_call_timeout: Duration,
    pub(super) close_timeout: Duration,
    pub(super) heartbeat_timeout: Duration,
    pub(super) keep_alive_interval: Duration,
    pub(super) keep_alive_max_attempt: u32,
    pub(super) cas_backoff_max: Duration,
}

impl Settings {
    /// The defaults for `min_nodes..=max_nodes` nodes (`--nnodes MIN:MAX`).
    ///
    /// # Errors
    /// `min_nodes` is 0 or larger than `max_nodes`, or `max_nodes` exceeds [`State::MAX_NODES`](super::State::MAX_NODES).
    pub fn new(min_nodes: usize, max_nodes: usize) -> Result<Self, SettingsError> {
        if min_nodes == 0 || min_nodes > max_nodes || max_nodes > super::State::MAX_NODES {
            return Err(SettingsError::Nodes {
                min_nodes,
                max_nodes,
            });
        }
        Ok(Self {
            min_nodes,
            max_nodes,
            join_timeout: Duration::from_secs(600),
            last_call_timeout: Duration::from_secs(30),
            close_timeout: Duration::from_secs(30),
            heartbeat_timeout: Duration::from_secs(5),
            keep_alive_interval: Duration::from_secs(5),
            keep_alive_max_attempt: 3,
            cas_backoff_max: Duration::ZERO,
        })
    }

    /// These settings with one pair of `--rdzv-conf KEY=VALUE,...`.
    ///
    /// | key | default | meaning |
    /// |---|---|---|
    /// | `join_timeout` | 600 | seconds in which a node must become a participant; a redundant node waits without a limit |
    /// | `last_call_timeout` | 30 | seconds for further nodes after a round has `min_nodes` |
    /// | `close_timeout` | 30 | seconds in which a node must close the rendezvous, or leave it |
    /// | `heartbeat_timeout` | 5 | seconds in which the holder must answer |
    /// | `keep_alive_interval` | 5 | seconds between two heartbeats of a node |
    /// | `keep_alive_max_attempt` | 3 | heartbeats that a node misses before it is removed |
    /// | `cas_backoff_max_seconds` | 0 | longest random delay after a lost compare-and-set, in seconds |
    ///
    /// Seconds may have a fraction.
    ///
    /// # Errors
    /// The key is not in the table, or the value is no such number.
    pub fn with(mut self, key: &str, value: &str) -> Result<Self, SettingsError> {
        let invalid = || SettingsError::Value {
            key: key.to_owned(),
            value: value.to_owned(),
        };
        if key == "keep_alive_max_attempt" {
            let attempts = value.parse().ok().filter(|attempts| *attempts > 0);
            self.keep_alive_max_attempt = attempts.ok_or_else(invalid)?;
            return Ok(self);
        }
        let (field, may_be_zero) = match key {
            "join_timeout" => (&mut self.join_timeout, false),
            "last_call_timeout" => (&mut self.last_call_timeout, false),
            "close_timeout" => (&mut self.close_timeout, false),
            "heartbeat_timeout" => (&mut self.heartbeat_timeout, false),
            "keep_alive_interval" => (&mut self.keep_alive_interval, false),
            "cas_backoff_max_seconds" => (&mut self.cas_backoff_max, true),
            _ => {
                return Err(SettingsError::Key {
                    key: key.to_owned(),
                });
            }
        };
        let seconds = value.parse().ok().filter(|seconds| *seconds <= MAX_SECONDS);
        let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let allowed = duration.filter(|duration| may_be_zero || !duration.is_zero());
        *field = allowed.ok_or_else(invalid)?;
        Ok(self)
    }

    /// The number of participants from which on a round may complete.
    pub(super) fn min_nodes(&self) -> usize {
        match planted(Mutant::FewerThanMinimum) {
            true => self.min_nodes.saturating_sub(1).max(1),
            false => self.min_nodes,
        }
    }

    /// How long closing, or leaving, may take.
    pub fn close_timeout(&self) -> Duration {
        self.close_timeout
    }

    /// How long a participant may be without a confirmed heartbeat. No other node removes it earlier.
    pub fn lease(&self) -> Duration {
        self.keep_alive_interval
            .saturating_mul(self.keep_alive_max_attempt)
    }
}

/// A thousand years: sums of times stay far from an overflow.
const MAX_SECONDS: f64 = 3.2e10;

/// Settings that no rendezvous can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// The numbers of nodes do not fit together.
    #[error(
        "{min_nodes}:{max_nodes} nodes: the minimum must be 1 or more, and the maximum not below it and not above {limit}",
        limit = super::State::MAX_NODES
    )]
    Nodes {
        /// The minimum.
        min_nodes: usize,
        /// The maximum.
        max_nodes: usize,
    },
    /// There is no such setting.
    #[error("{key} is no setting of the rendezvous")]
    Key {
        /// The key.
        key: String,
    },
    /// The value of a setting is not allowed.
    #[error("{key}={value}: give a positive number")]
    Value {
        /// The key.
        key: String,
        /// The value.
        value: String,
    },
}
