//! The store's machine: rule by rule, and against a model.

mod harness;
mod model;
mod queues;
mod rules;
