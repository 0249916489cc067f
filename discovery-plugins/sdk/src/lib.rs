//! Write a discovery plugin for elasticrun.

pub mod hosts;
