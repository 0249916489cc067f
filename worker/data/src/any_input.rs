//! Properties that hold for any bytes of a file: for the fuzzer, and for a test of some thousand inputs in the test suite.
//!
//! Panics of the Parquet library are errors of the file, here as everywhere. Panics of this crate are findings.

#[cfg(test)]
mod tests;

pub use crate::{
    dataset::check_any_footer as check_footer, decode::check_any_pages as check_pages,
    thrift::check_any_structure as check_thrift,
};
