//! Checks COMMAND before the start of a job whose hosts are all this machine.

use std::{
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
};

use elasticrun_group_leader::check_interpreter;
use nix::unistd::{AccessFlags, access};

use super::{
    error::{Error, Written},
    kinds::Launcher,
    locality::launcher_of,
    paths,
    settings::Settings,
};

/// Checks that workers can execute the command, if all of them run on this machine. Other hosts may have other files.
///
/// # Errors
/// The command cannot be executed.
pub fn check_command(settings: &Settings) -> Result<(), Error> {
    let launch = &settings.launch;
    let hosts = settings.hosts.fixed().unwrap_or_default();
    let is_local = |host| launcher_of(launch.launcher, host) == Launcher::Local;
    if launch.embedder_fd.is_some() || hosts.is_empty() || !hosts.iter().all(is_local) {
        return Ok(());
    }
    let Some(command) = settings.command.first() else {
        return Ok(());
    };
    let given = launch
        .env
        .iter()
        .rev()
        .find(|variable| variable.name == "PATH");
    let path = given
        .and_then(|variable| variable.value.as_ref().map(Into::into))
        .or_else(|| std::env::var_os("PATH"))
        .unwrap_or_default();
    check(command, &path, Path::new(".")).map_err(|why| Error::File {
        written: Written(command.clone()),
        why,
    })
}

/// Checks a command in a working directory. A name without `/` is searched on `path`, as the system does.
fn check(command: &str, path: &OsStr, directory: &Path) -> Result<(), String> {
    if command.contains('/') {
        return executable(&directory.join(command));
    }
    if path.is_empty() {
        // Then the system has directories of its own.
        return Ok(());
    }
    let candidates: Vec<PathBuf> = std::env::split_paths(path)
        .map(|folder| directory.join(folder).join(command))
        .filter(|file| file.is_file())
        .collect();
    match candidates
        .iter()
        .find(|file| is_executable(file))
        .or(candidates.first())
    {
        Some(file) => executable(file),
        None if directory.join(command).is_file() => Err(format!(
            "not found on PATH; ./{command} is here: {}./{command}",
            interpreter_for(command)
        )),
        None => Err("not found on PATH".to_owned()),
    }
}

/// How to run a script that is here and not on PATH.
fn interpreter_for(command: &str) -> String {
    if command.ends_with(".py") {
        format!("python {command}, or ")
    } else {
        String::new()
    }
}

fn executable(file: &Path) -> Result<(), String> {
    match fs::metadata(file) {
        Ok(metadata) if metadata.is_dir() => {
            return Err("is a directory, expected a program".to_owned());
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
        Err(error) => return Err(paths::reason(&error)),
    }
    if !is_executable(file) {
        return Err("not executable, expected a program (chmod +x)".to_owned());
    }
    check_interpreter(file).map_err(|why| why.to_string())
}

fn is_executable(file: &Path) -> bool {
    access(file, AccessFlags::X_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_is_wrong_with_a_command_is_named() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = |name: &str, mode: u32, content: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            fs::write(&path, content).expect("a file");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("its mode");
        };
        file("bin/tool", 0o755, "#!/bin/sh\n");
        file("bin/plain", 0o644, "");
        file("train.py", 0o644, "");
        file("run", 0o755, "#!/bin/sh\n");
        file("missing", 0o755, "#!/x/python3\n");
        file("windows", 0o755, "#!/usr/bin/env python3\r\n");
        let check = |command| check(command, OsStr::new("/nowhere:bin"), dir.path());
        assert_eq!(check("tool"), Ok(()));
        assert_eq!(check("./run"), Ok(()));
        for (command, why) in [
            (
                "train.py",
                "not found on PATH; ./train.py is here: python train.py, or ./train.py",
            ),
            ("run", "not found on PATH; ./run is here: ./run"),
            ("tol", "not found on PATH"),
            ("plain", "not executable, expected a program (chmod +x)"),
            (
                "./train.py",
                "not executable, expected a program (chmod +x)",
            ),
            ("./nothing", "no such file"),
            ("./bin", "is a directory, expected a program"),
            (
                "./missing",
                "its first line names /x/python3, which is not there",
            ),
            (
                "./windows",
                "its first line ends with a carriage return; save it with the line ends of Unix",
            ),
        ] {
            assert_eq!(check(command), Err(why.to_owned()), "{command}");
        }
    }
}
