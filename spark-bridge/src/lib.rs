//! The task service: an agent with one slot that lives under a task of a cluster.
//!
//! ```text
//! executor (JVM) -> daemon -> Python worker of the task -> task service -> workers
//!        \____________________ watched by the lifeline _____/     |
//!                                                        control connection, outward only
//! ```
//! A cluster like Spark lends cores as tasks. In each task that it grants, a parent starts this service, writes one
//! line to its stdin ([`Settings`]) and keeps that pipe open. The service registers at the driver as an agent does
//! and says which task it is: machine, slot and attempt ([`elasticrun_protocol::control::Task`]). From there on it is
//! an agent like any other.
//!
//! # Invariants
//! - T1 The secret comes by stdin: it is in no argument and in no variable.
//! - T2 It listens for nobody from the driver's side: all connections to the driver are dialled from here.
//! - T3 It does not outlive what it was started under: not its parent, nor any process named by `above`, nor the
//!   pipe ([`Lifeline`]). Its workers and all that they started end with it.
//! - T4 It serves one driver once. A driver that is lost ends it; another attempt is another task.

mod lifeline;
mod settings;

pub use lifeline::Lifeline;
pub use settings::Settings;
