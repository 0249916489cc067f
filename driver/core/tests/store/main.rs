//! The store's machine: rule by rule, and against a model.

mod harness;
mod large;
mod model;
mod queues;
mod rules;
