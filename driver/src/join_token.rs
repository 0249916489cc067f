//! The join token, by which hosts register themselves. The job's secret is derived from it.

use std::{
    fmt,
    fs::{File, OpenOptions},
    io::{Read, Write},
    net::SocketAddr,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
};

use anyhow::{Context, bail};
use elasticrun_protocol::auth::Secret;

use crate::{config::Join, report::Terminal};

/// The job's secret: derived from the token if hosts may join by one, else random.
///
/// # Errors
/// The token file cannot be read or created, or other users may read it.
pub(crate) fn open(join: Option<&Join>) -> anyhow::Result<(Secret, Option<Token>)> {
    let token = match join {
        None => return Ok((random()?, None)),
        Some(Join {
            token_file: Some(path),
            ..
        }) => read_or_create(path)?,
        Some(Join {
            token_file: None, ..
        }) => random()?.to_hex(),
    };
    Ok((Secret::from_token(&token), Some(Token(token))))
}

/// The token by which a host joins.
pub(crate) struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

impl Token {
    /// Prints how agents join. Prints the token only if the user asked for it.
    pub(crate) fn announce(&self, join: &Join, address: SocketAddr, terminal: &Terminal) {
        let file = join
            .token_file
            .as_deref()
            .map_or("FILE".into(), |path| path.display().to_string());
        let port = address.port();
        terminal.line(&format!(
            "hosts join by: elasticrun agent --join HOST:{port} --join-token-file {file}"
        ));
        if join.print {
            terminal.line(&format!("join token: {}", self.0));
        }
    }
}

fn random() -> anyhow::Result<Secret> {
    Secret::random().map_err(|error| anyhow::anyhow!("no randomness: {error}"))
}

/// Reads the file of a token.
///
/// # Errors
/// The file cannot be read, or it is of this user and other users may read it. A file of another user, such as a secret
/// that is mounted into a container, cannot be closed by this one.
pub(crate) fn read(path: &Path) -> anyhow::Result<String> {
    let context = || format!("--join-token-file {}", path.display());
    let mut file = File::open(path).with_context(context)?;
    // The mode of the file that is read, and not of another one that has taken its place.
    let of_file = file.metadata().with_context(context)?;
    let mode = of_file.mode() & 0o777;
    let is_ours = of_file.uid() == nix::unistd::geteuid().as_raw();
    if is_open(is_ours, mode) {
        let path = path.display();
        if is_ours {
            bail!("--join-token-file {path}: others may read it (mode {mode:03o}); chmod 600 it");
        }
        tracing::warn!("--join-token-file {path}: others may read it (mode {mode:03o})");
    }
    let mut token = String::new();
    file.read_to_string(&mut token).with_context(context)?;
    Ok(token)
}

/// Whether users may read a file of this mode who should not. Its group may, if the file is of another user.
fn is_open(is_ours: bool, mode: u32) -> bool {
    mode & if is_ours { 0o077 } else { 0o007 } != 0
}

fn read_or_create(path: &Path) -> anyhow::Result<String> {
    if path.exists() {
        let token = read(path)?;
        if token.trim().len() < 16 {
            bail!(
                "--join-token-file {}: a token has at least 16 characters",
                path.display()
            );
        }
        return Ok(token);
    }
    let token = random()?.to_hex();
    let mut file = (OpenOptions::new().write(true).create_new(true).mode(0o600))
        .open(path)
        .with_context(|| format!("--join-token-file {}", path.display()))?;
    writeln!(file, "{token}")?;
    Ok(token)
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, Permissions},
        os::unix::fs::PermissionsExt,
    };

    use super::*;

    #[test]
    fn a_token_that_others_may_read_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("token");
        let token = read_or_create(&path).expect("it is made");
        assert_eq!(read(&path).expect("only we may read it").trim(), token);
        for mode in [0o640, 0o604] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("it is ours");
            let error = read(&path).expect_err("others may read it").to_string();
            assert!(error.contains("others may read it"), "{error}");
        }
    }

    #[test]
    fn a_secret_that_is_mounted_into_a_container_is_read_through_its_group() {
        assert!(!is_open(false, 0o400) && !is_open(false, 0o440));
        assert!(is_open(false, 0o444));
        assert!(!is_open(true, 0o600) && is_open(true, 0o440));
    }
}
