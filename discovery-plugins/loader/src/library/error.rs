//! Why a plugin cannot be loaded. Each error prints its cause, so that no error has a source, which would be printed twice.

use std::{io, path::PathBuf};

use elasticrun_plugin_sdk::abi::{ABI_MAJOR, ABI_MINOR};

use crate::Hash;

/// Why a plugin cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no plugin of that name.
    #[error(
        "no discovery plugin {name:?}: linked in are {linked}; no {file} and no elasticrun-plugin-{name} in \
         {searched}. Give its directory with --plugin-dir"
    )]
    NotFound {
        /// The requested name.
        name: String,
        /// The names of the linked-in plugins.
        linked: String,
        /// The file that was searched.
        file: String,
        /// The searched directories.
        searched: String,
    },
    /// The name of the file is not that of a plugin.
    #[error("{}: the file of a plugin is named libelasticrun_plugin_NAME.so", path.display())]
    OddName {
        /// The file.
        path: PathBuf,
    },
    /// The file is unreadable.
    #[error("{}: cannot be read: {why}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        why: io::Error,
    },
    /// Not a plain file.
    #[error("{}: not a file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// It is world-writable, so that any user could run code in the job.
    #[error("{}: everyone may write to it; try chmod o-w on it, or move the plugin", path.display())]
    WorldWritable {
        /// The file, or its directory.
        path: PathBuf,
    },
    /// Not a complete image for this machine.
    #[error("{}: {why}", path.display())]
    BadImage {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: BadImage,
    },
    /// The system's loader refuses it.
    #[error("{}: cannot be loaded: {why}", path.display())]
    NotLoaded {
        /// The file.
        path: PathBuf,
        /// The message of the loader.
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
        /// The missing symbol.
        symbol: String,
    },
    /// Its exported table is invalid.
    #[error("{}: {why}", path.display())]
    BadTable {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: BadTable,
    },
    /// The plugin is not in the list of allowed plugins.
    #[error(
        "{}: not allowed: it is not on the list of --plugin-allow, which needs {name}={hash} for it", path.display()
    )]
    NotAllowed {
        /// The file.
        path: PathBuf,
        /// The requested name.
        name: String,
        /// The hash of the file.
        hash: Hash,
    },
    /// The program is not executable.
    #[error("{}: not executable; try chmod +x", path.display())]
    NotExecutable {
        /// The file.
        path: PathBuf,
    },
    /// Its process did not send a hello.
    #[error("{}: no plugin that can be used: {why}", path.display())]
    Unfit {
        /// The file.
        path: PathBuf,
        /// What the process did instead.
        why: String,
    },
    /// Its process cannot load it.
    #[error("{0}")]
    Refused(String),
    /// `exec` without a program.
    #[error("exec: which program? write exec:path=PROGRAM")]
    NoProgram,
    /// The name of the plugin differs from that of its file.
    #[error("{}: the plugin in it is named {name:?}; name the file lib{}.so, or elasticrun-plugin-{name} if it is \
        a program", path.display(), super::symbol_for(name))]
    OtherName {
        /// The file.
        path: PathBuf,
        /// The plugin's name.
        name: String,
    },
}

/// Why a file is no loadable image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadImage {
    /// Another kind of file.
    #[error("not a dynamic library")]
    NotALibrary,
    /// A program or an object file.
    #[error("an ELF file, but not a dynamic library")]
    OtherType,
    /// A library for another processor.
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
    /// It has no magic number.
    #[error("not a plugin: what it exports does not begin with ERUNPLUG")]
    Magic,
    /// It was built for another major version of the interface.
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
    /// It is too short for the required fields.
    #[error(
        "its table has {size} bytes, of which {needed} are needed; build it with a matching SDK"
    )]
    Size {
        /// Its declared size.
        size: u32,
        /// The required size.
        needed: usize,
    },
    /// It does not support polls.
    #[error("it does not say that it can be polled (flags {flags:#x}), which every plugin must")]
    NoPoll {
        /// Its flags.
        flags: u64,
    },
    /// A function is missing.
    #[error("its table has no {0}")]
    NoFunction(&'static str),
    /// Its manifest cannot be read.
    #[error("its manifest is not understood: {0}")]
    Manifest(String),
}
