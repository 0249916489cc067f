//! Why a plugin cannot be loaded.

use std::{io, path::PathBuf};

use elasticrun_plugin_sdk::abi::{ABI_MAJOR, ABI_MINOR};

use crate::Hash;

/// Why a plugin cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody has a plugin of that name.
    #[error(
        "no discovery plugin {name:?}: linked in are {linked}; no {file} and no elasticrun-plugin-{name} in \
         {searched}. Give its directory with --plugin-dir"
    )]
    NotFound {
        /// What was asked for.
        name: String,
        /// The names of those linked in.
        linked: String,
        /// The file that was looked for.
        file: String,
        /// Where.
        searched: String,
    },
    /// The name of the file is not that of a plugin.
    #[error("{}: the file of a plugin is named libelasticrun_plugin_NAME.so", path.display())]
    OddName {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Not a plain file.
    #[error("{}: not a file", path.display())]
    NotAFile {
        /// What it is not.
        path: PathBuf,
    },
    /// Everyone may write to it, so that anyone could run code in the job.
    #[error("{}: everyone may write to it; try chmod o-w on it, or move the plugin", path.display())]
    WorldWritable {
        /// The file, or the directory that it is in.
        path: PathBuf,
    },
    /// Not an image that this machine can run, or not all of it.
    #[error("{}: {source}", path.display())]
    BadImage {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: BadImage,
    },
    /// The system's loader refuses it.
    #[error("{}: cannot be loaded: {why}", path.display())]
    NotLoaded {
        /// The file.
        path: PathBuf,
        /// In the loader's words.
        why: String,
    },
    /// It is a library, but not a plugin.
    #[error(
        "{}: not a plugin: it does not export {symbol}; a plugin in Rust needs export_plugin! \
         and crate-type = [\"cdylib\"]", path.display()
    )]
    NoSymbol {
        /// The file.
        path: PathBuf,
        /// What is missing.
        symbol: String,
    },
    /// What it exports is not a table that we understand.
    #[error("{}: {source}", path.display())]
    BadTable {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: BadTable,
    },
    /// Some plugins are allowed by name and hash, and this is none of them.
    #[error(
        "{}: not allowed: it is not on the list of --plugin-allow, which needs {name}={hash} for it", path.display()
    )]
    NotAllowed {
        /// The file.
        path: PathBuf,
        /// The name under which it is wanted.
        name: String,
        /// What is in it.
        hash: Hash,
    },
    /// A program that cannot be run.
    #[error("{}: not executable; try chmod +x", path.display())]
    NotExecutable {
        /// The file.
        path: PathBuf,
    },
    /// Its process did not say who it is.
    #[error("{}: no plugin that can be used: {why}", path.display())]
    Unfit {
        /// The file.
        path: PathBuf,
        /// What its process did instead.
        why: String,
    },
    /// Its process says that it cannot be loaded.
    #[error("{0}")]
    Refused(String),
    /// `exec` without a program.
    #[error("exec: which program? write exec:path=PROGRAM")]
    NoProgram,
    /// The plugin has another name than its file.
    #[error("{}: the plugin in it is named {name:?}; name the file lib{}.so, or elasticrun-plugin-{name} if it is \
        a program", path.display(), super::symbol_for(name))]
    OtherName {
        /// The file.
        path: PathBuf,
        /// The plugin's name.
        name: String,
    },
}

/// Why a file is no image that can be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadImage {
    /// Some other file.
    #[error("not a dynamic library")]
    NotALibrary,
    /// A program or an object file.
    #[error("an ELF file, but not a dynamic library")]
    OtherType,
    /// For another processor.
    #[error("a dynamic library for another machine (ELF machine {machine})")]
    OtherMachine {
        /// Its number in the ELF header.
        machine: u16,
    },
    /// A part is missing.
    #[error("a part of the library is missing; was it being copied?")]
    Truncated,
}

/// Why a table is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTable {
    /// It does not begin as one.
    #[error("not a plugin: what it exports does not begin with ERUNPLUG")]
    Magic,
    /// It was built for another generation of the interface.
    #[error(
        "built for version {major}.{minor} of the plugin interface, this is \
         {ABI_MAJOR}.{ABI_MINOR}; build it with a matching SDK"
    )]
    Version {
        /// Its major version.
        major: u16,
        /// Its minor version.
        minor: u16,
    },
    /// It is too short for what every plugin has.
    #[error(
        "its table has {size} bytes, of which {needed} are needed; build it with a matching SDK"
    )]
    Size {
        /// What it says.
        size: u32,
        /// What is needed.
        needed: usize,
    },
    /// It does not poll.
    #[error("it does not say that it can be polled (flags {flags:#x}), which every plugin must")]
    NoPoll {
        /// What it can do.
        flags: u64,
    },
    /// A function is missing.
    #[error("its table has no {0}")]
    NoFunction(&'static str),
    /// Its manifest cannot be read.
    #[error("its manifest is not understood: {0}")]
    Manifest(String),
}
