//! The agent's machine in virtual time, rule by rule.

mod bench;
mod draining;
mod driver;
mod ends;
mod returning;
mod rounds;
