//! The join token of a host that registers itself.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use elasticrun_tls::token::{ParseError, Token};
use zeroize::Zeroizing;

/// Where an agent has its join token from.
#[derive(Clone, Debug)]
pub enum JoinToken {
    /// It was given this one.
    Given(Token),
    /// It reads the file each time that it enrols, since the token may be replaced.
    File(PathBuf),
}

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    /// The file cannot be read.
    #[error("--join-token-file {path}: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The message of the system.
        source: io::Error,
    },
    /// The file is of this user, and other users may read it.
    #[error("--join-token-file {path}: others may read it (mode {mode:03o}); chmod 600 it")]
    Open {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The file has no token.
    #[error("--join-token-file {path}: {source}")]
    NoToken {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: ParseError,
    },
}

impl TokenFileError {
    /// Whether there is no file.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Unreadable { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

impl JoinToken {
    /// The token at this time.
    pub(crate) fn read(&self) -> Result<Token, TokenFileError> {
        match self {
            Self::Given(token) => Ok(token.clone()),
            Self::File(path) => read_token_file(path),
        }
    }
}

/// Reads the file of a token.
///
/// # Errors
/// The file cannot be read, or it is of this user and other users may read it. A file of another user, such as a secret
/// that is mounted into a container, cannot be closed by this one.
pub fn read_token_file(path: &Path) -> Result<Token, TokenFileError> {
    let unreadable = |source| TokenFileError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let mut file = File::open(path).map_err(unreadable)?;
    // The mode of the file that is read, and not of another one that has taken its place.
    let of_file = file.metadata().map_err(unreadable)?;
    let mode = of_file.mode() & 0o777;
    let is_ours = of_file.uid() == nix::unistd::geteuid().as_raw();
    if is_open(is_ours, mode) {
        let path = path.to_owned();
        if is_ours {
            return Err(TokenFileError::Open { path, mode });
        }
        let path = path.display();
        tracing::warn!("--join-token-file {path}: others may read it (mode {mode:03o})");
    }
    let mut text = Zeroizing::new(String::new());
    file.read_to_string(&mut text).map_err(unreadable)?;
    text.parse().map_err(|source| TokenFileError::NoToken {
        path: path.to_owned(),
        source,
    })
}

/// Whether users may read a file of this mode who should not. Its group may, if the file is of another user.
fn is_open(is_ours: bool, mode: u32) -> bool {
    mode & if is_ours { 0o077 } else { 0o007 } != 0
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, Permissions},
        os::unix::fs::PermissionsExt,
        time::SystemTime,
    };

    use super::*;

    #[test]
    fn a_token_that_others_may_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let token = Token::random(SystemTime::now()).unwrap();
        fs::write(&path, token.expose().as_str()).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(read_token_file(&path).unwrap(), token);
        for mode in [0o640, 0o604] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let error = read_token_file(&path).unwrap_err().to_string();
            assert!(error.contains("others may read it"), "{error}");
        }
    }

    #[test]
    fn a_file_is_read_each_time() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let source = JoinToken::File(path.clone());
        assert!(matches!(
            source.read(),
            Err(TokenFileError::Unreadable { .. })
        ));
        for _ in 0..2 {
            let token = Token::random(SystemTime::now()).unwrap();
            fs::write(&path, token.expose().as_str()).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
            assert_eq!(source.read().unwrap(), token);
        }
    }

    #[test]
    fn a_secret_that_is_mounted_into_a_container_is_read_through_its_group() {
        assert!(!is_open(false, 0o400) && !is_open(false, 0o440));
        assert!(is_open(false, 0o444));
        assert!(!is_open(true, 0o600) && is_open(true, 0o440));
    }
}
