//! The network interfaces of a host, and the one whose address other hosts reach.

use std::{io, net::IpAddr};

use crate::Error;

/// An interface that the user has chosen, as this host has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    /// The name, such as `eth0`.
    pub(crate) name: String,
    /// The address that other hosts reach.
    pub(crate) address: IpAddr,
    /// Another interface of this host has a name that begins with this one, as `eth10` does with `eth1`.
    pub(crate) is_prefix: bool,
}

/// The network interfaces of this host: a row for each address, and one for each interface without an address.
#[derive(Debug)]
pub struct LocalInterfaces(Vec<(String, Option<IpAddr>)>);

/// How many interfaces a message names.
const MAX_NAMED: usize = 16;

impl LocalInterfaces {
    /// Lists them.
    ///
    /// # Errors
    /// The error of the system.
    pub fn list() -> io::Result<Self> {
        let rows = nix::ifaddrs::getifaddrs()?.map(|interface| {
            let ip = interface.address.and_then(|address| {
                let v4 = address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
                v4.or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip())))
            });
            (interface.interface_name, ip)
        });
        Ok(Self(rows.collect()))
    }

    /// Whether one of these interfaces has an address.
    #[must_use]
    pub fn has_any(&self, names: &[String]) -> bool {
        let mut rows = self.0.iter();
        rows.any(|(name, address)| address.is_some() && names.contains(name))
    }

    /// The names of the interfaces that have an address, for a message: `eth0, eth1 or lo`.
    #[must_use]
    pub fn usable(&self) -> String {
        self.named(|_| true)
    }

    /// The names of the interfaces that have an address for which `accepts` is true.
    fn named(&self, accepts: impl Fn(IpAddr) -> bool) -> String {
        let mut names: Vec<&str> = Vec::new();
        for (name, address) in &self.0 {
            if address.is_some_and(&accepts) && !names.contains(&&**name) {
                names.push(name);
            }
        }
        let left_out = names.len().saturating_sub(MAX_NAMED);
        names.truncate(MAX_NAMED);
        let others = format!("{left_out} others");
        if left_out > 0 {
            names.push(&others);
        }
        match names.split_last() {
            None => "none".to_owned(),
            Some((last, [])) => (*last).to_owned(),
            Some((last, names)) => format!("{} or {last}", names.join(", ")),
        }
    }

    /// The first of these interfaces that has an address of the family of `like`.
    ///
    /// # Errors
    /// [`Error::Interface`] if there is none.
    pub(crate) fn find(&self, names: &[String], like: IpAddr) -> Result<Interface, Error> {
        let chosen = names.iter().find_map(|name| self.get(name, like));
        chosen.ok_or_else(|| Error::Interface {
            name: names.join(" or "),
            version: if like.is_ipv4() { 4 } else { 6 },
            usable: self.named(|address| address.is_ipv4() == like.is_ipv4()),
        })
    }

    fn get(&self, name: &String, like: IpAddr) -> Option<Interface> {
        let of_family = |address: &IpAddr| address.is_ipv4() == like.is_ipv4();
        let mut own = self.0.iter().filter(|(interface, _)| interface == name);
        let address = own.find_map(|(_, address)| address.filter(of_family))?;
        let is_longer = |other: &String| other != name && other.starts_with(name);
        Some(Interface {
            name: name.clone(),
            address,
            is_prefix: self.0.iter().any(|(other, _)| is_longer(other)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> LocalInterfaces {
        let rows = [
            ("lo", Some("127.0.0.1")),
            ("eth0", Some("10.0.0.1")),
            ("eth1", Some("fd00::1")),
            ("eth1", Some("10.1.0.1")),
            ("eth10", None),
        ];
        let row = |(name, address): (&str, Option<&str>)| {
            let address = address.map(|text| text.parse().unwrap());
            (name.to_owned(), address)
        };
        LocalInterfaces(rows.map(row).into())
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    fn find(chosen: &[&str], like: &str) -> Result<Interface, Error> {
        host().find(&names(chosen), like.parse().unwrap())
    }

    #[test]
    fn the_first_interface_with_an_address_of_the_family_counts() {
        let found = |chosen: &[&str], like| {
            let interface = find(chosen, like).ok()?;
            Some(format!("{} {}", interface.name, interface.address))
        };
        let is = |text: &str| Some(text.to_owned());
        assert_eq!(found(&["eth9", "eth1"], "10.0.0.9"), is("eth1 10.1.0.1"));
        assert_eq!(found(&["eth0", "eth1"], "10.0.0.9"), is("eth0 10.0.0.1"));
        assert_eq!(found(&["eth0", "eth1"], "fd00::9"), is("eth1 fd00::1"));
        assert_eq!(found(&["eth9"], "10.0.0.9"), None);
        assert_eq!(found(&["eth10"], "10.0.0.9"), None);
    }

    #[test]
    fn a_name_that_another_one_begins_with_is_a_prefix() {
        let is_prefix = |name| find(&[name], "10.0.0.9").unwrap().is_prefix;
        assert!(is_prefix("eth1"));
        assert!(!is_prefix("eth0"));
    }

    #[test]
    fn interfaces_that_exist_are_named() {
        let error = find(&["eth8", "eth9"], "10.0.0.9").unwrap_err();
        let text = "network interface eth8 or eth9 of this host has no address of the driver's family (IPv4); expected lo, eth0 or eth1";
        assert_eq!(error.to_string(), text);
        let error = find(&["eth0"], "fd00::9").unwrap_err().to_string();
        assert!(error.ends_with("(IPv6); expected eth1"), "{error}");
        assert!(host().has_any(&names(&["eth9", "lo"])));
        assert!(!host().has_any(&names(&["eth9", "eth10"])), "no address");
        let many = (0..40).map(|number| (format!("eth{number}"), "10.0.0.1".parse().ok()));
        let text = LocalInterfaces(many.collect()).usable();
        assert!(text.ends_with("eth14, eth15 or 24 others"), "{text}");
        assert_eq!(LocalInterfaces(Vec::new()).usable(), "none");
    }
}
