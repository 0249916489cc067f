//! The agent's machine in virtual time, rule by rule.

mod bench;
mod cut;
mod divided;
mod draining;
mod driver;
mod durable;
mod ends;
mod passing;
mod replica;
mod returning;
mod rounds;
mod servers;
