//! A plugin in this process, from a file or a linked-in table. The process is that of the driver, or the plugin's own.

mod answer;
mod elf;
mod error;
mod image;
mod instance;
mod table;

use std::{fmt, os::fd::IntoRawFd, path::Path, path::PathBuf, sync::Arc};

use elasticrun_plugin_sdk::abi::{RawHost, RawPlugin, SYMBOL_PREFIX};
use libloading::os::unix::{Library as Handle, RTLD_LOCAL, RTLD_NOW};
use serde_json::{Map, Value};

pub(crate) use answer::{MAX_ANSWER, snapshot, text};
pub use error::Error;
pub(crate) use image::{Image, sealed_copy, trusted};
pub use instance::{ChangeSignal, Instance};
pub use table::Manifest;
#[cfg(any(test, fuzzing))]
pub(crate) use table::manifest;

use table::Table;

use crate::{Failure, builtin, log};

/// A plugin in this process. It is never unloaded (invariant D3). Cheap to clone.
#[derive(Clone)]
pub struct Library {
    table: Table,
    manifest: Arc<Manifest>,
    origin: Origin,
    /// The name for its log. `None` if it shares the log of this process.
    logs_as: Option<&'static String>,
}

/// The origin of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It is linked into this program.
    Linked,
    /// A file.
    File(PathBuf),
}

impl Library {
    /// Loads `libelasticrun_plugin_NAME.so`. A second call loads a second copy.
    pub fn open(path: &Path) -> Result<Self, Error> {
        expected_symbol(path)?;
        Self::open_image(path, sealed_copy(path, |_| Ok(()))?)
    }

    /// Loads an image of the library at `path`.
    pub(crate) fn open_image(path: &Path, image: Image) -> Result<Self, Error> {
        let symbol = expected_symbol(path)?;
        // SAFETY: constructors of the library run. The user trusts it by naming it. Its image is complete and cannot
        // change (D1, D2). Everything else is checked before it is called.
        let handle = unsafe { Handle::open(Some(image.path()), RTLD_NOW | RTLD_LOCAL) };
        let handle = handle.map_err(|error| Error::NotLoaded {
            path: path.to_owned(),
            why: image.with_file_path(&reason(&error), path),
        })?;
        // The system's loader identifies a library by its path, which ends in the number of this descriptor. The number
        // must stay in use, or the loader would return this library for the next one.
        let _ = image.into_fd().into_raw_fd();
        // SAFETY: `Table::read` checks the pointer before it reads it.
        let found = unsafe { handle.get::<*const RawPlugin>(symbol.as_bytes()) };
        let pointer = found.map(|found| found.as_raw_ptr().cast::<RawPlugin>());
        std::mem::forget(handle);
        let Ok(pointer) = pointer else {
            return Err(Error::NoSymbol {
                path: path.to_owned(),
                symbol,
            });
        };
        // SAFETY: the symbol's name declares a table, and the library stays loaded.
        let table = unsafe { Table::read(pointer) };
        let found = table.and_then(|table| Ok((table.manifest()?, table)));
        let (manifest, table) = found.map_err(|why| Error::BadTable {
            path: path.to_owned(),
            why,
        })?;
        if symbol_for(&manifest.name) != symbol {
            return Err(Error::OtherName {
                path: path.to_owned(),
                name: manifest.name,
            });
        }
        let (name, version) = (&manifest.name, &manifest.version);
        tracing::info!(%name, %version, path = %path.display(), "loaded a discovery plugin");
        Ok(Self {
            table,
            // A library is never unloaded, and its name is kept as well.
            logs_as: Some(Box::leak(Box::new(manifest.name.clone()))),
            manifest: manifest.into(),
            origin: Origin::File(path.to_owned()),
        })
    }

    /// A plugin that is linked in.
    pub fn linked(name: &str) -> Option<Self> {
        let (_, raw) = builtin::LINKED.iter().find(|(linked, _)| *linked == name)?;
        // SAFETY: it is a constant table.
        let table = unsafe { Table::read(*raw) }.expect("a linked table is of this build");
        let manifest = table.manifest().expect("the SDK made the manifest");
        Some(Self {
            table,
            manifest: manifest.into(),
            origin: Origin::Linked,
            logs_as: None,
        })
    }

    /// Its manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Its origin.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Creates an instance. Blocks while the plugin works.
    pub fn create(&self, options: &Map<String, Value>) -> Result<Instance, Failure> {
        let host = self.logs_as.map_or(RawHost::THIS, log::host);
        self.create_for(&host, options)
    }

    /// Creates an instance with this host.
    pub(crate) fn create_for(
        &self,
        host: &RawHost,
        options: &Map<String, Value>,
    ) -> Result<Instance, Failure> {
        Instance::create(self.table, host, options)
    }

    /// Whether its instances push changes.
    pub fn watches(&self) -> bool {
        self.table.watch.is_some()
    }
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            manifest, origin, ..
        } = self;
        f.debug_struct("Library")
            .field("manifest", manifest)
            .field("origin", origin)
            .finish()
    }
}

/// The message of the system's loader, which is the source of the error.
fn reason(error: &dyn std::error::Error) -> String {
    error
        .source()
        .map_or_else(|| error.to_string(), ToString::to_string)
}

/// The symbol of a plugin, which is also the name of its library.
pub(crate) fn symbol_for(name: &str) -> String {
    format!("{SYMBOL_PREFIX}{}", name.replace('-', "_"))
}

/// The symbol that a file must export.
fn expected_symbol(path: &Path) -> Result<String, Error> {
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let symbol = name
        .strip_prefix("lib")
        .and_then(|name| name.strip_suffix(".so"));
    let symbol = symbol.filter(|symbol| symbol.starts_with(SYMBOL_PREFIX));
    symbol.map(str::to_owned).ok_or_else(|| Error::OddName {
        path: path.to_owned(),
    })
}
