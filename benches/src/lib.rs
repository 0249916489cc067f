//! Shared parts of the benchmarks of elastic jobs: the measured job, the page on which its workers
//! record times, and statistics in a table.

pub mod figures;
pub mod job;
mod random;
pub mod shared_page;

pub use job::Job;
pub use random::Random;
pub use shared_page::SharedPage;
