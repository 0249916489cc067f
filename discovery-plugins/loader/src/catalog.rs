//! From a plugin's name to the plugin.

use std::collections::BTreeMap;

use crate::{Error, Library, SearchPath, builtin, library::symbol_for, search};

/// Finds plugins by name, and keeps what it found: the sources of one plugin share one library.
#[derive(Debug, Default)]
pub struct Catalog {
    path: SearchPath,
    found: BTreeMap<String, Library>,
}

impl Catalog {
    /// A catalog of what is linked in and in these directories.
    pub fn new(path: SearchPath) -> Self {
        Self {
            path,
            found: BTreeMap::new(),
        }
    }

    /// The plugin of that name: from the directories that somebody gave, else linked in, else from the system's
    /// directories. A file that is there but cannot be used is an error; it is not passed over.
    pub fn find(&mut self, name: &str) -> Result<Library, Error> {
        if let Some(library) = self.found.get(name) {
            return Ok(library.clone());
        }
        let library = self.look(name)?;
        self.found.insert(name.to_owned(), library.clone());
        Ok(library)
    }

    fn look(&self, name: &str) -> Result<Library, Error> {
        let file = format!("lib{}.so", symbol_for(name));
        if let Some(path) = search::first_with(&self.path.given, &file) {
            return Library::open(&path);
        }
        if let Some(library) = Library::linked(name) {
            return Ok(library);
        }
        if let Some(path) = search::first_with(&self.path.usual, &file) {
            return Library::open(&path);
        }
        let linked: Vec<_> = builtin::LINKED.iter().map(|(name, _)| *name).collect();
        Err(Error::NotFound {
            name: name.to_owned(),
            linked: linked.join(", "),
            file,
            searched: self.path.to_string(),
        })
    }
}
