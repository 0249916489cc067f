//! The agent's machine in virtual time, rule by rule.

mod bench;
mod draining;
mod driver;
mod durable;
mod ends;
mod returning;
mod rounds;
