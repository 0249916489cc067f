//! Host lists in text: `-H a:4,b:4`, a hostfile, the output of a discovery script.
//!
//! All three share one grammar, so that the command line, the static plugin and the script plugin accept the same hosts and
//! give the same errors:
//!
//! ```text
//! host      = [user "@"] name [":" slots]
//! name      = host name | IPv4 address | "[" IPv6 address "]"
//! slots     = 1 to 1024; also 0 in the output of a program and in a watched file
//! list      = host *("," host)                          -H, --hosts, the static plugin
//! line      = host *(("slots=" slots) | ("port=" 1 to 65535)) ["#" comment]
//! ```
//!
//! Lines end with LF or CRLF. Empty lines are ignored. Order is kept. A host name may end with a dot, which is dropped.
//!
//! # Invariants
//! - An accepted list names each host once. [`HostSpec::id`] identifies a host.
//! - Accepted names and users are safe arguments of ssh: they do not start with `-`, and have no white space, control
//!   characters or quotes of a shell.
//! - Parsing a printed [`HostSpec`] gives the same value, by [`parse_lines`] if it has 0 slots.
//!
//! # Not promised
//! Names are not resolved: `localhost` and `127.0.0.1` are two hosts.

mod error;
mod name;
mod parse;
mod spec;

pub use error::{HostsError, Position, Problem};
pub use name::{is_address, is_user, without_final_dot};
pub use parse::{parse_followed_file, parse_host_list, parse_hostfile, parse_lines};
pub use spec::{HostSpec, MAX_SLOTS};
