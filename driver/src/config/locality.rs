//! Which hosts are this machine, and which launcher starts the agent of a host.

use std::net::IpAddr;

use elasticrun_plugin_sdk::hosts::HostSpec;

use super::kinds::Launcher;

/// Whether a name or address is this machine: `localhost`, a loopback address, the name of the machine, or an address of
/// one of its interfaces. Queries no name server.
#[must_use]
pub fn is_local(host: &str) -> bool {
    match host.parse::<IpAddr>() {
        Ok(address) => {
            address.to_canonical().is_loopback()
                || interface_addresses().any(|local| local == address)
        }
        Err(_) => host.eq_ignore_ascii_case("localhost") || is_hostname(host),
    }
}

/// The launcher of a host's agent: `choice` if it is given. Else the local one if the host is this machine and has neither
/// user nor port, else ssh.
#[must_use]
pub fn launcher_of(choice: Option<Launcher>, host: &HostSpec) -> Launcher {
    choice.unwrap_or_else(|| {
        if host.user.is_none() && host.port.is_none() && is_local(&host.host) {
            Launcher::Local
        } else {
            Launcher::Ssh
        }
    })
}

/// Whether a name is that of this machine. Compares the domains only if both names have one.
fn is_hostname(host: &str) -> bool {
    let Some(hostname) = nix::unistd::gethostname()
        .ok()
        .and_then(|name| name.into_string().ok())
    else {
        return false;
    };
    let short = |name: &str| {
        name.split('.')
            .next()
            .unwrap_or_default()
            .to_ascii_lowercase()
    };
    let both_full = host.contains('.') && hostname.contains('.');
    if both_full {
        host.eq_ignore_ascii_case(&hostname)
    } else {
        short(host) == short(&hostname)
    }
}

/// The addresses of all interfaces of this machine.
pub(crate) fn interface_addresses() -> impl Iterator<Item = IpAddr> {
    nix::ifaddrs::getifaddrs()
        .into_iter()
        .flatten()
        .filter_map(|interface| {
            let address = interface.address?;
            let v4 = address
                .as_sockaddr_in()
                .map(|address| IpAddr::V4(address.ip()));
            v4.or_else(|| {
                address
                    .as_sockaddr_in6()
                    .map(|address| IpAddr::V6(address.ip()))
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_of_this_machine() {
        for host in [
            "localhost",
            "LOCALHOST",
            "127.0.0.1",
            "127.9.9.9",
            "::1",
            "::ffff:127.0.0.1",
        ] {
            assert!(is_local(host), "{host}");
        }
        for host in ["192.0.2.1", "2001:db8::1", "elsewhere.invalid"] {
            assert!(!is_local(host), "{host}");
        }
    }

    #[test]
    fn a_host_with_a_user_or_a_port_uses_ssh() {
        let launcher = |host: &str| launcher_of(None, &host.parse().expect("a host"));
        assert_eq!(launcher("localhost:2"), Launcher::Local);
        assert_eq!(launcher("me@localhost:2"), Launcher::Ssh);
        assert_eq!(launcher("localhost slots=2 port=2222"), Launcher::Ssh);
        assert_eq!(launcher("192.0.2.1"), Launcher::Ssh);
        let host = "192.0.2.1".parse().expect("a host");
        assert_eq!(launcher_of(Some(Launcher::Agent), &host), Launcher::Agent);
    }
}
