//! A plugin in this process, the driver's or one that was made for it: from a file or a linked-in table to an instance that answers polls.

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
pub use instance::{Instance, Nudge};
pub use table::Manifest;

use table::Table;

use crate::{Failure, builtin, log};

/// A plugin that is in this process, for ever (invariant D3). Cheap to clone.
#[derive(Clone)]
pub struct Library {
    table: Table,
    manifest: Arc<Manifest>,
    origin: Origin,
    /// The name for its log; none if it shares ours.
    logs_as: Option<&'static String>,
}

/// Where a plugin came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It is part of this program.
    Linked,
    /// A file.
    File(PathBuf),
}

impl Library {
    /// Loads `libelasticrun_plugin_NAME.so`. A second call loads a second copy.
    pub fn open(path: &Path) -> Result<Self, Error> {
        symbol_of(path)?;
        Self::open_image(path, sealed_copy(path, |_| Ok(()))?)
    }

    /// Loads an image of the library at `path`.
    pub(crate) fn open_image(path: &Path, image: Image) -> Result<Self, Error> {
        let symbol = symbol_of(path)?;
        // SAFETY: constructors of the library run, with the trust that its user put in it by naming it; its
        // image is complete and cannot change (D1, D2). Everything else is checked before it is called.
        let handle = unsafe { Handle::open(Some(image.path()), RTLD_NOW | RTLD_LOCAL) };
        let handle = handle.map_err(|error| Error::NotLoaded {
            path: path.to_owned(),
            why: image.named(&reason(&error), path),
        })?;
        // The system's loader knows a library by the path it was loaded from, and ours ends in the number of
        // the open file: it must stay taken, or the next library would be taken for this one.
        let _ = image.into_fd().into_raw_fd();
        // SAFETY: the pointer is not read before `Table::read` has checked where it leads.
        let found = unsafe { handle.get::<*const RawPlugin>(symbol.as_bytes()) };
        let pointer = found.map(|found| found.as_raw_ptr().cast::<RawPlugin>());
        std::mem::forget(handle);
        let Ok(pointer) = pointer else {
            return Err(Error::NoSymbol {
                path: path.to_owned(),
                symbol,
            });
        };
        // SAFETY: the symbol's name says that a table is there, and the library stays loaded.
        let table = unsafe { Table::read(pointer) };
        let found = table.and_then(|table| Ok((table.manifest()?, table)));
        let (manifest, table) = found.map_err(|source| Error::BadTable {
            path: path.to_owned(),
            source,
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
            // A library stays for ever, and so does its name.
            logs_as: Some(Box::leak(Box::new(manifest.name.clone()))),
            manifest: manifest.into(),
            origin: Origin::File(path.to_owned()),
        })
    }

    /// A plugin that is linked in.
    pub fn linked(name: &str) -> Option<Self> {
        let (_, raw) = builtin::LINKED.iter().find(|(linked, _)| *linked == name)?;
        // SAFETY: it is a table, and a constant.
        let table = unsafe { Table::read(*raw) }.expect("a linked table is of this build");
        let manifest = table.manifest().expect("the SDK made the manifest");
        Some(Self {
            table,
            manifest: manifest.into(),
            origin: Origin::Linked,
            logs_as: None,
        })
    }

    /// What the plugin says of itself.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Where it came from.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Makes an instance. Blocks for as long as the plugin takes.
    pub fn create(&self, options: &Map<String, Value>) -> Result<Instance, Failure> {
        let host = self.logs_as.map_or(RawHost::THIS, log::host);
        self.create_for(&host, options)
    }

    /// Makes an instance that sees this host.
    pub(crate) fn create_for(
        &self,
        host: &RawHost,
        options: &Map<String, Value>,
    ) -> Result<Instance, Failure> {
        Instance::create(self.table, host, options)
    }

    /// Whether its instances say by themselves when they have something new.
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

/// What the system's loader says, which is in the cause of the error.
fn reason(error: &dyn std::error::Error) -> String {
    error
        .source()
        .map_or_else(|| error.to_string(), ToString::to_string)
}

/// The symbol, and the name of the library, of a plugin.
pub(crate) fn symbol_for(name: &str) -> String {
    format!("{SYMBOL_PREFIX}{}", name.replace('-', "_"))
}

/// The symbol that a file must export.
fn symbol_of(path: &Path) -> Result<String, Error> {
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
