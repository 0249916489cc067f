//! Dynamic rendezvous: the tables of its operations, what actions change, one node at its holder, and worlds of nodes.

mod actions;
mod codec;
mod harness;
mod heartbeats;
mod holder;
mod server;
mod settings;
mod states;
mod table;
mod traps;
mod world;
