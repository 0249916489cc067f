//! From a plugin's name to the plugin.

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
    process::{Known, Program, What},
    search,
};

/// The name that stands for any program: `exec:path=PROGRAM`.
const EXEC: &str = "exec";
/// What the name of a file begins with that is a plugin and a program.
const EXECUTABLE_PREFIX: &str = "elasticrun-plugin-";

/// Finds plugins by name, and keeps what it found: the sources of one plugin share one library, or one image of it.
#[derive(Debug, Default)]
pub struct Catalog {
    path: SearchPath,
    host: Option<HostProgram>,
    allowed: Vec<Allowed>,
    found: BTreeMap<String, Plugin>,
}

impl Catalog {
    /// A catalog of what is linked in and in these directories, whose libraries run in this process.
    pub fn new(path: SearchPath) -> Self {
        Self {
            path,
            ..Self::default()
        }
    }

    /// The same, but a library runs in a process of its own. What is linked in stays here: it is part of this
    /// program, as safe as the rest of it.
    pub fn isolated(self, host: HostProgram) -> Self {
        Self {
            host: Some(host),
            ..self
        }
    }

    /// The same, but if there is at least one, no others than these and those linked in.
    pub fn allow(self, allowed: Vec<Allowed>) -> Self {
        Self { allowed, ..self }
    }

    /// The plugin of a specification, and the options that are for it.
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

    /// The plugin of that name: from the directories that somebody gave, else linked in, else from the system's
    /// directories. A file that is there but cannot be used is an error; it is not passed over.
    pub fn find(&mut self, name: &str) -> Result<Plugin, Error> {
        if let Some(plugin) = self.found.get(name) {
            return Ok(plugin.clone());
        }
        let plugin = self.look(name)?;
        self.found.insert(name.to_owned(), plugin.clone());
        Ok(plugin)
    }

    /// The names that can be found: those linked in, and of files in the directories that are named as plugins are.
    /// Whether they can be used is for [`Self::find`] to say.
    pub fn names(&self) -> BTreeSet<String> {
        let mut names: BTreeSet<_> = builtin::LINKED
            .iter()
            .map(|(name, _)| (*name).to_owned())
            .collect();
        for directory in self.path.given.iter().chain(&self.path.usual) {
            // A directory that is not there has no plugins.
            for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
                names.extend(entry.file_name().to_str().and_then(name_of));
            }
        }
        names
    }

    fn look(&self, name: &str) -> Result<Plugin, Error> {
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
            let known = self.executable(name, path)?;
            let own = &known.manifest().name;
            return if own == name {
                Ok(known.into())
            } else {
                Err(Error::OtherName {
                    path: path.to_owned(),
                    name: own.clone(),
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
                    what: What::Library { image, host },
                };
                Ok(program.ask()?.into())
            }
        }
    }

    /// A program that speaks the frames by itself; it is asked who it is.
    fn executable(&self, name: &str, path: &Path) -> Result<Known, Error> {
        let path: PathBuf = path::absolute(path).map_err(|source| Error::Io {
            path: path.to_owned(),
            source,
        })?;
        let content = trusted(&path)?;
        self.check(name, &path, Hash::of(&content))?;
        if access(&path, AccessFlags::X_OK).is_err() {
            return Err(Error::NotExecutable { path });
        }
        let what = What::Executable;
        Program { path, what }.ask()
    }

    fn check(&self, name: &str, path: &Path, hash: Hash) -> Result<(), Error> {
        let mut listed = self.allowed.iter();
        let good = |allowed: &Allowed| allowed.name == name && allowed.hash == hash;
        if self.allowed.is_empty() || listed.any(good) {
            return Ok(());
        }
        Err(Error::NotAllowed {
            path: path.to_owned(),
            name: name.to_owned(),
            hash,
        })
    }
}

/// The plugin that a file of this name would be.
fn name_of(file: &str) -> Option<String> {
    if let Some(name) = file.strip_prefix(EXECUTABLE_PREFIX) {
        // Not the files that lie beside a program, such as one's table of dependencies.
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
        let of = |file| name_of(file);
        assert_eq!(
            of("libelasticrun_plugin_aws_asg.so").as_deref(),
            Some("aws-asg")
        );
        assert_eq!(of("elasticrun-plugin-rack").as_deref(), Some("rack"));
        for other in [
            "elasticrun-plugin-rack.d",
            "libc.so",
            "elasticrun",
            "elasticrun-plugin-",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
