//! The hosts that a leader has waited for a long time, for messages to users, from any thread.

use std::{
    net::SocketAddr,
    sync::{Mutex, PoisonError},
};

/// A host that a leader waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LateHost {
    /// Its index in the round.
    pub(crate) host_index: u32,
    /// The address of its leader's listener.
    pub(crate) address: Option<SocketAddr>,
    /// Whether its machine acknowledges what is sent to it.
    pub(crate) answers: bool,
}

/// The current late hosts of a leader, shared between threads.
#[derive(Debug, Default)]
pub(crate) struct LateHosts(Mutex<Vec<LateHost>>);

impl LateHosts {
    pub(super) fn set(&self, hosts: Vec<LateHost>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = hosts;
    }

    pub(crate) fn hosts(&self) -> Vec<LateHost> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Describes a wait for these hosts.
pub(crate) fn explain(hosts: &[LateHost]) -> String {
    let named = |answers: bool| -> Vec<String> {
        let of = hosts.iter().filter(|host| host.answers == answers);
        of.map(|host| match host.address {
            Some(address) => format!("host {} ({})", host.host_index, address.ip()),
            None => format!("host {}", host.host_index),
        })
        .collect()
    };
    let (silent, late) = (named(false), named(true));
    if !silent.is_empty() {
        return format!(
            "no answer comes from {}: is the network between the hosts up?",
            silent.join(" and ")
        );
    }
    format!(
        "late is {}, or a host that it waits for itself: do all ranks make the same calls?",
        late.join(" or ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(host_index: u32, answers: bool) -> LateHost {
        LateHost {
            host_index,
            address: format!("10.0.0.{host_index}:4000").parse().ok(),
            answers,
        }
    }

    #[test]
    fn hosts_are_named_and_a_cut_is_not_blamed_on_the_user() {
        assert_eq!(
            explain(&[host(2, true), host(1, true)]),
            "late is host 2 (10.0.0.2) or host 1 (10.0.0.1), or a host that it waits for itself: do all ranks make \
             the same calls?"
        );
        assert_eq!(
            explain(&[host(2, true), host(1, false)]),
            "no answer comes from host 1 (10.0.0.1): is the network between the hosts up?"
        );
    }
}
