//! Why the command of the job cannot be executed on this host, in words.

use std::{io, path::Path};

/// The error of a command: what is wrong with it on this host, and what is allowed. `directory` is its working directory, and
/// None if that of the job does not exist here.
pub(super) fn reason(program: &str, directory: Option<&str>, error: &io::Error) -> String {
    let file = Path::new(directory.unwrap_or_default()).join(program);
    let is_path = program.contains('/');
    let why = match error.kind() {
        io::ErrorKind::NotFound if !is_path => {
            "not found on the PATH of this host; expected a program on PATH, or a path to one"
                .to_owned()
        }
        io::ErrorKind::NotFound if file.exists() => {
            "the interpreter of its first line (#!) does not exist on this host".to_owned()
        }
        io::ErrorKind::NotFound => {
            let from = match directory {
                _ if program.starts_with('/') => String::new(),
                Some(directory) => format!(" in {directory}"),
                None => ": the working directory of the job does not exist here".to_owned(),
            };
            format!("no such file on this host{from}; expected a program that each host has")
        }
        io::ErrorKind::PermissionDenied => {
            "not executable on this host; expected a program, made executable by chmod +x"
                .to_owned()
        }
        _ => plain(error),
    };
    format!("{program}: {why}")
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

    #[test]
    fn a_command_that_cannot_be_executed_is_explained() {
        let here = tempfile::TempDir::new().unwrap();
        std::fs::write(here.path().join("train.py"), "#!/no/such/python").unwrap();
        let directory = here.path().to_str();
        let missing = io::Error::from_raw_os_error(libc::ENOENT);
        let denied = io::Error::from_raw_os_error(libc::EACCES);
        let on_path = "train.py: not found on the PATH of this host; expected a program on PATH, or a path to one";
        assert_eq!(reason("train.py", directory, &missing), on_path);
        let interpreter =
            "./train.py: the interpreter of its first line (#!) does not exist on this host";
        assert_eq!(reason("./train.py", directory, &missing), interpreter);
        let expected = "expected a program that each host has";
        assert_eq!(
            reason("bin/train", Some("/job"), &missing),
            format!("bin/train: no such file on this host in /job; {expected}")
        );
        assert_eq!(
            reason("/bin/no-such", None, &missing),
            format!("/bin/no-such: no such file on this host; {expected}")
        );
        let nowhere = reason("./train", None, &missing);
        assert!(
            nowhere.contains("the working directory of the job does not exist here"),
            "{nowhere}"
        );
        assert!(reason("./train.py", directory, &denied).contains("chmod +x"));
        let full = io::Error::from_raw_os_error(libc::E2BIG);
        assert_eq!(reason("x", None, &full), "x: Argument list too long");
    }
}
