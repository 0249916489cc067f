//! ps-lite itself, if `PS_LITE_DIR` names a build of it.
//!
//! The directory is that of its source, with `include/ps/ps.h`, and has the library in `build` or beside the source. A program of
//! ours, `peer.cc`, is compiled against it into the directory of this program's build. Nothing of ps-lite belongs to elasticrun.

use std::{
    env,
    fs::{self, File},
    io::ErrorKind,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

const VARIABLE: &str = "PS_LITE_DIR";
const SOURCE: &str = include_str!("pslite/peer.cc");
const HEADER: &str = "include/ps/ps.h";
/// What `make` and `cmake` of ps-lite build.
const LIBRARIES: [&str; 4] = [
    "build/libps.a",
    "libps.a",
    "build/libpslite.a",
    "libpslite.a",
];

/// A program for the nodes of a job of ps-lite.
pub(crate) struct PsLite {
    program: PathBuf,
    /// What compiler and nodes print.
    log: PathBuf,
}

impl PsLite {
    /// Compiles the program. `None` if the user names no build.
    pub(crate) fn from_env() -> Result<Option<Self>> {
        let directory = env::var_os(VARIABLE).filter(|value| !value.is_empty());
        directory
            .map(|directory| Self::compile(Path::new(&directory)))
            .transpose()
    }

    fn compile(directory: &Path) -> Result<Self> {
        let shown = format!("{VARIABLE}={}", directory.display());
        let header = fs::read_to_string(directory.join(HEADER)).with_context(|| {
            format!("{shown}: cannot read {HEADER}; expected the source directory of ps-lite")
        })?;
        let mut libraries = LIBRARIES.iter().map(|name| directory.join(name));
        let Some(library) = libraries.find(|path| path.is_file()) else {
            bail!(
                "{shown}: no library, so build ps-lite first; expected one of {}",
                LIBRARIES.join(", ")
            );
        };
        let own = env::current_exe()?;
        let work = own.with_file_name("bench_ps_pslite");
        let (source, log) = (work.join("peer.cc"), work.join("peer.log"));
        fs::create_dir_all(&work)
            .and_then(|()| fs::write(&source, SOURCE))
            .with_context(|| format!("cannot write {}", source.display()))?;
        let built = Self {
            program: work.join("peer"),
            log,
        };

        let compiler = words("CXX", "c++");
        let [compiler, arguments @ ..] = &compiler[..] else {
            bail!("CXX has no word; expected the name of a C++ compiler");
        };
        let messages = File::create(&built.log)
            .with_context(|| format!("cannot write {}", built.log.display()))?;
        let mut command = Command::new(compiler);
        command
            .args(arguments)
            .args(["-std=c++14", "-O3", "-w", "-pthread", "-I"])
            .arg(directory.join("include"))
            .arg("-o")
            .args([&built.program, &source, &library]);
        if header.contains("StartPS(") {
            command.arg("-DPS_LITE_HAS_START_PS");
        }
        let dependencies = directory.join("deps/lib");
        if dependencies.is_dir() {
            let dependencies = dependencies.canonicalize()?;
            command.arg("-L").arg(&dependencies);
            command.arg(format!("-Wl,-rpath,{}", dependencies.display()));
        }
        command.args(words("LDFLAGS", "")).arg("-lzmq");
        // Messages of upstream are of protobuf, those of the forks are not.
        if directory.join("src/meta.proto").is_file() {
            command.arg("-lprotobuf-lite");
        }
        let status = command
            .stdin(Stdio::null())
            .stdout(messages.try_clone()?)
            .stderr(messages)
            .status();
        match status {
            Ok(status) if status.success() => Ok(built),
            Ok(_) => bail!(
                "{shown}: {compiler} cannot build a program with it: {} (more in {})",
                first_error(&built.log),
                built.log.display()
            ),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                bail!("no C++ compiler {compiler}: install one, or name one in CXX")
            }
            Err(error) => bail!("cannot run the C++ compiler {compiler}: {error}"),
        }
    }

    /// A command that starts a node.
    pub(crate) fn command(&self) -> Result<Command> {
        let mut command = Command::new(&self.program);
        let log = File::options().append(true).open(&self.log)?;
        // Its addresses would otherwise be those of the first network interface.
        command.env("DMLC_NODE_HOST", "127.0.0.1").stderr(log);
        Ok(command)
    }

    pub(crate) fn log(&self) -> &Path {
        &self.log
    }
}

/// The words of an environment variable.
fn words(variable: &str, default: &str) -> Vec<String> {
    let value = env::var(variable).ok().filter(|value| !value.is_empty());
    let value = value.unwrap_or_else(|| default.to_owned());
    value.split_whitespace().map(str::to_owned).collect()
}

/// The line that says best why a program could not be built.
fn first_error(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let causes = ["error:", "undefined reference", "cannot find"];
    let cause = |line: &&str| causes.iter().any(|cause| line.contains(cause));
    let mut lines = text.lines();
    let found = lines.find(cause).or_else(|| text.lines().next());
    found.unwrap_or("no message").trim().to_owned()
}
