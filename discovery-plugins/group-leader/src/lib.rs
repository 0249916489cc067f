//! Starts the programs of users so that they end with the job, and says why one cannot start.

mod interpreter;
mod leader;

pub use interpreter::{BadInterpreter, check_interpreter};
pub use leader::fork_program;
