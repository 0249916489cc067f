//! Why the command of the job cannot be executed on this host, in words.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use nix::unistd::{AccessFlags, access};

/// The error of a command: what is wrong with it on this host, and what is allowed. `directory` is its working directory, and
/// None if that of the job does not exist here. `path` is its PATH.
pub(super) fn reason(
    program: &str,
    directory: Option<&str>,
    path: Option<&OsStr>,
    error: &io::Error,
) -> String {
    let why = match (error.kind(), find(program, directory, path)) {
        (io::ErrorKind::NotFound, Some(file)) => not_loaded(&file),
        (io::ErrorKind::NotFound, None) => not_found(program, directory),
        (io::ErrorKind::PermissionDenied, file) => denied(file.as_deref(), directory),
        _ => plain(error),
    };
    format!("{program}: {why}")
}

/// The file of a program: by its path, else the first one of its name on PATH.
fn find(program: &str, directory: Option<&str>, path: Option<&OsStr>) -> Option<PathBuf> {
    if program.contains('/') {
        let file = Path::new(directory.unwrap_or_default()).join(program);
        return file.exists().then_some(file);
    }
    let mut files = std::env::split_paths(path?).map(|directory| directory.join(program));
    files.find(|file| file.is_file())
}

/// Why the kernel does not find a file that exists.
fn not_loaded(file: &Path) -> String {
    let mut first = [0; 2];
    let read = File::open(file).and_then(|mut file| file.read_exact(&mut first));
    let what = match read {
        Ok(()) if first == *b"#!" => "the interpreter of its first line (#!)",
        _ => "the loader that it was linked for",
    };
    format!("{what} does not exist on this host")
}

fn not_found(program: &str, directory: Option<&str>) -> String {
    if !program.contains('/') {
        return "not found on the PATH of this host; expected a program on PATH, or a path to one"
            .to_owned();
    }
    let from = match directory {
        _ if program.starts_with('/') => String::new(),
        Some(directory) => format!(" in {directory}"),
        None => ": the working directory of the job does not exist here".to_owned(),
    };
    format!("no such file on this host{from}; expected a program that each host has")
}

/// Why the kernel denies the start of a file, or of one that was not found.
fn denied(file: Option<&Path>, directory: Option<&str>) -> String {
    if let Some(directory) = directory
        && access(directory, AccessFlags::X_OK).is_err()
    {
        return format!("its working directory {directory} may not be entered on this host");
    }
    let mode = file.and_then(|file| file.metadata().ok());
    match mode {
        Some(of_file) if of_file.is_dir() => "is a directory; expected a program".to_owned(),
        Some(of_file) if of_file.permissions().mode() & 0o111 == 0 => {
            "not executable on this host; expected a program, made executable by chmod +x"
                .to_owned()
        }
        _ => "may not be executed on this host: it is on a mount with noexec, or its directory may not be searched"
            .to_owned(),
    }
}

/// The text of a system error, without the error number.
pub(super) fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing() -> io::Error {
        io::Error::from_raw_os_error(libc::ENOENT)
    }

    fn denied() -> io::Error {
        io::Error::from_raw_os_error(libc::EACCES)
    }

    #[test]
    fn a_command_that_cannot_be_executed_is_explained() {
        let here = tempfile::TempDir::new().unwrap();
        std::fs::write(here.path().join("train.py"), "#!/no/such/python").unwrap();
        std::fs::write(here.path().join("train"), "\x7fELF").unwrap();
        let directory = here.path().to_str();
        let reason = |program: &str, error| reason(program, directory, None, &error);
        assert_eq!(
            reason("train.py", missing()),
            "train.py: not found on the PATH of this host; expected a program on PATH, or a path to one"
        );
        let interpreter = "the interpreter of its first line (#!) does not exist on this host";
        assert_eq!(
            reason("./train.py", missing()),
            format!("./train.py: {interpreter}")
        );
        assert_eq!(
            reason("./train", missing()),
            "./train: the loader that it was linked for does not exist on this host"
        );
        assert!(reason("./train.py", denied()).contains("chmod +x"));
        assert_eq!(
            reason("../", denied()),
            "../: is a directory; expected a program"
        );
        let full = io::Error::from_raw_os_error(libc::E2BIG);
        assert_eq!(reason("x", full), "x: Argument list too long");
    }

    #[test]
    fn a_script_on_the_path_is_not_called_missing() {
        let here = tempfile::TempDir::new().unwrap();
        std::fs::write(here.path().join("train"), "#!/moved/venv/bin/python").unwrap();
        let path = Some(here.path().as_os_str());
        let said = reason("train", Some("/"), path, &missing());
        assert!(said.contains("the interpreter of its first line"), "{said}");
    }

    #[test]
    fn a_program_that_is_nowhere_is_looked_for_where_the_job_says() {
        let expected = "expected a program that each host has";
        let reason = |program, directory| reason(program, directory, None, &missing());
        assert_eq!(
            reason("bin/train", Some("/job")),
            format!("bin/train: no such file on this host in /job; {expected}")
        );
        assert_eq!(
            reason("/bin/no-such", None),
            format!("/bin/no-such: no such file on this host; {expected}")
        );
        let nowhere = reason("./train", None);
        assert!(
            nowhere.contains("the working directory of the job does not exist here"),
            "{nowhere}"
        );
    }
}
