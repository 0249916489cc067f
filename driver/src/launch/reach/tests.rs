use super::*;
use crate::config::Launcher;

/// A network in which this machine is 10.0.0.1 and fd00::1, and a few names have addresses.
#[derive(Default)]
struct Fake {
    ssh_name: Option<&'static str>,
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

impl Network for Fake {
    fn resolve(&self, name: &str) -> Vec<IpAddr> {
        match name {
            "both" => vec![ip("fd00::2"), ip("10.0.0.2"), ip("10.0.0.3")],
            "four" => vec![ip("10.0.0.4")],
            "linked" => vec![ip("fe80::2"), ip("10.0.0.4")],
            _ => Vec::new(),
        }
    }

    fn ssh_name(&self) -> Option<String> {
        self.ssh_name.map(str::to_owned)
    }

    fn local_address_toward(&self, to: IpAddr) -> Option<IpAddr> {
        Some(match to {
            IpAddr::V4(_) => ip("10.0.0.1"),
            IpAddr::V6(to) if to.is_unicast_link_local() => ip("fe80::1"),
            IpAddr::V6(_) => ip("fd00::1"),
        })
    }

    fn interfaces(&self) -> Vec<IpAddr> {
        ["127.0.0.1", "10.0.0.1", "::1", "fd00::1"].map(ip).to_vec()
    }
}

fn of(bound: &str, launcher: Launcher, routes: &[&str], network: &Fake) -> Vec<String> {
    let routes: Vec<_> = routes.iter().map(|&name| name.to_owned()).collect();
    candidates(bound.parse().unwrap(), launcher, &routes, network)
}

fn by_ssh(bound: &str, host: &str) -> Vec<String> {
    of(bound, Launcher::Ssh, &[host], &Fake::default())
}

#[test]
fn the_address_to_listen_at_is_the_only_one() {
    for launcher in [Launcher::Ssh, Launcher::Local] {
        let found = of("10.0.0.9:7", launcher, &["both"], &Fake::default());
        assert_eq!(found, ["10.0.0.9:7"]);
    }
}

#[test]
fn each_address_of_a_name_gives_the_one_on_its_route() {
    assert_eq!(by_ssh("[::]:7", "both"), ["[fd00::1]:7", "10.0.0.1:7"]);
    assert_eq!(by_ssh("0.0.0.0:7", "both"), ["10.0.0.1:7"]);
    assert_eq!(by_ssh("[::]:7", "linked"), ["10.0.0.1:7"]);
}

#[test]
fn a_name_that_only_ssh_knows_is_resolved_as_ssh_does() {
    let network = Fake {
        ssh_name: Some("four"),
    };
    let found = of("[::]:7", Launcher::Ssh, &["alias"], &network);
    assert_eq!(found, ["10.0.0.1:7"]);
}

#[test]
fn a_host_behind_another_gets_all_addresses_and_never_loopback() {
    let all = ["10.0.0.1:7", "[fd00::1]:7"];
    assert_eq!(by_ssh("[::]:7", "behind"), all);
    let network = Fake {
        ssh_name: Some("behind"),
    };
    assert_eq!(of("[::]:7", Launcher::Ssh, &["alias"], &network), all);
}

#[test]
fn an_agent_of_this_machine_prefers_the_way_to_the_others() {
    let here = |routes: &[&str]| of("[::]:7", Launcher::Local, routes, &Fake::default());
    assert_eq!(here(&[]), ["127.0.0.1:7", "[::1]:7"]);
    let found = here(&["behind", "four", "both"]);
    assert_eq!(found, ["10.0.0.1:7", "127.0.0.1:7", "[::1]:7"]);
}
