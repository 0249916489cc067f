//! Checks files and directories of settings before the start of the job.

use std::{
    fs,
    io::{self, Read},
    os::unix::fs::{FileTypeExt, PermissionsExt},
    path::{Path, PathBuf},
};

use elasticrun_plugin_sdk::hosts::{HostSpec, parse_hostfile};

use super::{
    durable::DurablePlace,
    error::Error,
    journal::JournalPlace,
    layer::Origin,
    table::{Config, Sourced},
};

/// The fixed hosts of `--hosts` or `--hostfile`, if there are any.
///
/// # Errors
/// The host file cannot be read or parsed.
pub(super) fn fixed_hosts(config: &Config) -> Result<Option<Vec<HostSpec>>, Error> {
    if let Some(hosts) = &config.hosts.value {
        return Ok(Some(hosts.0.clone()));
    }
    let Some(path) = &config.hostfile.value else {
        return Ok(None);
    };
    let refuse = |why: String| refuse(&config.hostfile.origin, "hostfile", path, why);
    let content = read(path).map_err(refuse)?;
    parse_hostfile(content)
        .map(Some)
        .map_err(|error| refuse(error.to_string()))
}

/// The size limit of a file of settings, in bytes.
const MAX_FILE: u64 = 16 << 20;

/// Reads a file of settings. A pipe is read if the shell has opened it, as for `<(COMMAND)`.
///
/// # Errors
/// It cannot be read, is too large, or is a named pipe, on which the read might wait forever.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, String> {
    let metadata = fs::symlink_metadata(path).map_err(|error| reason(&error))?;
    if metadata.file_type().is_fifo() {
        return Err("is a named pipe, expected a file".to_owned());
    }
    let mut content = Vec::new();
    fs::File::open(path)
        .and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut content))
        .map_err(|error| reason(&error))?;
    if content.len() as u64 > MAX_FILE {
        return Err(format!("is larger than {} MiB", MAX_FILE >> 20));
    }
    Ok(content)
}

/// Checks that needed paths exist, and that new paths can be created. Defaults are not checked: their directories are created.
///
/// # Errors
/// The first path that its setting cannot use.
pub(super) fn check(config: &Config) -> Result<(), Error> {
    check_one(
        &config.host_discovery_script,
        "host-discovery-script",
        program,
    )?;
    check_one(&config.ssh_identity_file, "ssh-identity-file", readable)?;
    check_one(&config.output_filename, "output-filename", directory_or_new)?;
    check_one(&config.join_token_file, "join-token-file", file_or_new)?;
    check_one(&config.notice_file, "notice-file", absolute_utf8)?;
    for (durable, name) in [
        (&config.durable_commits, "durable-commits"),
        (&config.ps_snapshots, "ps-snapshots"),
    ] {
        if let Some(path) = durable.value.as_ref().and_then(DurablePlace::path) {
            // It need not exist on the machine of the driver.
            directory_or_new(path).map_err(|why| refuse(&durable.origin, name, path, why))?;
        }
    }
    let snapshots = &config.ps_snapshots;
    let missing = (snapshots.value.as_ref().and_then(DurablePlace::path)).filter(|it| !it.is_dir());
    if let Some(path) = missing {
        let why =
            "does not exist here, where the scheduler of the servers runs: create it, on a file system that all hosts share".to_owned();
        return Err(refuse(&snapshots.origin, "ps-snapshots", path, why));
    }
    if let JournalPlace::File(path) = &config.journal.value {
        file_or_new(path).map_err(|why| refuse(&config.journal.origin, "journal", path, why))?;
    }
    for path in &config.plugin_dir.value {
        directory(path)
            .map_err(|why| refuse(&config.plugin_dir.origin, "plugin-dir", path, why))?;
    }
    Ok(())
}

/// The absolute path of a file, so that the working directory and the search path of its user do not matter.
pub(super) fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

type Check = fn(&Path) -> Result<(), String>;

fn check_one(setting: &Sourced<Option<PathBuf>>, key: &str, check: Check) -> Result<(), Error> {
    match &setting.value {
        Some(path) if setting.is_given() => {
            check(path).map_err(|why| refuse(&setting.origin, key, path, why))
        }
        _ => Ok(()),
    }
}

fn refuse(origin: &Origin, key: &str, path: &Path, why: String) -> Error {
    Error::File {
        written: origin.written(key, &[path.display().to_string()]),
        why,
    }
}

/// The message of the system, without the error number.
pub(crate) fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::IsADirectory => "is a directory, expected a file".to_owned(),
        _ => error.to_string(),
    }
}

fn program(path: &Path) -> Result<(), String> {
    let metadata = fs::metadata(path).map_err(|error| match reason(&error) {
        reason if has_arguments(path) => {
            format!("{reason}; arguments are not taken: write a script that calls it")
        }
        reason => reason,
    })?;
    if metadata.is_dir() {
        Err("is a directory, expected a program".to_owned())
    } else if metadata.permissions().mode() & 0o111 == 0 {
        Err("not executable, expected a program (chmod +x)".to_owned())
    } else {
        Ok(())
    }
}

/// Whether a path that does not exist is one that does, followed by words.
fn has_arguments(path: &Path) -> bool {
    let first = path
        .to_str()
        .and_then(|text| text.split_whitespace().next());
    first.is_some_and(|first| Path::new(first) != path && Path::new(first).is_file())
}

fn absolute_utf8(path: &Path) -> Result<(), String> {
    if path.is_absolute() && path.to_str().is_some() {
        Ok(())
    } else {
        Err("expected an absolute path in UTF-8: it is looked for on each host".to_owned())
    }
}

fn readable(path: &Path) -> Result<(), String> {
    match fs::File::open(path).and_then(|file| file.metadata()) {
        Ok(metadata) if metadata.is_dir() => Err("is a directory, expected a file".to_owned()),
        Ok(_) => Ok(()),
        Err(error) => Err(reason(&error)),
    }
}

fn directory(path: &Path) -> Result<(), String> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err("is a file, expected a directory".to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err("no such directory".to_owned())
        }
        Err(error) => Err(reason(&error)),
    }
}

fn directory_or_new(path: &Path) -> Result<(), String> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err("is a file, expected a directory".to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(reason(&error)),
    }
}

fn file_or_new(path: &Path) -> Result<(), String> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Err("is a directory, expected a file".to_owned()),
        Ok(_) => readable(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => directory(parent),
            _ => Ok(()),
        },
        Err(error) => Err(reason(&error)),
    }
}
