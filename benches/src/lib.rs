//! What the benchmarks of elastic jobs share: the job that is measured, the page on which its workers write when
//! they were where, and figures in a table.

pub mod board;
pub mod figures;
pub mod job;
mod random;

pub use board::Board;
pub use job::Job;
pub use random::Random;
