//! Starts the programs of users so that they end with the job.

mod leader;

pub use leader::fork_program;
