//! Why a script that exists cannot be executed: what its first line names.

use std::{
    ffi::OsStr,
    fs::File,
    io::Read,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// What is wrong with the first line of a script.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadInterpreter {
    /// The interpreter does not exist.
    #[error("its first line names {}, which is not there", .0.display())]
    Missing(PathBuf),
    /// The line ends with a carriage return, which the kernel takes as a part of the name.
    #[error("its first line ends with a carriage return; save it with the line ends of Unix")]
    CarriageReturn,
}

/// Checks the first line of a file. A file that has no `#!`, or cannot be read, has no interpreter.
///
/// # Errors
/// The kernel does not find the interpreter.
pub fn check_interpreter(file: &Path) -> Result<(), BadInterpreter> {
    let mut head = Vec::new();
    let read = File::open(file).and_then(|file| file.take(MAX_LINE).read_to_end(&mut head));
    match read.ok().and_then(|_| first_line(&head)) {
        None => Ok(()),
        Some(line) if line.ends_with(b"\r") => Err(BadInterpreter::CarriageReturn),
        Some(line) => {
            let name = interpreter(line);
            if name.as_os_str().is_empty() || name.exists() {
                Ok(())
            } else {
                Err(BadInterpreter::Missing(name.to_owned()))
            }
        }
    }
}

/// The kernel reads this many bytes of a first line.
const MAX_LINE: u64 = 256;

/// The first line behind `#!`.
fn first_line(head: &[u8]) -> Option<&[u8]> {
    head.strip_prefix(b"#!")?
        .split(|byte| *byte == b'\n')
        .next()
}

/// The name of the interpreter, without its argument.
fn interpreter(line: &[u8]) -> &Path {
    let words = line.split(|byte| matches!(byte, b' ' | b'\t'));
    let word = words.into_iter().find(|word| !word.is_empty());
    Path::new(OsStr::from_bytes(word.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_names_an_interpreter() {
        let name = |head: &'static [u8]| first_line(head).map(interpreter);
        assert_eq!(name(b"#!/bin/sh\necho"), Some(Path::new("/bin/sh")));
        assert_eq!(
            name(b"#! \t/usr/bin/env python3"),
            Some(Path::new("/usr/bin/env"))
        );
        assert_eq!(name(b"#!"), Some(Path::new("")));
        assert_eq!(name(b"\x7fELF"), None);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let dir = tempfile::TempDir::new().expect("a directory");
        let check = |content: &str| {
            let path = dir.path().join("script");
            std::fs::write(&path, content).expect("a file");
            check_interpreter(&path).map_err(|error| error.to_string())
        };
        assert_eq!(check("#!/bin/sh\n"), Ok(()));
        assert_eq!(check("echo\r\n"), Ok(()));
        assert_eq!(
            check("#!/x/python -u\n"),
            Err("its first line names /x/python, which is not there".into())
        );
        assert_eq!(
            check("#!/bin/sh\r\necho\r\n"),
            Err(
                "its first line ends with a carriage return; save it with the line ends of Unix"
                    .into()
            )
        );
        assert_eq!(check_interpreter(Path::new("/nowhere")), Ok(()));
    }
}
