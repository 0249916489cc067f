//! One host: a network namespace.

use std::{net::Ipv4Addr, process::Command};

use crate::net::ip;

/// An address of no network card.
pub(crate) const NOWHERE: &str = "02:00:00:00:00:63";

/// See the module.
#[derive(Clone, Debug)]
pub struct Host {
    /// The namespace.
    pub namespace: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// The driver's end of its cable, in the driver's namespace.
    pub(crate) cable: String,
    pub(crate) driver: String,
}

impl Host {
    /// Cuts its cable: from now on no packet comes or goes, and nobody is told.
    ///
    /// # Panics
    /// When `ip` fails.
    pub fn cut(&self) {
        ip(&["-n", &self.driver, "link", "set", &self.cable, "down"]);
    }

    /// Mends its cable.
    ///
    /// # Panics
    /// When `ip` fails.
    pub fn mend(&self) {
        ip(&["-n", &self.driver, "link", "set", &self.cable, "up"]);
    }

    /// Packets from this host to the other go to nobody, and nobody is told. The driver is reached as before.
    ///
    /// # Panics
    /// When `ip` fails.
    pub fn lose_way(&self, to: &Self) {
        let address = to.address.to_string();
        // To a machine that is not there.
        self.neighbour(
            "replace",
            &address,
            &["lladdr", NOWHERE, "nud", "permanent"],
        );
    }

    /// Mends the way to the other host.
    ///
    /// # Panics
    /// When `ip` fails.
    pub fn find_way(&self, to: &Self) {
        self.neighbour("del", &to.address.to_string(), &[]);
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
