//! Finds, loads and drives discovery plugins.
//!
//! A [`Spec`] (`--discovery NAME:k=v`) names a plugin. A [`Catalog`] finds the [`Plugin`] in the [`SearchPath`] or among
//! those linked in. A [`Source`] polls it from its own threads and passes each [`Update`] to a closure.
//! [`merge`](fn@merge) merges the lists of several sources.
//!
//! A plugin that is not linked in runs in its own process (`process`), in which [`serve`](fn@serve) loads the
//! [`Library`]. With [`Isolation::Thread`] this process loads the library.
//!
//! # Invariants
//! - D1 Before any code of a plugin runs, its file is checked (not world-writable, allowed, a complete image for this
//!   machine), and then its table (magic, version, size, functions). Only constructors of the library run in between, which
//!   no loader can prevent. Those of an isolated plugin run in its own process.
//! - D2 A sealed copy of the file runs, so overwriting or deleting the file changes nothing. Exception: an executable
//!   plugin runs from its file, since interpreters need a path.
//! - D3 A library is never unloaded.
//! - D4 A linked-in plugin passes the same table, checks and limits as a loaded one.
//! - D5 A snapshot that this crate returns is valid: at most 4 MiB of UTF-8 JSON, unique ids, 1 to 1024 slots per host,
//!   addresses and users that are safe arguments of ssh. Each text that is only shown is one line.
//! - D6 Each poll gives one update. A call that hangs gives one failure at its time limit. An isolated plugin is killed
//!   then. In this process the plugin gets no further call until the hanging one returns, and its result is one more update.
//! - D7 Only the two threads of a source wait for its plugin.
//! - D8 If an isolated plugin crashes, exits, hangs or breaks the frames, the poll gives one failure with that cause. The
//!   next poll starts a new process, after a growing pause (full jitter).
//!
//! # Not promised
//! If a plugin in this process crashes, exits or corrupts memory, it ends this process. A plugin that hangs forever keeps
//! one thread.

mod allow;
#[cfg(any(test, fuzzing))]
pub mod any_input;
mod builtin;
mod catalog;
pub mod conformance;
mod failure;
mod frames;
mod library;
mod log;
mod plugin;
mod process;
mod search;
mod serve;
mod source;
mod spec;

pub use allow::{Allowed, Hash, NotAllowed};
pub use catalog::Catalog;
pub use elasticrun_hosts::merge;
pub use failure::{Failure, FailureKind};
pub use library::{ChangeSignal, Error, Instance, Library, Manifest, Origin};
pub use plugin::{Isolation, Live, Plugin};
pub use process::HostProgram;
pub use search::SearchPath;
pub use serve::serve;
pub use source::{Backoff, Random, Running, Settings, Sink, Source, Update};
pub use spec::{Spec, SpecError};

/// Types of a plugin's answers, and its commands.
pub use elasticrun_plugin_sdk::{Command, Host, HostState, SlotsFrom, Snapshot, hosts};
