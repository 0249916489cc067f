//! The search path of plugins.

use std::{
    env,
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
};

/// The directories that are searched for plugins, in order.
///
/// Given directories (`--plugin-dir`, then `$ELASTICRUN_PLUGIN_PATH`) come before the linked-in plugins, so that they can
/// replace these. Directories of the system (XDG data, `/usr/lib`) come last, so that an old file there does not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchPath {
    /// Searched before the linked-in plugins.
    pub given: Vec<PathBuf>,
    /// Searched after the linked-in plugins.
    pub usual: Vec<PathBuf>,
}

impl SearchPath {
    /// The directories of `--plugin-dir` and those that the environment adds.
    pub fn new(plugin_dirs: impl IntoIterator<Item = PathBuf>) -> Self {
        Self::with_env(plugin_dirs, |name| env::var_os(name))
    }

    /// The same, with another environment.
    pub fn with_env(
        plugin_dirs: impl IntoIterator<Item = PathBuf>,
        env: impl Fn(&str) -> Option<OsString>,
    ) -> Self {
        let from_env = env("ELASTICRUN_PLUGIN_PATH").unwrap_or_default();
        let from_env = env::split_paths(&from_env).filter(|path| !path.as_os_str().is_empty());
        let given = plugin_dirs.into_iter().chain(from_env).collect();
        let data = env("XDG_DATA_HOME")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute());
        let data = data.or_else(|| {
            let home = env("HOME")
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())?;
            Some(home.join(".local/share"))
        });
        let data = data.map(|path| path.join("elasticrun/plugins"));
        let usual = data
            .into_iter()
            .chain([PathBuf::from("/usr/lib/elasticrun/plugins")])
            .collect();
        Self { given, usual }
    }
}

/// The first file that exists, by directory and then by file name.
pub(crate) fn first_with(directories: &[PathBuf], files: [&str; 2]) -> Option<PathBuf> {
    directories
        .iter()
        .flat_map(|directory| files.map(|file| directory.join(file)))
        .find(|path| exists(path))
}

/// Whether a path exists, even if it is unreadable. An error about it is better than another file of that name.
fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

impl fmt::Display for SearchPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, path) in self.given.iter().chain(&self.usual).enumerate() {
            write!(
                f,
                "{}{}",
                if index == 0 { "" } else { ", " },
                path.display()
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(dirs: &[&str], env: &[(&str, &str)]) -> SearchPath {
        SearchPath::with_env(dirs.iter().map(PathBuf::from), |name| {
            env.iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| value.into())
        })
    }

    #[test]
    fn flags_come_first_then_the_environment_then_the_system() {
        let env = [
            ("ELASTICRUN_PLUGIN_PATH", "/c::/d"),
            ("XDG_DATA_HOME", "/data"),
            ("HOME", "/home/me"),
        ];
        let path = with(&["/a", "b"], &env);
        assert_eq!(path.given, ["/a", "b", "/c", "/d"].map(PathBuf::from));
        assert_eq!(
            path.usual,
            ["/data/elasticrun/plugins", "/usr/lib/elasticrun/plugins"].map(PathBuf::from)
        );
        assert_eq!(
            with(
                &[],
                &[("HOME", "/home/me"), ("XDG_DATA_HOME", "not/absolute")]
            )
            .to_string(),
            "/home/me/.local/share/elasticrun/plugins, /usr/lib/elasticrun/plugins"
        );
        assert_eq!(with(&[], &[]).to_string(), "/usr/lib/elasticrun/plugins");
    }
}
