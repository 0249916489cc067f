//! Handwritten digits, trained elastically: the smallest program that shows what a user of
//! `elasticrun-worker` writes, and proves that each sample was used exactly once.
//!
//! [`training`] is the part to read first. [`data`] reads the Parquet file, [`network`] is the model,
//! [`audit`] writes down which rows were used in which commit and checks it afterwards.

pub mod audit;
pub mod data;
pub mod network;
pub mod training;
