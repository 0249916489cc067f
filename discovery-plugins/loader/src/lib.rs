//! Finds, loads and drives discovery plugins.
//!
//! The way from a flag to hosts: a [`Spec`] (`--discovery NAME:k=v`) names a plugin, a [`Catalog`] finds it in
//! the [`SearchPath`] or among those linked in and gives a [`Plugin`], and a [`Source`] polls it from threads of
//! its own and hands each [`Update`] to a closure. [`merge`](fn@merge) makes one list of several sources.
//!
//! A plugin that is not linked in has a process of its own (`process`), in which [`serve`](fn@serve) loads the
//! [`Library`]; with [`Isolation::Thread`] the library is loaded here.
//!
//! # Invariants
//! - D1 Before any of a plugin's code runs its file is checked (not writable by everyone, allowed, an image for this
//!   machine that is all there) and then its table (magic, version, size, functions). Only constructors of the
//!   library itself run in between, which no loader can prevent; of an isolated plugin, in its own process.
//! - D2 What runs is a sealed copy of the file. Who overwrites or deletes the file changes nothing. (An executable
//!   plugin is run from its file; interpreters want a path.)
//! - D3 A library is never unloaded.
//! - D4 A plugin that is linked in goes through the same table, checks and caps as one that is loaded.
//! - D5 A snapshot that gets out of here is whole: at most 4 MiB of UTF-8 JSON, unique ids, at most
//!   1024 slots a host, addresses and users that can be handed to ssh.
//! - D6 Each poll gives one update. A call that hangs gives one failure when its time is over: an isolated plugin is
//!   killed then; in this process, should the call come back, its result is one more, and nothing else is asked of
//!   that plugin in the meantime.
//! - D7 Nothing here waits for a plugin, except the two threads of its source.
//! - D8 An isolated plugin that crashes, exits, hangs or breaks the frames is one failure that says which of these it
//!   was; the next poll starts it anew, after a pause that grows (full jitter).
//!
//! # Not promised
//! A plugin that runs in this process and crashes, exits or corrupts memory takes the process with it; one that hangs
//! for ever keeps one thread.

mod allow;
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
pub use library::{Error, Instance, Library, Manifest, Nudge, Origin};
pub use plugin::{Isolation, Live, Plugin};
pub use process::HostProgram;
pub use search::SearchPath;
pub use serve::serve;
pub use source::{Backoff, Random, Running, Settings, Sink, Source, Update};
pub use spec::{Spec, SpecError};

/// What a plugin answers with.
pub use elasticrun_plugin_sdk::{Command, Host, HostState, SlotsFrom, Snapshot, hosts};
