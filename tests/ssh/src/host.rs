//! One host: a network namespace.

use std::{
    net::{Ipv4Addr, Ipv6Addr},
    process::{Child, Command},
};

use crate::net::ip;

/// A hardware address that no network card has.
pub(crate) const NOWHERE: &str = "02:00:00:00:00:63";

/// A host with its network namespace and its cable to the driver.
#[derive(Clone, Debug)]
pub struct Host {
    /// The namespace.
    pub namespace: String,
    /// The address of the host.
    pub address: Ipv4Addr,
    /// Its address of IPv6, after [`crate::Net::add_ipv6`].
    pub address_v6: Option<Ipv6Addr>,
    /// The driver's end of the host's cable, in the driver's namespace.
    pub(crate) cable: String,
    pub(crate) driver: String,
}

impl Host {
    /// Cuts the host's cable: no packet passes from now on, and no error reaches either side.
    ///
    /// # Panics
    /// When `ip` fails.
    pub fn cut(&self) {
        ip(&["-n", &self.driver, "link", "set", &self.cable, "down"]);
    }

    /// Mends the host's cable.
    ///
    /// # Panics
    /// When `ip` fails.
    pub fn mend(&self) {
        ip(&["-n", &self.driver, "link", "set", &self.cable, "up"]);
    }

    /// Drops packets from this host to the other, without an error. The path to the driver stays up.
    ///
    /// # Panics
    /// When `ip` fails.
    pub fn lose_way(&self, to: &Self) {
        let address = to.address.to_string();
        // The neighbour entry leads to a machine that does not exist.
        self.neighbour(
            "replace",
            &address,
            &["lladdr", NOWHERE, "nud", "permanent"],
        );
    }

    /// Restores the path to the other host.
    ///
    /// # Panics
    /// When `ip` fails.
    pub fn find_way(&self, to: &Self) {
        self.neighbour("del", &to.address.to_string(), &[]);
    }

    /// Adds an interface with an address that no other host has a route to.
    ///
    /// # Panics
    /// When `ip` fails.
    pub fn add_interface(&self, name: &str, address: &str) {
        let peer = format!("{name}p");
        let add = ["link", "add", name, "type", "veth", "peer", "name", &peer];
        ip(&[&["-n", &self.namespace], &add[..]].concat());
        ip(&["-n", &self.namespace, "addr", "add", address, "dev", name]);
        ip(&["-n", &self.namespace, "link", "set", name, "up"]);
    }

    /// Starts a program on the host.
    ///
    /// # Panics
    /// When `ip` cannot be run.
    pub fn start(&self, words: &[&str]) -> Child {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace]).args(words);
        command.spawn().expect("ip can be run")
    }

    fn neighbour(&self, verb: &str, address: &str, more: &[&str]) {
        let words = ["-n", &self.namespace, "neigh", verb, address, "dev", "eth0"];
        ip(&[&words, more].concat());
    }

    /// The processes of the host with their command lines, without sshd.
    ///
    /// # Panics
    /// When `ip` fails.
    pub fn processes(&self) -> Vec<(u32, String)> {
        processes(&self.namespace)
    }
}

/// The processes of a namespace, without sshd.
pub(crate) fn processes(namespace: &str) -> Vec<(u32, String)> {
    let output = Command::new("ip")
        .args(["netns", "pids", namespace])
        .output()
        .expect("ip can be run");
    let pids = String::from_utf8_lossy(&output.stdout).into_owned();
    (pids.split_whitespace().filter_map(|pid| pid.parse().ok()))
        .filter_map(|pid: u32| {
            let words = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            let command = String::from_utf8_lossy(&words)
                .replace('\0', " ")
                .trim()
                .to_owned();
            // A zombie has no command line any more.
            (!command.is_empty() && !command.contains("sshd")).then_some((pid, command))
        })
        .collect()
}
