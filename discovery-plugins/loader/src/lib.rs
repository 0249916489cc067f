//! Finds, loads and drives discovery plugins.
//!
//! The way from a flag to hosts: a [`Spec`] (`--discovery NAME:k=v`) names a plugin, a [`Catalog`] finds it in
//! the [`SearchPath`] or among those linked in and gives a [`Library`], and a [`Source`] polls it from threads of
//! its own and hands each [`Update`] to a closure. [`merge`](fn@merge) makes one list of several sources.
//!
//! # Invariants
//! - D1 Before any of a plugin's code runs its file is checked (not writable by everyone, an image for this
//!   machine that is all there) and then its table (magic, version, size, functions). Only constructors of the
//!   library itself run in between, which no loader can prevent.
//! - D2 What runs is a sealed copy of the file. Who overwrites or deletes the file changes nothing.
//! - D3 A library is never unloaded.
//! - D4 A plugin that is linked in goes through the same table, checks and caps as one that is loaded.
//! - D5 A snapshot that gets out of here is whole: at most 4 MiB of UTF-8 JSON, unique ids, at most
//!   1024 slots a host, addresses and users that can be handed to ssh.
//! - D6 Each poll gives one update. A call that hangs gives one failure when its time is over and, if it does
//!   come back, its result; nothing else is asked of that plugin in the meantime.
//! - D7 Nothing here waits for a plugin, except the two threads of its source.
//!
//! # Not promised
//! A plugin runs in this process. One that crashes, exits or corrupts memory takes the process with it; one that
//! hangs for ever keeps one thread. (Isolation in a child process belongs in front of [`Library`], whose calls
//! carry JSON only.)

mod builtin;
mod catalog;
mod failure;
mod library;
mod merge;
mod search;
mod source;
mod spec;

pub use catalog::Catalog;
pub use failure::{Failure, FailureKind};
pub use library::{Error, Instance, Library, Manifest, Nudge, Origin};
pub use merge::merge;
pub use search::SearchPath;
pub use source::{Backoff, Random, Running, Settings, Sink, Source, Update};
pub use spec::{Spec, SpecError};

/// What a plugin answers with.
pub use elasticrun_plugin_sdk::{Command, Host, HostState, SlotsFrom, Snapshot, hosts};
