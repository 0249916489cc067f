//! What a node is told at its start, by a program or by the variables of ps-lite.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    str::FromStr,
    time::Duration,
};

use crate::{core::node::Role, error::Error};

/// The options of a node.
#[derive(Clone, Debug)]
pub struct Options {
    /// What the node does.
    pub role: Role,
    /// Number of servers of the job.
    pub servers: u32,
    /// Number of workers of the job.
    pub workers: u32,
    /// Where the scheduler listens.
    pub scheduler: SocketAddr,
    /// The address at which other nodes reach this one. By default, the one from which it reaches the scheduler.
    pub host: Option<IpAddr>,
    /// How long the start may take.
    pub start_timeout: Duration,
    /// How long an answer or a barrier may take.
    pub request_timeout: Duration,
    /// How long a server keeps a request for an app without a handler.
    pub handler_timeout: Duration,
    /// Time between two heartbeats.
    pub heartbeat_interval: Duration,
    /// Silence after which a node is dead.
    pub heartbeat_timeout: Duration,
    /// Acknowledge messages, and repeat those that are not acknowledged for so long.
    pub resend: Option<Duration>,
    /// Percentage of received messages that are dropped, for tests.
    pub drop_percent: u32,
    /// Bytes that may wait on a connection before a sender waits.
    pub send_buffer: usize,
    /// 1 prints connections to standard error, 2 all messages.
    pub verbose: u32,
}

impl Options {
    /// The defaults for a node of a job.
    pub fn new(role: Role, scheduler: SocketAddr, servers: u32, workers: u32) -> Self {
        Self {
            role,
            servers,
            workers,
            scheduler,
            host: None,
            start_timeout: Duration::from_secs(120),
            request_timeout: Duration::from_secs(60),
            handler_timeout: Duration::from_secs(10),
            heartbeat_interval: Duration::from_secs(1),
            heartbeat_timeout: Duration::from_secs(5),
            resend: None,
            drop_percent: 0,
            send_buffer: 64 << 20,
            verbose: 0,
        }
    }

    /// The options in the variables of this process.
    ///
    /// # Errors
    /// A variable is missing or wrong.
    pub fn from_env() -> Result<Self, Error> {
        Self::from_variables(&std::env::vars().collect())
    }

    /// The options in these variables: `DMLC_ROLE`, `DMLC_NUM_SERVER`, `DMLC_NUM_WORKER`, `DMLC_PS_ROOT_URI`,
    /// `DMLC_PS_ROOT_PORT`, `DMLC_NODE_HOST`, `PS_RESEND`, `PS_RESEND_TIMEOUT` (milliseconds), `PS_DROP_MSG` (percent),
    /// `PS_HEARTBEAT_INTERVAL` and `PS_HEARTBEAT_TIMEOUT` (seconds), `PS_VERBOSE`. Timeouts that ps-lite does not have are
    /// `ELASTICRUN_PS_START_TIMEOUT`, `ELASTICRUN_PS_REQUEST_TIMEOUT` and `ELASTICRUN_PS_HANDLER_TIMEOUT` (seconds), and the
    /// limit of bytes that wait to be sent is `ELASTICRUN_PS_SEND_BUFFER`.
    ///
    /// # Errors
    /// A variable is missing or wrong.
    pub fn from_variables(variables: &BTreeMap<String, String>) -> Result<Self, Error> {
        let text = |name: &str| variables.get(name).map(String::as_str);
        let needed = |name: &str| {
            text(name).ok_or_else(|| Error::Options(format!("the variable {name} is not set")))
        };
        let role = match needed("DMLC_ROLE")? {
            "scheduler" => Role::Scheduler,
            "server" => Role::Server,
            "worker" => Role::Worker,
            other => {
                return Err(Error::Options(format!(
                    "DMLC_ROLE={other}: expected scheduler, server or worker"
                )));
            }
        };
        let host = needed("DMLC_PS_ROOT_URI")?;
        let port: u16 = number("DMLC_PS_ROOT_PORT", needed("DMLC_PS_ROOT_PORT")?)?;
        let found = (host, port).to_socket_addrs();
        let scheduler = found.ok().and_then(|mut addresses| addresses.next());
        let scheduler = scheduler
            .ok_or_else(|| Error::Options(format!("DMLC_PS_ROOT_URI={host}: no such host")))?;
        let servers = number("DMLC_NUM_SERVER", needed("DMLC_NUM_SERVER")?)?;
        let workers = number("DMLC_NUM_WORKER", needed("DMLC_NUM_WORKER")?)?;
        let mut options = Self::new(role, scheduler, servers, workers);
        if let Some(host) = text("DMLC_NODE_HOST") {
            options.host = Some(number("DMLC_NODE_HOST", host)?);
        }
        let seconds = |name: &str, field: &mut Duration| -> Result<(), Error> {
            match text(name) {
                // ps-lite sends no heartbeats for 0. Here they are always on.
                None | Some("0") => Ok(()),
                Some(value) => {
                    let number: f64 = number(name, value)?;
                    *field = Duration::try_from_secs_f64(number)
                        .map_err(|error| Error::Options(format!("{name}={value}: {error}")))?;
                    Ok(())
                }
            }
        };
        seconds("PS_HEARTBEAT_INTERVAL", &mut options.heartbeat_interval)?;
        seconds("PS_HEARTBEAT_TIMEOUT", &mut options.heartbeat_timeout)?;
        seconds("ELASTICRUN_PS_START_TIMEOUT", &mut options.start_timeout)?;
        seconds(
            "ELASTICRUN_PS_REQUEST_TIMEOUT",
            &mut options.request_timeout,
        )?;
        seconds(
            "ELASTICRUN_PS_HANDLER_TIMEOUT",
            &mut options.handler_timeout,
        )?;
        if text("PS_RESEND").is_some_and(|value| value != "0") {
            let millis = text("PS_RESEND_TIMEOUT").unwrap_or("1000");
            let millis = number("PS_RESEND_TIMEOUT", millis)?;
            options.resend = Some(Duration::from_millis(millis));
        }
        if let Some(value) = text("PS_DROP_MSG") {
            options.drop_percent = number("PS_DROP_MSG", value)?;
        }
        if let Some(value) = text("ELASTICRUN_PS_SEND_BUFFER") {
            options.send_buffer = number("ELASTICRUN_PS_SEND_BUFFER", value)?;
        }
        if let Some(value) = text("PS_VERBOSE") {
            options.verbose = number("PS_VERBOSE", value)?;
        }
        options.check()?;
        Ok(options)
    }

    /// Refuses options that contradict each other.
    ///
    /// # Errors
    /// The reason.
    pub fn check(&self) -> Result<(), Error> {
        let bad = |text: &str| Err(Error::Options(text.to_owned()));
        if self.servers == 0 {
            return bad("a job needs a server: set DMLC_NUM_SERVER to 1 or more");
        }
        if self.workers == 0 {
            return bad("a job needs a worker: set DMLC_NUM_WORKER to 1 or more");
        }
        if self.drop_percent >= 100 {
            return bad("PS_DROP_MSG is a percentage below 100");
        }
        if self.drop_percent > 0 && self.resend.is_none() {
            return bad("PS_DROP_MSG needs PS_RESEND=1: without it dropped messages never arrive");
        }
        if self.resend.is_some_and(|timeout| timeout.is_zero()) {
            return bad("PS_RESEND_TIMEOUT must be 1 or more milliseconds");
        }
        if self.heartbeat_timeout <= self.heartbeat_interval {
            return bad("PS_HEARTBEAT_TIMEOUT must be longer than PS_HEARTBEAT_INTERVAL");
        }
        Ok(())
    }
}

fn number<N: FromStr<Err: std::fmt::Display>>(name: &str, value: &str) -> Result<N, Error> {
    let parsed = value.parse();
    parsed.map_err(|error| Error::Options(format!("{name}={value}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(changes: &[(&str, &str)]) -> BTreeMap<String, String> {
        let base = [
            ("DMLC_ROLE", "worker"),
            ("DMLC_NUM_SERVER", "2"),
            ("DMLC_NUM_WORKER", "3"),
            ("DMLC_PS_ROOT_URI", "127.0.0.1"),
            ("DMLC_PS_ROOT_PORT", "9091"),
        ];
        let all = base.iter().chain(changes);
        all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn the_variables_of_ps_lite_are_read() {
        let options = Options::from_variables(&variables(&[
            ("PS_RESEND", "1"),
            ("PS_RESEND_TIMEOUT", "200"),
            ("PS_DROP_MSG", "10"),
            ("PS_HEARTBEAT_TIMEOUT", "2.5"),
        ]))
        .unwrap();
        assert_eq!(
            (options.role, options.servers, options.workers),
            (Role::Worker, 2, 3)
        );
        assert_eq!(options.scheduler.to_string(), "127.0.0.1:9091");
        assert_eq!(options.resend, Some(Duration::from_millis(200)));
        assert_eq!(options.drop_percent, 10);
        assert_eq!(options.heartbeat_timeout, Duration::from_millis(2500));
    }

    #[test]
    fn mistakes_are_named() {
        let error = |changes: &[(&str, &str)]| {
            let options = Options::from_variables(&variables(changes));
            options.unwrap_err().to_string()
        };
        assert!(error(&[("DMLC_ROLE", "master")]).contains("expected scheduler, server or worker"));
        assert!(error(&[("DMLC_NUM_SERVER", "0")]).contains("DMLC_NUM_SERVER"));
        assert!(error(&[("DMLC_NUM_WORKER", "two")]).starts_with("DMLC_NUM_WORKER=two: "));
        assert!(error(&[("PS_DROP_MSG", "10")]).contains("PS_RESEND=1"));
        assert!(error(&[("PS_HEARTBEAT_TIMEOUT", "0.5")]).contains("longer"));
        let mut none = variables(&[]);
        none.remove("DMLC_PS_ROOT_PORT");
        let error = Options::from_variables(&none).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the variable DMLC_PS_ROOT_PORT is not set"
        );
    }
}
