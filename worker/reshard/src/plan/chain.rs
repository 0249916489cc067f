//! Hosts that pass bytes on to each other.
//!
//! Members that need the same bytes of one shard form a chain of their hosts, in the order of their numbers. The first host
//! reads from the holder, and each other one from the host before it. So the holder sends each byte once.
//!
//! ```text
//! holder --> host 1 --> host 2 --> host 5
//!              |          |
//!            member    two members
//! ```
//!
//! A host passes on through its agent, which costs a copy there. The last host of a chain needs its agent only if several of
//! its members need the bytes.

/// Hosts that read the same bytes of one holder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chain {
    /// Index of the holder that sends to the first host.
    pub holder: u32,
    /// Bytes that each of them reads.
    pub bytes: u64,
    /// The hosts, by number.
    pub hosts: Vec<Link>,
}

/// A host of a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// The host.
    pub host: u32,
    /// Its members that need the bytes, at least 1.
    pub readers: u32,
}

/// A host that a member asks for bytes, instead of their holder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Relay {
    /// The host.
    pub host: u32,
    /// How often it is asked for each byte: by its members, and by the next host.
    pub requests: u32,
}

impl Chain {
    /// The hosts from which a member on this host gets the bytes: the first one is asked by the member, and each by the one
    /// before it. The last one asks the holder; if there is none, the member does.
    pub fn relays(&self, host: u32) -> Vec<Relay> {
        let end = self.hosts.partition_point(|link| link.host <= host);
        let relays = self.hosts[..end].iter().enumerate().rev();
        let relays = relays.filter_map(|(nth, link)| {
            let has_next = nth + 1 < self.hosts.len();
            (has_next || link.readers > 1).then_some(Relay {
                host: link.host,
                requests: link.readers + u32::from(has_next),
            })
        });
        relays.collect()
    }

    /// The hosts that keep the bytes for others.
    pub(super) fn keepers(&self) -> impl Iterator<Item = u32> {
        let last = self.hosts.len().saturating_sub(1);
        let hosts = self.hosts.iter().enumerate();
        let keepers = hosts.filter(move |(nth, link)| *nth < last || link.readers > 1);
        keepers.map(|(_, link)| link.host)
    }
}
