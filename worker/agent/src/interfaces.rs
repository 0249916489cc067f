//! The network interface whose address other hosts reach.

use std::net::IpAddr;

use crate::Error;

/// The address of the first of these interfaces that this host has, with an address of the family of `like`.
///
/// # Errors
/// [`Error::Interface`] if there is none, [`Error::System`] if the interfaces cannot be listed.
pub(crate) fn address(names: &[String], like: IpAddr) -> Result<IpAddr, Error> {
    let all = nix::ifaddrs::getifaddrs().map_err(|error| Error::System {
        what: "list the network interfaces",
        source: error.into(),
    })?;
    let here: Vec<_> = all
        .filter_map(|interface| {
            let address = interface.address?;
            let v4 = address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
            let ip = v4.or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip())))?;
            Some((interface.interface_name, ip))
        })
        .collect();
    choose(names, &here, like).ok_or_else(|| Error::Interface {
        name: names.join(" or "),
    })
}

/// The address of the first name in `names` that has one of the family of `like`.
fn choose(names: &[String], here: &[(String, IpAddr)], like: IpAddr) -> Option<IpAddr> {
    let of_family = |address: &IpAddr| address.is_ipv4() == like.is_ipv4();
    names.iter().find_map(|name| {
        let mut own = here.iter().filter(|(interface, _)| interface == name);
        own.find_map(|(_, address)| Some(*address).filter(of_family))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_interface_with_an_address_of_the_family_counts() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let here = [
            ("lo", "127.0.0.1"),
            ("eth0", "10.0.0.1"),
            ("eth1", "fd00::1"),
            ("eth1", "10.1.0.1"),
        ];
        let here = here.map(|(name, address)| (name.to_owned(), ip(address)));
        let choose = |names: &[&str], like| {
            let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
            choose(&names, &here, ip(like))
        };
        assert_eq!(choose(&["eth9", "eth1"], "10.0.0.9"), Some(ip("10.1.0.1")));
        assert_eq!(choose(&["eth0", "eth1"], "10.0.0.9"), Some(ip("10.0.0.1")));
        assert_eq!(choose(&["eth0", "eth1"], "fd00::9"), Some(ip("fd00::1")));
        assert_eq!(choose(&["eth9"], "10.0.0.9"), None);
    }
}
