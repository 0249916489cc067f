//! Checks files and directories of settings before the start of the job.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use elasticrun_plugin_sdk::hosts::{HostSpec, parse_hostfile};

use super::{
    error::Error,
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
    let content = fs::read(path).map_err(|error| refuse(reason(&error)))?;
    parse_hostfile(content)
        .map(Some)
        .map_err(|error| refuse(error.to_string()))
}

/// Checks that needed paths exist, and that new paths can be created.
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
        Some(path) => check(path).map_err(|why| refuse(&setting.origin, key, path, why)),
        None => Ok(()),
    }
}

fn refuse(origin: &Origin, key: &str, path: &Path, why: String) -> Error {
    Error::File {
        written: origin.written(key, &[path.display().to_string()]),
        why,
    }
}

/// The message of the system, without the error number.
pub(super) fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::IsADirectory => "is a directory, expected a file".to_owned(),
        _ => error.to_string(),
    }
}

fn program(path: &Path) -> Result<(), String> {
    let metadata = fs::metadata(path).map_err(|error| reason(&error))?;
    if metadata.is_dir() {
        Err("is a directory, expected a program".to_owned())
    } else if metadata.permissions().mode() & 0o111 == 0 {
        Err("not executable, expected a program (chmod +x)".to_owned())
    } else {
        Ok(())
    }
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
