//! For whom a leader waits, once it has waited for long: for a message to a person, from any thread.

use std::{
    net::SocketAddr,
    sync::{Mutex, PoisonError},
};

/// A host that a leader waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LateHost {
    /// Its place in the round.
    pub(crate) host_index: u32,
    /// Where its leader listens.
    pub(crate) address: Option<SocketAddr>,
    /// Its machine acknowledges what it is sent.
    pub(crate) answers: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Late(Mutex<Vec<LateHost>>);

impl Late {
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

/// What to say of a wait for these.
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
    fn hosts_are_named_and_a_cut_is_not_laid_at_the_users_door() {
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
