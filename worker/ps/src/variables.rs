//! The options of a node in the variables of ps-lite.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    str::FromStr,
    time::Duration,
};

use nix::{ifaddrs::getifaddrs, net::if_::InterfaceFlags};

use crate::{
    core::{node::Role, opening::Key},
    error::Error,
    options::{Options, Snapshots},
};

/// A variable with a value that is not allowed.
fn wrong(name: &str, value: &str, allowed: &str) -> Error {
    Error::Options(format!("{name}={value}: expected {allowed}"))
}

/// Variables by name.
struct Variables<'a>(&'a BTreeMap<String, String>);

impl<'a> Variables<'a> {
    /// An empty variable counts as not set, as in shells.
    fn text(&self, name: &str) -> Option<&'a str> {
        (self.0.get(name).map(String::as_str)).filter(|value| !value.is_empty())
    }

    fn needed(&self, name: &str) -> Result<&'a str, Error> {
        (self.text(name)).ok_or_else(|| Error::Options(format!("the variable {name} is not set")))
    }

    /// Changes a field if the variable is set.
    fn number<N: FromStr>(&self, name: &str, allowed: &str, field: &mut N) -> Result<(), Error> {
        if let Some(value) = self.text(name) {
            *field = value.parse().map_err(|_| wrong(name, value, allowed))?;
        }
        Ok(())
    }

    fn switch(&self, name: &str) -> Result<bool, Error> {
        match self.text(name) {
            None | Some("0") => Ok(false),
            Some("1") => Ok(true),
            Some(value) => Err(wrong(name, value, "0 or 1")),
        }
    }

    fn seconds(&self, name: &str, field: &mut Duration) -> Result<(), Error> {
        let Some(value) = self.text(name) else {
            return Ok(());
        };
        let seconds = value.parse().ok().map(Duration::try_from_secs_f64);
        match seconds {
            // ps-lite sends no heartbeats for 0. Here they are always on.
            Some(Ok(Duration::ZERO)) => Ok(()),
            Some(Ok(seconds)) => {
                *field = seconds;
                Ok(())
            }
            _ => Err(wrong(name, value, "a number of seconds, 0 for the default")),
        }
    }

    fn snapshots(&self) -> Result<Option<Snapshots>, Error> {
        let (place, interval) = ("ELASTICRUN_PS_SNAPSHOTS", "ELASTICRUN_PS_SNAPSHOT_INTERVAL");
        let Some(text) = self.text(place) else {
            return match self.text(interval) {
                None => Ok(None),
                Some(_) => Err(Error::Options(format!("{interval} needs {place}"))),
            };
        };
        let seconds = self.text(interval).unwrap_or("300");
        let parsed = seconds.parse().ok().map(Duration::try_from_secs_f64);
        let Some(Ok(every)) = parsed else {
            let allowed = "a number of seconds, 0 for snapshots at the end only";
            return Err(wrong(interval, seconds, allowed));
        };
        Ok(Some(Snapshots {
            place: text.to_owned(),
            interval: (!every.is_zero()).then_some(every),
        }))
    }
}

impl Options {
    /// The options in the variables of this process.
    ///
    /// # Errors
    /// A variable is missing or wrong.
    pub fn from_env() -> Result<Self, Error> {
        let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
        let variables = std::env::vars_os().map(|(name, value)| (text(name), text(value)));
        Self::from_variables(&variables.collect())
    }

    /// The options in these variables: `DMLC_ROLE`, `DMLC_NUM_SERVER`, `DMLC_NUM_WORKER`, `DMLC_PS_ROOT_URI`,
    /// `DMLC_PS_ROOT_PORT`, `DMLC_RANK`, `DMLC_NODE_HOST`, `DMLC_INTERFACE`, `DMLC_LOCAL`, `DMLC_PS_VAN_TYPE`, `PS_RESEND`,
    /// `PS_RESEND_TIMEOUT` (milliseconds), `PS_DROP_MSG` (percent), `PS_HEARTBEAT_INTERVAL` and `PS_HEARTBEAT_TIMEOUT` (seconds),
    /// `PS_VERBOSE`. `PS_ELASTIC` and `PS_REPLICAS` make the servers elastic. Timeouts that ps-lite does not have are
    /// `ELASTICRUN_PS_START_TIMEOUT`, `ELASTICRUN_PS_REPLACE_TIMEOUT`, `ELASTICRUN_PS_REQUEST_TIMEOUT` and `ELASTICRUN_PS_HANDLER_TIMEOUT` (seconds), the limit of bytes
    /// that wait to be sent is `ELASTICRUN_PS_SEND_BUFFER`, that of memory which nodes of a host share is `ELASTICRUN_PS_SHARED_MEMORY`, snapshots are taken with `ELASTICRUN_PS_SNAPSHOTS` and
    /// `ELASTICRUN_PS_SNAPSHOT_INTERVAL` (seconds), and the key of the job is `ELASTICRUN_PS_KEY`.
    ///
    /// # Errors
    /// A variable is missing or wrong.
    pub fn from_variables(variables: &BTreeMap<String, String>) -> Result<Self, Error> {
        let variables = Variables(variables);
        let role = match variables.needed("DMLC_ROLE")? {
            "scheduler" => Role::Scheduler,
            "server" => Role::Server,
            "worker" => Role::Worker,
            other => return Err(wrong("DMLC_ROLE", other, "scheduler, server or worker")),
        };
        let root = variables.needed("DMLC_PS_ROOT_URI")?;
        variables.needed("DMLC_PS_ROOT_PORT")?;
        let mut port = 0u16;
        variables.number("DMLC_PS_ROOT_PORT", "a port, 1 to 65535", &mut port)?;
        let scheduler = resolve("DMLC_PS_ROOT_URI", root, port)?;
        let (mut servers, mut workers) = (0, 0);
        for (name, field) in [
            ("DMLC_NUM_SERVER", &mut servers),
            ("DMLC_NUM_WORKER", &mut workers),
        ] {
            variables.needed(name)?;
            variables.number(name, "a number, 1 or more", field)?;
        }
        let mut options = Self::new(role, scheduler, servers, workers);
        if variables.text("DMLC_RANK").is_some() {
            let mut rank = 0;
            variables.number("DMLC_RANK", "a rank, 0 or more", &mut rank)?;
            options.rank = Some(rank);
        }
        options.local = variables.switch("DMLC_LOCAL")?;
        match variables.text("DMLC_PS_VAN_TYPE") {
            None | Some("zmq" | "tcp") => {}
            Some(other) => {
                let allowed = "tcp or zmq, which both mean TCP here";
                return Err(wrong("DMLC_PS_VAN_TYPE", other, allowed));
            }
        }
        options.host = match (
            variables.text("DMLC_NODE_HOST"),
            variables.text("DMLC_INTERFACE"),
        ) {
            (Some(host), _) => Some(resolve("DMLC_NODE_HOST", host, 0)?.ip()),
            (None, Some(interface)) => Some(address_of(interface, scheduler.is_ipv4())?),
            (None, None) => None,
        };
        for (name, field) in [
            ("PS_HEARTBEAT_INTERVAL", &mut options.heartbeat_interval),
            ("PS_HEARTBEAT_TIMEOUT", &mut options.heartbeat_timeout),
            ("ELASTICRUN_PS_START_TIMEOUT", &mut options.start_timeout),
            (
                "ELASTICRUN_PS_REPLACE_TIMEOUT",
                &mut options.replace_timeout,
            ),
            (
                "ELASTICRUN_PS_REQUEST_TIMEOUT",
                &mut options.request_timeout,
            ),
            (
                "ELASTICRUN_PS_HANDLER_TIMEOUT",
                &mut options.handler_timeout,
            ),
        ] {
            variables.seconds(name, field)?;
        }
        let mut millis = 1000;
        let allowed = "a number of milliseconds, 1 or more";
        variables.number("PS_RESEND_TIMEOUT", allowed, &mut millis)?;
        if variables.switch("PS_RESEND")? {
            options.resend = Some(Duration::from_millis(millis));
        }
        let allowed = "a percentage from 0 to 99";
        variables.number("PS_DROP_MSG", allowed, &mut options.drop_percent)?;
        let allowed = "a number of bytes";
        variables.number(
            "ELASTICRUN_PS_SEND_BUFFER",
            allowed,
            &mut options.send_buffer,
        )?;
        variables.number(
            "ELASTICRUN_PS_SHARED_MEMORY",
            allowed,
            &mut options.shared_memory,
        )?;
        options.elastic = variables.switch("PS_ELASTIC")?;
        let allowed = "a number of further copies of each value";
        variables.number("PS_REPLICAS", allowed, &mut options.replicas)?;
        options.snapshots = variables.snapshots()?;
        options.key = variables
            .text("ELASTICRUN_PS_KEY")
            .map(Key::new)
            .transpose()?;
        let allowed = "0, 1 for connections or 2 for all messages";
        variables.number("PS_VERBOSE", allowed, &mut options.verbose)?;
        options.check()?;
        Ok(options)
    }
}

fn resolve(name: &str, host: &str, port: u16) -> Result<SocketAddr, Error> {
    let found = (host, port).to_socket_addrs();
    let address = found.ok().and_then(|mut addresses| addresses.next());
    address.ok_or_else(|| wrong(name, host, "an address or the name of a host"))
}

/// The address of an interface of this machine, of the family of the scheduler's if it has one.
fn address_of(interface: &str, want_v4: bool) -> Result<IpAddr, Error> {
    let mut names = BTreeSet::new();
    let mut addresses = Vec::new();
    let all = getifaddrs().map_err(|errno| Error::io("getifaddrs")(errno.into()))?;
    for found in all {
        let address = found.address.as_ref().and_then(|address| {
            let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
            v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
        });
        let Some(address) = address.filter(|_| found.flags.contains(InterfaceFlags::IFF_UP)) else {
            continue;
        };
        if found.interface_name == interface {
            addresses.push(address);
        }
        names.insert(found.interface_name);
    }
    let names: Vec<_> = names.into_iter().collect();
    let same = addresses
        .iter()
        .find(|address| address.is_ipv4() == want_v4);
    (same.copied()).ok_or_else(|| {
        let family = if want_v4 { "IPv4" } else { "IPv6" };
        let allowed = format!(
            "an interface with an {family} address; those with any are {}",
            names.join(", ")
        );
        wrong("DMLC_INTERFACE", interface, &allowed)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(changes: &[(&str, &str)]) -> Result<Options, Error> {
        let base = [
            ("DMLC_ROLE", "worker"),
            ("DMLC_NUM_SERVER", "2"),
            ("DMLC_NUM_WORKER", "3"),
            ("DMLC_PS_ROOT_URI", "127.0.0.1"),
            ("DMLC_PS_ROOT_PORT", "9091"),
        ];
        let all = base.iter().chain(changes);
        let all = all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Options::from_variables(&all.collect())
    }

    #[test]
    fn the_variables_of_ps_lite_are_read() {
        let options = options(&[
            ("PS_RESEND", "1"),
            ("PS_RESEND_TIMEOUT", "200"),
            ("PS_DROP_MSG", "10"),
            ("PS_HEARTBEAT_INTERVAL", "0"),
            ("PS_HEARTBEAT_TIMEOUT", "2.5"),
            ("PS_VERBOSE", "2"),
            ("DMLC_LOCAL", "1"),
            ("DMLC_PS_VAN_TYPE", "zmq"),
            ("DMLC_NODE_HOST", ""),
            ("DMLC_INTERFACE", "lo"),
        ])
        .unwrap();
        assert_eq!(
            (options.role, options.servers, options.workers),
            (Role::Worker, 2, 3)
        );
        assert_eq!(options.scheduler.to_string(), "127.0.0.1:9091");
        assert_eq!(options.resend, Some(Duration::from_millis(200)));
        assert_eq!((options.drop_percent, options.verbose), (10, 2));
        assert_eq!(options.heartbeat_interval, Duration::from_secs(1));
        assert_eq!(options.heartbeat_timeout, Duration::from_millis(2500));
        assert!(options.local);
        assert_eq!(options.host, Some(IpAddr::from([127, 0, 0, 1])));
    }

    #[test]
    fn the_host_counts_more_than_the_interface() {
        let options = options(&[("DMLC_NODE_HOST", "127.0.0.2"), ("DMLC_INTERFACE", "none")]);
        assert_eq!(options.unwrap().host, Some(IpAddr::from([127, 0, 0, 2])));
    }

    #[test]
    fn a_wrong_value_is_a_line_with_what_is_allowed() {
        for (name, value, allowed) in [
            ("DMLC_ROLE", "master", "scheduler, server or worker"),
            ("DMLC_NUM_WORKER", "two", "a number, 1 or more"),
            ("DMLC_NUM_SERVER", "-1", "a number, 1 or more"),
            ("DMLC_PS_ROOT_PORT", "65536", "a port, 1 to 65535"),
            (
                "DMLC_PS_ROOT_URI",
                "no host",
                "an address or the name of a host",
            ),
            (
                "DMLC_NODE_HOST",
                "no host",
                "an address or the name of a host",
            ),
            ("DMLC_LOCAL", "yes", "0 or 1"),
            ("ELASTICRUN_PS_SHARED_MEMORY", "1GB", "a number of bytes"),
            ("PS_RESEND", "on", "0 or 1"),
            (
                "PS_RESEND_TIMEOUT",
                "1s",
                "a number of milliseconds, 1 or more",
            ),
            ("PS_DROP_MSG", "10%", "a percentage from 0 to 99"),
            (
                "PS_VERBOSE",
                "all",
                "0, 1 for connections or 2 for all messages",
            ),
            (
                "DMLC_PS_VAN_TYPE",
                "ibverbs",
                "tcp or zmq, which both mean TCP here",
            ),
            (
                "PS_HEARTBEAT_TIMEOUT",
                "-5",
                "a number of seconds, 0 for the default",
            ),
        ] {
            let error = options(&[(name, value)]).unwrap_err().to_string();
            assert_eq!(error, format!("{name}={value}: expected {allowed}"));
        }
        let error = options(&[("DMLC_INTERFACE", "none")])
            .unwrap_err()
            .to_string();
        let start =
            "DMLC_INTERFACE=none: expected an interface with an IPv4 address; those with any are ";
        assert!(error.starts_with(start) && error.contains("lo"), "{error}");
    }

    #[test]
    fn contradictions_are_named() {
        let error = |changes: &[(&str, &str)]| options(changes).unwrap_err().to_string();
        assert!(error(&[("DMLC_NUM_SERVER", "0")]).contains("DMLC_NUM_SERVER"));
        assert!(error(&[("PS_DROP_MSG", "10")]).contains("PS_RESEND=1"));
        assert!(error(&[("PS_HEARTBEAT_TIMEOUT", "0.5")]).contains("longer"));
        assert!(error(&[("ELASTICRUN_PS_SHARED_MEMORY", "1099511627777")]).contains("at most"));
        assert!(error(&[("PS_REPLICAS", "1")]).contains("PS_ELASTIC=1"));
        for other in [("PS_RESEND", "1"), ("ELASTICRUN_PS_REPLACE_TIMEOUT", "3")] {
            assert!(error(&[("PS_ELASTIC", "1"), other]).contains("leave it out"));
        }
        assert_eq!(
            options(&[("PS_ELASTIC", "1"), ("PS_REPLICAS", "2")])
                .unwrap()
                .replicas,
            2
        );
        assert_eq!(
            error(&[("DMLC_PS_ROOT_PORT", "")]),
            "the variable DMLC_PS_ROOT_PORT is not set"
        );
    }
}
