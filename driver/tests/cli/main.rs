//! The command line: its output, its errors, and that no input makes it panic.
//!
//! Snapshots are reviewed as text. `INSTA_UPDATE=always cargo nextest run -p elasticrun --test cli` renews them.

mod completed;
mod precedence;
mod printed;
mod refused;
mod resolved;
mod torchrun;

use std::{
    ffi::OsString,
    process::{Command, Output},
};

use elasticrun::{
    cli::{Invocation, RunRequest, parse},
    config::Error,
};

/// Parses words with an environment.
fn with(words: &[&str], environment: &[(&str, &str)]) -> Result<Invocation, Error> {
    parse(
        words.iter().map(OsString::from),
        environment
            .iter()
            .map(|(name, value)| (OsString::from(name), OsString::from(value))),
    )
}

/// Parses words of a valid job.
fn job(words: &[&str]) -> RunRequest {
    match with(words, &[]) {
        Ok(Invocation::Run(request)) => *request,
        other => panic!("{words:?} is no job: {other:?}"),
    }
}

/// Parses words that print something.
fn text(words: &[&str]) -> String {
    match with(words, &[]) {
        Ok(Invocation::Print(text)) => text,
        other => panic!("{words:?} prints nothing: {other:?}"),
    }
}

/// Parses words that are refused.
fn refusal(words: &[&str]) -> Error {
    match with(words, &[]) {
        Err(error) => error,
        Ok(other) => panic!("{words:?} is accepted: {other:?}"),
    }
}

/// Runs the binary without variables of elasticrun in its environment.
fn elasticrun(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_elasticrun"))
        .args(words)
        .env_clear()
        .output()
        .expect("the binary was built for this test")
}
