//! The store's machine: rule by rule, and against a model.

mod model;
mod play;
mod rules;
