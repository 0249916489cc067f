//! Finds plugins by name.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{self, Path, PathBuf},
};

use elasticrun_plugin_sdk::abi::SYMBOL_PREFIX;
use nix::unistd::{AccessFlags, access};
use serde_json::{Map, Value};

use crate::{
    Allowed, Error, Hash, HostProgram, Library, Plugin, SearchPath, Spec, builtin,
    library::{sealed_copy, symbol_for, trusted},
    process::{IdentifiedProgram, Program, ProgramKind},
    search,
};

/// The name that stands for any program: `exec:path=PROGRAM`.
const EXEC: &str = "exec";
/// Prefix of the file names of executable plugins.
const EXECUTABLE_PREFIX: &str = "elasticrun-plugin-";

/// Finds plugins by name and caches them. The sources of one plugin share one library, or one image of it.
#[derive(Debug, Default)]
pub struct Catalog {
    path: SearchPath,
    host: Option<HostProgram>,
    allowed: Vec<Allowed>,
    found: BTreeMap<String, Plugin>,
}

impl Catalog {
    /// A catalog of the linked-in plugins and of these directories. Libraries run in this process.
    pub fn new(path: SearchPath) -> Self {
        Self {
            path,
            ..Self::default()
        }
    }

    /// The same, but each library runs in its own process. Linked-in plugins stay in this process, since they are part of
    /// this program.
    pub fn isolated(self, host: HostProgram) -> Self {
        Self {
            host: Some(host),
            ..self
        }
    }

    /// The same, but with only these and the linked-in plugins. An empty list allows all plugins.
    pub fn allow(self, allowed: Vec<Allowed>) -> Self {
        Self { allowed, ..self }
    }

    /// The plugin of a specification, and its options.
    pub fn source(&mut self, spec: &Spec) -> Result<(Plugin, Map<String, Value>), Error> {
        if spec.name != EXEC {
            return Ok((self.find(&spec.name)?, spec.options.clone()));
        }
        let mut options = spec.options.clone();
        let path = options.remove("path");
        let path = path.as_ref().and_then(Value::as_str);
        let path = path
            .filter(|path| !path.is_empty())
            .ok_or(Error::NoProgram)?;
        let plugin = self.executable(EXEC, Path::new(path))?.into();
        Ok((plugin, options))
    }

    /// The plugin of that name: from the given directories, else linked in, else from the system's directories. A file that
    /// exists but is unusable is an error. The search does not skip it.
    pub fn find(&mut self, name: &str) -> Result<Plugin, Error> {
        if let Some(plugin) = self.found.get(name) {
            return Ok(plugin.clone());
        }
        let plugin = self.search(name)?;
        self.found.insert(name.to_owned(), plugin.clone());
        Ok(plugin)
    }

    /// The names of all linked-in plugins, and of all files in the directories that have the name of a plugin.
    /// [`Self::find`] checks whether they are usable.
    pub fn names(&self) -> BTreeSet<String> {
        let mut names: BTreeSet<_> = builtin::LINKED
            .iter()
            .map(|(name, _)| (*name).to_owned())
            .collect();
        for directory in self.path.given.iter().chain(&self.path.usual) {
            // A missing directory has no plugins.
            for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
                names.extend(entry.file_name().to_str().and_then(plugin_name));
            }
        }
        names
    }

    fn search(&self, name: &str) -> Result<Plugin, Error> {
        let library = format!("lib{}.so", symbol_for(name));
        let executable = format!("{EXECUTABLE_PREFIX}{name}");
        let files = [library.as_str(), executable.as_str()];
        if let Some(path) = search::first_with(&self.path.given, files) {
            return self.open(name, &path);
        }
        if let Some(library) = Library::linked(name) {
            return Ok(library.into());
        }
        if let Some(path) = search::first_with(&self.path.usual, files) {
            return self.open(name, &path);
        }
        let linked: Vec<_> = builtin::LINKED.iter().map(|(name, _)| *name).collect();
        Err(Error::NotFound {
            name: name.to_owned(),
            linked: linked.join(", "),
            file: library,
            searched: self.path.to_string(),
        })
    }

    fn open(&self, name: &str, path: &Path) -> Result<Plugin, Error> {
        let is_library = path.extension().is_some_and(|extension| extension == "so");
        if !is_library {
            let program = self.executable(name, path)?;
            let found = &program.manifest().name;
            return if found == name {
                Ok(program.into())
            } else {
                Err(Error::OtherName {
                    path: path.to_owned(),
                    name: found.clone(),
                })
            };
        }
        let image = sealed_copy(path, |hash| self.check(name, path, hash))?;
        match &self.host {
            None => Ok(Library::open_image(path, image)?.into()),
            Some(host) => {
                let host = host.clone();
                let program = Program {
                    path: path.to_owned(),
                    kind: ProgramKind::Library { image, host },
                };
                Ok(program.identify()?.into())
            }
        }
    }

    /// Runs a program that exchanges frames by itself, to get its manifest.
    fn executable(&self, name: &str, path: &Path) -> Result<IdentifiedProgram, Error> {
        let path: PathBuf = path::absolute(path).map_err(|why| Error::Io {
            path: path.to_owned(),
            why,
        })?;
        let content = trusted(&path)?;
        self.check(name, &path, Hash::digest(&content))?;
        if access(&path, AccessFlags::X_OK).is_err() {
            return Err(Error::NotExecutable { path });
        }
        let kind = ProgramKind::Executable;
        Program { path, kind }.identify()
    }

    fn check(&self, name: &str, path: &Path, hash: Hash) -> Result<(), Error> {
        let mut listed = self.allowed.iter();
        let matches = |allowed: &Allowed| allowed.name == name && allowed.hash == hash;
        if self.allowed.is_empty() || listed.any(matches) {
            return Ok(());
        }
        Err(Error::NotAllowed {
            path: path.to_owned(),
            name: name.to_owned(),
            hash,
        })
    }
}

/// The name of the plugin in a file of this name.
fn plugin_name(file: &str) -> Option<String> {
    if let Some(name) = file.strip_prefix(EXECUTABLE_PREFIX) {
        // Not files beside a program, such as its list of dependencies.
        return (!name.is_empty() && !name.contains('.')).then(|| name.to_owned());
    }
    let name = file
        .strip_prefix("lib")?
        .strip_suffix(".so")?
        .strip_prefix(SYMBOL_PREFIX)?;
    Some(name.replace('_', "-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_plugins_by_their_names() {
        let name = |file| plugin_name(file);
        assert_eq!(
            name("libelasticrun_plugin_aws_asg.so").as_deref(),
            Some("aws-asg")
        );
        assert_eq!(name("elasticrun-plugin-rack").as_deref(), Some("rack"));
        for other in [
            "elasticrun-plugin-rack.d",
            "libc.so",
            "elasticrun",
            "elasticrun-plugin-",
        ] {
            assert_eq!(name(other), None, "{other}");
        }
    }
}
