//! How to reach a cluster: its endpoints and user.

use std::{fmt, net::IpAddr, time::Duration};

use zeroize::Zeroizing;

use crate::Tls;

/// The port of an endpoint that names none.
const PORT: u16 = 2379;

/// An address of a cluster that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{text}: expected etcd://HOST[:PORT][,HOST[:PORT]...][/PREFIX], with IPv6 addresses in brackets: {why}"
)]
pub struct AddressError {
    text: String,
    why: &'static str,
}

/// The address of a cluster: `etcd://host-a,host-b:2379,[::1]:2379/prefix`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    /// The endpoints as `HOST:PORT`, at least one.
    pub endpoints: Vec<String>,
    /// What all keys begin with, without a slash at its end. It may be empty.
    pub prefix: String,
}

impl Address {
    /// Reads an address.
    ///
    /// # Errors
    /// For another scheme, no endpoint, or an endpoint that is none.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let error = |why| AddressError {
            text: text.into(),
            why,
        };
        let rest = text
            .strip_prefix("etcd://")
            .ok_or_else(|| error("it has another scheme"))?;
        let (hosts, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let endpoints = hosts
            .split(',')
            .map(|host| endpoint(host).map_err(error))
            .collect::<Result<_, _>>()?;
        let prefix = match prefix.trim_matches('/') {
            "" => String::new(),
            prefix => format!("/{prefix}"),
        };
        Ok(Self { endpoints, prefix })
    }
}

fn endpoint(host: &str) -> Result<String, &'static str> {
    let (name, port) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, rest)) => {
            let is_address = address.parse::<std::net::Ipv6Addr>().is_ok();
            if !is_address {
                return Err("brackets need an IPv6 address");
            }
            (&host[..address.len() + 2], rest)
        }
        None => host
            .find(':')
            .map_or((host, ""), |colon| host.split_at(colon)),
    };
    let is_name = |name: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        !name.is_empty() && name.bytes().all(allowed)
    };
    if !name.starts_with('[') && !is_name(name) {
        return Err("an endpoint has no name of a host");
    }
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => PORT,
        None => return Err("a port follows a colon"),
        Some(port) => match port.parse() {
            Ok(number) if number != 0 => number,
            _ => return Err("a port is a number from 1 to 65535"),
        },
    };
    Ok(format!("{name}:{port}"))
}

/// A user of etcd. Its `Debug` output has no password.
#[derive(Clone)]
pub struct User {
    /// The name.
    pub name: String,
    /// The password.
    pub password: Zeroizing<String>,
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// A user whose password would cross a network in clear.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the password of etcd user {user:?} would reach {endpoint} in clear: use TLS, or an endpoint on this host"
)]
pub struct ClearPassword {
    user: String,
    endpoint: String,
}

/// How a [`Client`](crate::Client) reaches its cluster.
#[derive(Clone, Debug)]
pub struct Options {
    /// The endpoints as `HOST:PORT`, at least one.
    pub endpoints: Vec<String>,
    /// https, if given.
    pub tls: Option<Tls>,
    /// The user, if etcd wants one.
    pub user: Option<User>,
    /// How long one endpoint has for its answer.
    pub deadline: Duration,
}

impl Options {
    /// Plain http without a user, and 2 s for an answer.
    pub fn new(endpoints: Vec<String>) -> Self {
        Self {
            endpoints,
            tls: None,
            user: None,
            deadline: Duration::from_secs(2),
        }
    }

    /// Checks that no password is sent in clear to another host.
    pub(crate) fn check_password(&self) -> Result<(), ClearPassword> {
        let (None, Some(user)) = (&self.tls, &self.user) else {
            return Ok(());
        };
        match self.endpoints.iter().find(|endpoint| !is_local(endpoint)) {
            None => Ok(()),
            Some(endpoint) => Err(ClearPassword {
                user: user.name.clone(),
                endpoint: endpoint.clone(),
            }),
        }
    }
}

/// Whether an endpoint, `HOST:PORT`, is on the loopback interface.
fn is_local(endpoint: &str) -> bool {
    let host = endpoint.rsplit_once(':').map_or(endpoint, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || host
            .parse::<IpAddr>()
            .is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_endpoints_and_a_prefix() {
        for (text, endpoints, prefix) in [
            ("etcd://a", vec!["a:2379"], ""),
            (
                "etcd://a,b:4,[::1]:5,[::2]/x/y/",
                vec!["a:2379", "b:4", "[::1]:5", "[::2]:2379"],
                "/x/y",
            ),
            ("etcd://10.0.0.1:2379/", vec!["10.0.0.1:2379"], ""),
        ] {
            let address = Address::parse(text).unwrap();
            assert_eq!(address.endpoints, endpoints, "{text}");
            assert_eq!(address.prefix, prefix, "{text}");
        }
    }

    #[test]
    fn a_bad_address_is_explained_in_one_line() {
        for (text, why) in [
            ("http://a", "another scheme"),
            ("etcd://", "no name"),
            ("etcd://a,,b", "no name"),
            ("etcd:///prefix", "no name"),
            ("etcd://a:0", "from 1 to 65535"),
            ("etcd://a:b", "from 1 to 65535"),
            ("etcd://a:70000", "from 1 to 65535"),
            ("etcd://::1", "no name"),
            ("etcd://[::1]5", "follows a colon"),
            ("etcd://[a]", "IPv6"),
            ("etcd://u@a", "no name"),
        ] {
            let error = Address::parse(text).unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn a_password_is_in_no_debug_output() {
        let mut options = Options::new(vec!["a:1".into()]);
        options.user = Some(User {
            name: "root".into(),
            password: Zeroizing::new("hunter2".into()),
        });
        let text = format!("{options:?}");
        assert!(text.contains("root") && !text.contains("hunter2"), "{text}");
    }

    #[test]
    fn a_password_goes_in_clear_to_this_host_only() {
        let with_user = |endpoints: &[&str]| {
            let endpoints = endpoints.iter().map(|text| (*text).to_owned());
            let mut options = Options::new(endpoints.collect());
            options.user = Some(User {
                name: "root".into(),
                password: Zeroizing::new("hunter2".into()),
            });
            options
        };
        for local in ["127.0.0.1:2379", "127.9.9.9:1", "[::1]:2379", "localhost:1"] {
            assert_eq!(with_user(&[local]).check_password(), Ok(()), "{local}");
        }
        for other in ["10.0.0.1:2379", "[fe80::1]:1", "a:2379", "127.0.0.1.a:1"] {
            let mut options = with_user(&["127.0.0.1:2379", other]);
            let why = crate::Client::new(&options).unwrap_err().to_string();
            assert!(
                why.contains(other) && why.contains("in clear") && !why.contains("hunter2"),
                "{why}"
            );
            options.user = None;
            assert_eq!(options.check_password(), Ok(()));
        }
        let mut options = with_user(&["a:2379"]);
        let provider = rustls::crypto::ring::default_provider().into();
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        options.tls = Some(Tls(config));
        assert_eq!(options.check_password(), Ok(()));
    }
}
