//! The task service: an agent with one slot that runs under a task of a cluster.
//!
//! ```text
//! executor (JVM) -> daemon -> Python worker of the task -> task service -> workers
//!        \____________________ watched by the lifeline _____/     |
//!                                                        control connection, outward only
//! ```
//! A cluster like Spark provides cores as tasks. In each task, a parent process starts this service, writes one line to
//! its stdin ([`Settings`]) and keeps that pipe open. The service registers at the driver as an agent. The registration
//! names its task: machine, slot and attempt ([`elasticrun_protocol::control::Task`]). Then the service works as any
//! other agent.
//!
//! A bridge to another system that lends tasks, such as the placement groups of Ray, needs four things of that system, and nothing of the
//! driver that is not there: a socket pair with the driver over which it lists and withdraws tasks (`--parent-fd`); a program in each
//! task that starts this service and holds its stdin; a name and an attempt for each task; and the ids of the processes that hold the
//! task (`above`).
//!
//! # Invariants
//! - T1 The secret comes by stdin. It is in no argument and in no variable.
//! - T2 The driver never connects to the service. The service dials all connections to the driver.
//! - T3 The service ends with its parent, with any process named by `above`, and with the pipe ([`Lifeline`]). Its
//!   workers and all their descendants end with it.
//! - T4 The service serves one driver once. It ends when the driver is lost; another attempt is another task.

mod lifeline;
mod settings;

pub use lifeline::Lifeline;
pub use settings::Settings;
