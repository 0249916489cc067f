//! Reads a [`Config`] from its sources.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use super::{
    error::Error,
    file,
    layer::{Layers, Origin, flag, variable},
    paths,
    table::{Config, KEYS},
};

/// The sources of values, in the order of precedence.
#[derive(Clone, Default, Debug)]
pub struct Sources {
    /// `--config FILE`, else the variable `ELASTICRUN_CONFIG`.
    pub file: Option<PathBuf>,
    /// The environment. Only variables of settings are read.
    pub environment: BTreeMap<String, String>,
    /// Flags by the key of their setting.
    pub flags: BTreeMap<&'static str, FlagWords>,
}

/// A flag as the user gave it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlagWords {
    /// Its name, as the user spelled it: `-H`, `--slots`, `PET_NNODES`.
    pub spelled: String,
    /// Its values.
    pub words: Vec<String>,
}

impl FlagWords {
    /// A variable of another launcher stands for a flag as well.
    fn origin(&self) -> Origin {
        let spelled = self.spelled.clone();
        match spelled.starts_with('-') {
            true => Origin::Flag(spelled),
            false => Origin::Environment(spelled),
        }
    }
}

impl Sources {
    /// Merges defaults, the file, the environment and the flags.
    ///
    /// # Errors
    /// The first invalid value, or a file that cannot be read or parsed.
    pub fn read(&self) -> Result<Config, Error> {
        let mut layers = Layers::default();
        if let Some((path, origin)) = self.named_file() {
            let content = paths::read(&path).and_then(|content| {
                String::from_utf8(content).map_err(|_| "is not UTF-8, expected text".to_owned())
            });
            let text = content.map_err(|why| Error::File {
                written: origin.written("config", &[path.display().to_string()]),
                why,
            })?;
            let keys: Vec<_> = KEYS.iter().map(|key| key.name).collect();
            file::add(&mut layers, &path, &text, &keys)?;
        }
        let keys = KEYS.iter().map(|key| (key.name, key.shape));
        layers.add_environment(keys, |name| self.environment.get(name).cloned());
        for (key, given) in &self.flags {
            let origin = given.origin();
            layers.add(key, origin, given.words.clone());
        }
        Config::read(&layers)
    }

    fn named_file(&self) -> Option<(PathBuf, Origin)> {
        let variable = variable("config");
        match &self.file {
            Some(path) => Some((path.clone(), Origin::Flag(flag("config")))),
            None => self
                .environment
                .get(&variable)
                .filter(|path| !path.trim().is_empty())
                .map(|path| (Path::new(path).to_owned(), Origin::Environment(variable))),
        }
    }
}
