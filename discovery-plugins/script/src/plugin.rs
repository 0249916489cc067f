//! The plugin.

use std::{
    fmt::Write,
    fs, io,
    os::unix::process::ExitStatusExt,
    path::{self, Path, PathBuf},
    process::ExitStatus,
    time::Duration,
};

use elasticrun_group_leader::check_interpreter;
use elasticrun_plugin_sdk::{
    ErrorKind, Host, Manifest, Plugin, PluginError, Snapshot, hosts::parse_lines,
    text::is_invisible,
};
use nix::unistd::{AccessFlags, access};
use serde::Deserialize;

use crate::run::{self, Finished, run};

/// Options of the plugin.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The program. It is not searched in PATH. A relative path starts at the working directory of the job.
    pub path: PathBuf,
}

/// A program that runs at each poll.
#[derive(Debug)]
pub struct Script {
    path: PathBuf,
    /// A run has succeeded.
    has_worked: bool,
}

impl Plugin for Script {
    const MANIFEST: Manifest = Manifest {
        name: "script",
        version: env!("CARGO_PKG_VERSION"),
        license: "Apache-2.0",
        description: "a program that prints one host a line: path=PROGRAM",
        config: r#"{"type": "object", "additionalProperties": false, "required": ["path"], "properties": {"path": {"type": "string", "description": "the program"}}}"#,
        ..Manifest::EMPTY
    };

    type Config = Options;

    fn create(options: Options) -> Result<Self, PluginError> {
        let path = options.path;
        check(&path).map_err(|why| PluginError::bad_config(about(&path, &why)))?;
        let path = path::absolute(&path)
            .map_err(|error| PluginError::bad_config(about(&path, &error.to_string())))?;
        Ok(Self {
            path,
            has_worked: false,
        })
    }

    fn poll(&mut self, deadline: Duration) -> Result<Snapshot, PluginError> {
        let hosts = match run(&self.path, deadline) {
            Ok(finished) => hosts(finished).map_err(|why| (why, false)),
            Err(error) => Err((self.why(&error), is_temporary(&error))),
        };
        match hosts {
            Ok(hosts) => {
                self.has_worked = true;
                Ok(Snapshot::new(hosts))
            }
            Err((why, temporary)) => {
                let kind = if temporary || self.has_worked {
                    ErrorKind::Retryable
                } else {
                    ErrorKind::BadConfig
                };
                Err(PluginError::new(kind, about(&self.path, &why)))
            }
        }
    }
}

impl Script {
    /// An error of a run. If the program is there and its interpreter is not, the system's error is misleading.
    fn why(&self, error: &run::Error) -> String {
        match (error, check_interpreter(&self.path)) {
            (run::Error::Start(error), Err(why)) if error.kind() == io::ErrorKind::NotFound => {
                format!("cannot be run: {why}")
            }
            _ => error.to_string(),
        }
    }
}

fn about(path: &Path, why: &str) -> String {
    format!("{} {why}", path.display())
}

/// Checks that the file is executable.
fn check(path: &Path) -> Result<(), String> {
    let file = fs::metadata(path).map_err(|error| format!("cannot be run: {error}"))?;
    if !file.is_file() {
        return Err("is not a file; give the path of a program".into());
    }
    access(path, AccessFlags::X_OK)
        .map_err(|error| format!("is not executable ({}); try chmod +x", error.desc()))
}

/// Whether the failure is temporary, and not one of the program itself.
fn is_temporary(error: &run::Error) -> bool {
    match error {
        run::Error::Deadline(_) | run::Error::Watch(_) => true,
        run::Error::TooMuch => false,
        // The file is open for writing, or the machine is short of processes or memory.
        run::Error::Start(error) => {
            let temporary = [
                libc::ETXTBSY,
                libc::EAGAIN,
                libc::ENOMEM,
                libc::EMFILE,
                libc::ENFILE,
            ];
            error
                .raw_os_error()
                .is_some_and(|number| temporary.contains(&number))
        }
    }
}

fn hosts(finished: Finished) -> Result<Vec<Host>, String> {
    if !finished.status.success() {
        let mut why = ending(finished.status);
        if let Some(lines) = first_lines(&finished.errors) {
            let _ = write!(why, ": {lines}");
        }
        return Err(why);
    }
    let hosts = parse_lines(&finished.output).map_err(|error| format!("printed: {error}"))?;
    Ok(hosts.into_iter().map(Host::from).collect())
}

fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".into(),
    }
}

/// The first lines of standard error, on one line.
fn first_lines(errors: &[u8]) -> Option<String> {
    const MAX_LINES: usize = 5;
    let text = String::from_utf8_lossy(errors);
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut shown: Vec<_> = lines.by_ref().take(MAX_LINES).collect();
    if lines.next().is_some() {
        shown.push("...");
    }
    let clean = shown.join(" | ").replace(is_invisible, " ");
    (!clean.is_empty()).then_some(clean)
}
