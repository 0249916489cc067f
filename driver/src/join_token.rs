//! The join token, by which hosts register themselves.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Write},
    net::SocketAddr,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
    time::{Duration, SystemTime},
};

use anyhow::{Context, bail};
use elasticrun_tls::token::Token;
use zeroize::Zeroizing;

use crate::{config::Join, report::Terminal};

/// How long a new token is valid.
pub const LIFETIME: Duration = Duration::from_hours(24);

/// The token by which hosts join a new run.
///
/// # Errors
/// The token file cannot be read or created, other users may read it, or its token has expired.
pub(crate) fn open(join: &Join) -> anyhow::Result<Token> {
    match &join.token_file {
        Some(path) => read_or_create(path),
        None => random(LIFETIME),
    }
}

/// A token without an expiry, for hosts that an embedder starts at any time of the job.
///
/// # Errors
/// The system has no randomness.
pub(crate) fn unlimited() -> anyhow::Result<Token> {
    random(Duration::from_hours(24 * 365 * 1000))
}

/// A new token that is valid for `lifetime`.
///
/// # Errors
/// The system has no randomness.
pub fn random(lifetime: Duration) -> anyhow::Result<Token> {
    Token::random(SystemTime::now() + lifetime)
        .map_err(|error| anyhow::anyhow!("no randomness: {error}"))
}

/// Prints how agents join. Prints the token only if the user asked for it.
pub(crate) fn announce(token: &Token, join: &Join, address: SocketAddr, terminal: &Terminal) {
    let file = join
        .token_file
        .as_deref()
        .map_or("FILE".into(), |path| path.display().to_string());
    let port = address.port();
    terminal.line(&format!(
        "hosts join by: elasticrun agent --join HOST:{port} --join-token-file {file}"
    ));
    if join.print {
        terminal.line(&format!("join token: {}", *token.expose()));
    }
}

/// Reads the file of a token.
///
/// # Errors
/// The file cannot be read, or it is of this user and other users may read it. A file of another user, such as a secret
/// that is mounted into a container, cannot be closed by this one.
pub(crate) fn read(path: &Path) -> anyhow::Result<Token> {
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
    let mut text = Zeroizing::new(String::new());
    file.read_to_string(&mut text).with_context(context)?;
    text.parse().with_context(context)
}

/// Whether users may read a file of this mode who should not. Its group may, if the file is of another user.
fn is_open(is_ours: bool, mode: u32) -> bool {
    mode & if is_ours { 0o077 } else { 0o007 } != 0
}

fn read_or_create(path: &Path) -> anyhow::Result<Token> {
    if path.exists() {
        let token = read(path)?;
        if token.is_expired(SystemTime::now()) {
            let path = path.display();
            bail!(
                "--join-token-file {path}: the token has expired; remove the file to get another one"
            );
        }
        return Ok(token);
    }
    let token = random(LIFETIME)?;
    let mut file = (OpenOptions::new().write(true).create_new(true).mode(0o600))
        .open(path)
        .with_context(|| format!("--join-token-file {}", path.display()))?;
    writeln!(file, "{}", *token.expose())?;
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
        assert_eq!(read(&path).expect("only we may read it"), token);
        assert_eq!(read_or_create(&path).expect("it is there"), token);
        for mode in [0o640, 0o604] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("it is ours");
            let error = read(&path).expect_err("others may read it").to_string();
            assert!(error.contains("others may read it"), "{error}");
        }
    }

    #[test]
    fn an_expired_token_and_one_of_an_earlier_release_are_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("token");
        let expired = random(Duration::ZERO).expect("randomness");
        let earlier = "0123456789abcdef".repeat(4);
        for (text, why) in [
            (expired.expose().as_str(), "the token has expired; remove"),
            (&earlier, "it does not begin with er2."),
        ] {
            fs::write(&path, text).expect("it is ours");
            fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("it is ours");
            let error = read_or_create(&path).expect_err("it is worth nothing");
            let error = format!("{error:#}");
            assert!(error.contains(why), "{error}");
            assert!(!error.contains(text), "{error}");
        }
    }

    #[test]
    fn a_token_without_an_expiry_has_not_expired_in_a_century() {
        let token = unlimited().expect("randomness");
        let century = Duration::from_hours(24 * 36_500);
        assert!(!token.is_expired(SystemTime::now() + century));
        assert_eq!(token.expose().parse(), Ok(token));
    }

    #[test]
    fn a_secret_that_is_mounted_into_a_container_is_read_through_its_group() {
        assert!(!is_open(false, 0o400) && !is_open(false, 0o440));
        assert!(is_open(false, 0o444));
        assert!(!is_open(true, 0o600) && is_open(true, 0o440));
    }
}
