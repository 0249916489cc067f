//! `elasticrun plugin new NAME --lang LANGUAGE`: a project that builds, passes `plugin test`, and lists hosts.

use std::{
    env, fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf, absolute},
};

use anyhow::{Context as _, bail};

use super::line;
use crate::{
    cli::{Language, NewPlugin},
    exit,
};

/// A file of a project: its path, its content, and whether it is a program.
type Template = (&'static str, &'static str, bool);

const IGNORE: Template = (".gitignore", "/target/\n*.so\n__pycache__/\n", false);
const RUST: [Template; 4] = [
    ("Cargo.toml", include_str!("new/rust/Cargo.toml.in"), false),
    ("src/lib.rs", include_str!("new/rust/lib.rs.in"), false),
    ("README.md", include_str!("new/rust/README.md.in"), false),
    IGNORE,
];
const C: [Template; 5] = [
    ("plugin.c", include_str!("new/c/plugin.c.in"), false),
    (
        "elasticrun_plugin.h",
        include_str!("../../../discovery-plugins/sdk/include/elasticrun_plugin.h"),
        false,
    ),
    ("Makefile", include_str!("new/c/Makefile.in"), false),
    ("README.md", include_str!("new/c/README.md.in"), false),
    IGNORE,
];
const PYTHON: [Template; 3] = [
    (
        "elasticrun-plugin-@NAME@",
        include_str!("new/python/plugin.py.in"),
        true,
    ),
    ("README.md", include_str!("new/python/README.md.in"), false),
    IGNORE,
];

/// Creates the project and prints the next step.
pub(super) fn new(new: &NewPlugin, out: &mut impl Write) -> anyhow::Result<u8> {
    let directory = Path::new(&new.name);
    if directory.symlink_metadata().is_ok() {
        bail!(
            "{}: is there already; remove it or take another name",
            new.name
        );
    }
    let sdk = match new.language {
        Language::Rust => sdk(new.sdk.as_deref(), &env::current_exe()?)?,
        Language::C | Language::Python => String::new(),
    };
    let files: &[Template] = match new.language {
        Language::Rust => &RUST,
        Language::C => &C,
        Language::Python => &PYTHON,
    };
    for (path, content, is_program) in files {
        let fill = |text: &str| {
            text.replace("@SDK@", &sdk)
                .replace("@NAME@", &new.name)
                .replace("@IDENT@", &new.name.replace('-', "_"))
        };
        let path = directory.join(fill(path));
        write(&path, &fill(content), *is_program)
            .with_context(|| format!("{} cannot be written", path.display()))?;
    }
    line(
        out,
        format_args!(
            "made {}; its README.md says how to build and test it",
            new.name
        ),
    )?;
    Ok(exit::SUCCESS)
}

fn write(path: &Path, content: &str, is_program: bool) -> anyhow::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(path, content)?;
    // Independent of the umask, since a world-writable plugin is refused.
    let mode = if is_program { 0o755 } else { 0o644 };
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
}

/// The dependency on the SDK, in the syntax of Cargo.toml: the directory given, else the one that is installed with this program.
///
/// It is always a path. The name of the SDK is in no registry, so a bare version could be the package of another author.
fn sdk(given: Option<&Path>, program: &Path) -> anyhow::Result<String> {
    let path = match given {
        Some(path) => absolute(path)?,
        None => installed_sdk(program).context(
            "no SDK is installed with this program: add --sdk DIR, the directory discovery-plugins/sdk of elasticrun's sources",
        )?,
    };
    let manifest = fs::read_to_string(path.join("Cargo.toml"))
        .with_context(|| format!("--sdk {}", path.display()))?;
    if !manifest.contains("name = \"elasticrun-plugin-sdk\"") {
        bail!(
            "--sdk {}: expected the directory of elasticrun-plugin-sdk",
            path.display()
        );
    }
    let path = path.to_str().context("--sdk: the path is not UTF-8")?;
    Ok(format!("{{ path = {} }}", toml::Value::from(path)))
}

/// The SDK that the Python package has put below the prefix of its environment. The program is in `bin` there.
fn installed_sdk(program: &Path) -> Option<PathBuf> {
    let prefix = program.parent()?.parent()?;
    let path = prefix.join("share/elasticrun/plugin-sdk/sdk");
    path.join("Cargo.toml").is_file().then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_installed_sdk_is_a_path() {
        let prefix = tempfile::TempDir::new().unwrap();
        let program = prefix.path().join("bin/elasticrun");
        let error = sdk(None, &program).unwrap_err().to_string();
        assert!(error.contains("--sdk DIR"), "{error}");
        let path = prefix.path().join("share/elasticrun/plugin-sdk/sdk");
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("Cargo.toml"), "name = \"elasticrun-plugin-sdk\"").unwrap();
        let dependency = sdk(None, &program).unwrap();
        assert_eq!(dependency, format!("{{ path = {path:?} }}"));
        assert_eq!(dependency, sdk(Some(&path), Path::new("/other")).unwrap());
        assert!(sdk(Some(prefix.path()), &program).is_err());
    }
}
