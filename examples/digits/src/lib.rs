//! Elastic training on handwritten digits. This small program shows what a user of
//! `elasticrun-worker` writes, and proves that each sample was used exactly once.
//!
//! Read [`training`] first. [`data`] reads the Parquet file, and [`network`] is the model.
//! [`audit`] records which rows were used in which commit and checks it afterwards.

#![forbid(unsafe_code)]

pub mod audit;
pub mod data;
pub mod network;
pub mod training;
