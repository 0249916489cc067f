//! The elastic rules of the contract, one file for each group, by short scenarios in virtual time.

mod admission;
mod base;
mod contact;
mod deadlines;
mod draining;
mod endings;
mod failures;
mod fruitless;
mod going_back;
mod groups;
mod harness;
mod hosts;
mod launching;
mod probing;
mod registration;
mod replication;
mod reserve;
mod returning;
mod rounds;
mod shutdown;
mod silence;
mod stored;
mod taking_over;
mod taking_over_at_random;
mod together;
mod waiting;
