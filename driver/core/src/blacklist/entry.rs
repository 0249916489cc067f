//! Failure domains in the journal.

use std::collections::BTreeSet;

use super::{Blacklist, Domain, Entry, Health, Out};
use crate::{
    journal::{DomainEntry, OutEntry},
    time::Time,
};

impl Blacklist {
    /// Takes the domains whose record has changed.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<Domain> {
        self.changed.take()
    }

    /// The record of a domain. `None` if it has not failed.
    pub(crate) fn entry(&self, now: Time, domain: &Domain) -> Option<DomainEntry> {
        let entry = self.entries.get(domain)?;
        Some(DomainEntry {
            domain: domain.clone(),
            failures: entry.failures,
            out: entry.out.map(|out| match out {
                Out::Until(end) => OutEntry::For(end.since(now)),
                Out::ForGood => OutEntry::ForGood,
            }),
            recent: self.episode.contains(domain),
            at: None,
        })
    }

    /// Adds a domain that failed under an earlier driver. Its health begins anew.
    pub(crate) fn restore(&mut self, now: Time, entry: DomainEntry) {
        let domain = entry.domain;
        if entry.recent {
            self.episode.insert(domain.clone());
        }
        let restored = Entry {
            failures: entry.failures,
            failed: now,
            health: Health::default(),
            out: None,
        };
        self.entries.insert(domain.clone(), restored);
        let out = entry.out.map(|out| match out {
            OutEntry::For(left) => Out::Until(now + left),
            OutEntry::ForGood => Out::ForGood,
        });
        self.set_out(&domain, out);
    }
}
