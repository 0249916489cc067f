//! The namespaces of one test: their creation, their cables, and their removal.

use std::{
    fmt,
    net::{Ipv4Addr, Ipv6Addr},
    path::Path,
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use elasticrun_process_tests::{Job, PATIENCE};
use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, geteuid},
};
use tempfile::TempDir;

use crate::{
    Host, Sshd,
    host::{NOWHERE, processes},
    sshd,
};

/// An address that no host has.
const SILENT: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 99);

/// The reason why namespaces cannot be made here.
#[derive(Debug)]
pub struct Unavailable(String);

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Hosts with sshd and a driver's namespace. Dropping it ends all their processes and removes the namespaces.
#[derive(Debug)]
pub struct Net {
    driver: String,
    hosts: Vec<Host>,
    daemons: Vec<Sshd>,
    directory: TempDir,
}

impl Net {
    /// Makes `hosts` hosts, each with an sshd that accepts the user's key.
    ///
    /// # Errors
    /// [`Unavailable`] when this machine or this user cannot make namespaces.
    ///
    /// # Panics
    /// When a step fails although they can.
    pub fn new(hosts: u8) -> Result<Self, Unavailable> {
        available()?;
        static NETS: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "er{}n{}",
            std::process::id(),
            NETS.fetch_add(1, Ordering::Relaxed)
        );
        let directory = tempfile::Builder::new()
            .prefix("elasticrun-ssh.")
            .tempdir()
            .expect("a directory can be made");
        sshd::make_keys(directory.path());
        let mut net = Self {
            driver: format!("{name}d"),
            hosts: Vec::new(),
            daemons: Vec::new(),
            directory,
        };
        ip(&["netns", "add", &net.driver]);
        let driver = net.driver.clone();
        ip(&["-n", &driver, "link", "set", "lo", "up"]);
        ip(&["-n", &driver, "link", "add", "bridge", "type", "bridge"]);
        ip(&[
            "-n",
            &driver,
            "addr",
            "add",
            "10.77.0.1/24",
            "dev",
            "bridge",
        ]);
        ip(&["-n", &driver, "link", "set", "bridge", "up"]);
        for number in 1..=hosts {
            let host = Host {
                namespace: format!("{name}h{number}"),
                address: Ipv4Addr::new(10, 77, 0, 10 + number),
                address_v6: None,
                cable: format!("v{number}"),
                driver: driver.clone(),
            };
            let (namespace, cable) = (host.namespace.clone(), host.cable.clone());
            let address = format!("{}/24", host.address);
            ip(&["netns", "add", &namespace]);
            net.hosts.push(host);
            ip(&["-n", &namespace, "link", "set", "lo", "up"]);
            ip(&[
                "-n", &driver, "link", "add", &cable, "type", "veth", "peer", "name", "eth0",
                "netns", &namespace,
            ]);
            ip(&[
                "-n", &driver, "link", "set", &cable, "master", "bridge", "up",
            ]);
            ip(&["-n", &namespace, "addr", "add", &address, "dev", "eth0"]);
            ip(&["-n", &namespace, "link", "set", "eth0", "up"]);
            net.serve(usize::from(number) - 1, "");
        }
        Ok(net)
    }

    /// Gives the driver the address fd77::1, and each host one whose sshd listens there, too.
    ///
    /// # Errors
    /// [`Unavailable`] when the kernel has no IPv6.
    ///
    /// # Panics
    /// When a step fails although it has.
    pub fn add_ipv6(&mut self) -> Result<(), Unavailable> {
        if !Path::new("/proc/net/if_inet6").exists() {
            return Err(Unavailable("the kernel has no IPv6".into()));
        }
        // Without the detection of duplicates the addresses can be used at once.
        let add = |namespace: &str, address: &str, device: &str| {
            let words = ["-n", namespace, "addr", "add", address, "dev", device];
            ip(&[&words[..], &["nodad"]].concat());
        };
        add(&self.driver, "fd77::1/64", "bridge");
        for index in 0..self.hosts.len() {
            let host = &mut self.hosts[index];
            let address = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 0x11 + index as u16);
            host.address_v6 = Some(address);
            add(&host.namespace, &format!("{address}/64"), "eth0");
            self.serve(index, &format!("ListenAddress [{address}]:22"));
        }
        Ok(())
    }

    /// Restarts the sshd of a host with additional lines in its configuration.
    ///
    /// # Panics
    /// When sshd does not start.
    pub fn serve(&mut self, host: usize, configuration: &str) {
        let of = self.hosts[host].clone();
        self.daemons
            .retain(|daemon| daemon.namespace() != of.namespace);
        self.daemons
            .push(Sshd::start(self.directory.path(), &of, configuration));
    }

    /// A host, from 0.
    pub fn host(&self, number: usize) -> &Host {
        &self.hosts[number]
    }

    /// The directory of keys, known hosts and logs.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// An address that accepts packets and never answers.
    ///
    /// # Panics
    /// When `ip` fails.
    pub fn silent_address(&self) -> Ipv4Addr {
        let text = SILENT.to_string();
        // With a neighbour entry no address resolution is necessary.
        ip(&[
            "-n",
            &self.driver,
            "neigh",
            "replace",
            &text,
            "lladdr",
            NOWHERE,
            "dev",
            "bridge",
            "nud",
            "permanent",
        ]);
        SILENT
    }

    /// Senders to the silent address get "no route to host" within seconds from now on.
    pub fn lose_silent_address(&self) {
        let text = SILENT.to_string();
        ip(&["-n", &self.driver, "neigh", "del", &text, "dev", "bridge"]);
    }

    /// A job whose driver is in the driver's namespace and whose ssh knows these hosts only.
    pub fn job(&self, flags: &str) -> Job {
        let file = |name: &str| self.directory.path().join(name).display().to_string();
        Job::new(flags)
            .before(["ip", "netns", "exec", &self.driver])
            .flag(["--ssh-identity-file", &file("key")])
            .flag([
                "--ssh-option",
                &format!("UserKnownHostsFile={}", file("known_hosts")),
            ])
            .flag(["--ssh-option", "GlobalKnownHostsFile=/dev/null"])
            .flag(["--ssh-option", "StrictHostKeyChecking=yes"])
            .flag(["--ssh-option", "IdentitiesOnly=yes"])
    }

    /// All processes of the net, without sshd.
    pub fn processes(&self) -> Vec<(u32, String)> {
        let mut all = processes(&self.driver);
        all.extend(self.hosts.iter().flat_map(Host::processes));
        all
    }

    /// Checks that all processes of the net end, also those that a cut has orphaned.
    ///
    /// # Panics
    /// When a process is left at the deadline.
    #[track_caller]
    pub fn assert_empty(&self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = self.processes();
            if left.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "left behind: {left:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        self.daemons.clear();
        let namespaces: Vec<_> = self
            .hosts
            .iter()
            .map(|host| &host.namespace)
            .chain([&self.driver])
            .collect();
        let deadline = Instant::now() + Duration::from_secs(5);
        for namespace in namespaces {
            loop {
                let output = Command::new("ip")
                    .args(["netns", "pids", namespace])
                    .output();
                let pids = output
                    .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
                    .unwrap_or_default();
                let pids: Vec<i32> = pids
                    .split_whitespace()
                    .filter_map(|pid| pid.parse().ok())
                    .collect();
                if pids.is_empty() || Instant::now() > deadline {
                    break;
                }
                for pid in pids {
                    let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            let _ = Command::new("ip")
                .args(["netns", "del", namespace])
                .output();
        }
    }
}

fn available() -> Result<(), Unavailable> {
    if !geteuid().is_root() {
        return Err(Unavailable("network namespaces need root".into()));
    }
    for (program, argument) in [
        ("ip", "-V"),
        (sshd::PROGRAM, "-?"),
        ("ssh", "-V"),
        ("ssh-keygen", "-?"),
    ] {
        if Command::new(program).arg(argument).output().is_err() {
            return Err(Unavailable(format!(
                "{program} is not installed; make setup does it"
            )));
        }
    }
    Ok(())
}

/// Runs `ip`.
pub(crate) fn ip(arguments: &[&str]) {
    let output = Command::new("ip")
        .args(arguments)
        .output()
        .expect("ip can be run");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success(),
        "ip {}: {said}",
        arguments.join(" ")
    );
}
