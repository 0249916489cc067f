//! Host lists as people write them: `-H a:4,b:4`, a hostfile, the output of a discovery script.
//!
//! One grammar serves all three, so that the command line, the static plugin and the script plugin agree
//! on what a host is and say the same when it is none:
//!
//! ```text
//! host      = [user "@"] name [":" slots]
//! name      = host name | IPv4 address | "[" IPv6 address "]"
//! slots     = 1 to 1024
//! list      = host *("," host)                          -H, --hosts, the static plugin
//! line      = host *(("slots=" slots) | ("port=" 1 to 65535)) ["#" comment]
//! ```
//!
//! Lines end with LF or CRLF; empty ones count for nothing. Order is kept.
//!
//! # Invariants
//! - A list that is accepted names each host once; a host is known by its [`HostSpec::id`].
//! - What is accepted can be handed to ssh as an argument: no name and no user begins with `-`, and none
//!   holds white space, control characters or a shell's quotes.
//! - A [`HostSpec`] that is printed and parsed again is the same.
//!
//! # Not promised
//! Names are not looked up: `localhost` and `127.0.0.1` are two hosts.

mod error;
mod name;
mod parse;
mod spec;

pub use error::{HostsError, Place, Problem};
pub use parse::{parse_host_list, parse_hostfile, parse_lines};
pub use spec::{HostSpec, MAX_SLOTS};
