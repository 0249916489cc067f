//! The join token, by which hosts register themselves.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    net::SocketAddr,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use anyhow::Context;
use elasticrun_tls::token::Token;

use crate::{config::Join, report::Terminal};

/// How long a new token is valid.
pub const LIFETIME: Duration = Duration::from_hours(24);

/// The token by which hosts join a new run.
///
/// # Errors
/// The token file cannot be read or created, or other users may read it.
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

/// Prints how agents join.
pub(crate) fn announce(token: &Token, join: &Join, address: SocketAddr, terminal: &Terminal) {
    let file = join
        .token_file
        .as_deref()
        .map_or("FILE".into(), |path| path.display().to_string());
    let port = address.port();
    terminal.line(&format!(
        "hosts join by: elasticrun agent --join HOST:{port} --join-token-file {file}"
    ));
    print(token, join, terminal);
}

/// Prints the token if the user asked for it.
pub(crate) fn print(token: &Token, join: &Join, terminal: &Terminal) {
    if join.print {
        terminal.line(&format!("join token: {}", *token.expose()));
    }
}

/// Writes a token to a file that only this user may read. It replaces the file at once, so that no reader sees a part of it.
///
/// # Errors
/// The file cannot be created or replaced.
pub(crate) fn write(path: &Path, token: &Token) -> anyhow::Result<()> {
    let context = || format!("--join-token-file {}", path.display());
    // A link to the file stays one.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut name = path.clone().into_os_string();
    name.push(format!(".{}", std::process::id()));
    let new = PathBuf::from(name);
    // One that a driver with this number has left.
    let _ = fs::remove_file(&new);
    let written = (OpenOptions::new().write(true).create_new(true).mode(0o600))
        .open(&new)
        .and_then(|mut file| writeln!(file, "{}", *token.expose()))
        .and_then(|()| fs::rename(&new, &path));
    if written.is_err() {
        // It may not be there.
        let _ = fs::remove_file(&new);
    }
    written.with_context(context)
}

/// The token of the file. A file that is missing, or whose token has expired, gets a new one.
pub(crate) fn read_or_create(path: &Path) -> anyhow::Result<Token> {
    let mut expired = false;
    if path.exists() {
        // The text has that of the cause.
        let token =
            elasticrun_agent::read_token_file(path).map_err(|error| anyhow::anyhow!("{error}"))?;
        expired = token.is_expired(SystemTime::now());
        if !expired {
            return Ok(token);
        }
    }
    let token = random(LIFETIME)?;
    write(path, &token).context(match expired {
        true => "the join token has expired; make another one by `elasticrun token`",
        false => "there is no join token",
    })?;
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
    fn a_token_that_is_there_is_taken_unless_others_may_read_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("token");
        let token = read_or_create(&path).expect("it is made");
        assert_eq!(read_or_create(&path).expect("it is there"), token);
        let mode = fs::metadata(&path).expect("it is there").permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
        fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("it is ours");
        let error = read_or_create(&path).expect_err("others may read it");
        assert!(error.to_string().contains("others may read it"), "{error}");
    }

    #[test]
    fn an_expired_token_is_replaced_and_one_made_by_hand_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("token");
        let expired = random(Duration::ZERO).expect("randomness");
        write(&path, &expired).expect("it is ours");
        let token = read_or_create(&path).expect("it is ours");
        assert!(token != expired && !token.is_expired(SystemTime::now()));
        let by_hand = "0123456789abcdef".repeat(4);
        fs::write(&path, &by_hand).expect("it is ours");
        let error = read_or_create(&path).expect_err("it can be guessed");
        let error = format!("{error:#}");
        assert!(error.contains("it does not begin with er2."), "{error}");
        assert!(!error.contains(&by_hand), "{error}");
    }

    #[test]
    fn an_expired_token_that_cannot_be_replaced_is_refused() {
        let path = Path::new("/proc/token");
        let error = write(path, &random(LIFETIME).expect("randomness")).expect_err("no such place");
        assert!(
            format!("{error:#}").starts_with("--join-token-file /proc/token: "),
            "{error:#}"
        );
        let error = format!("{:#}", read_or_create(path).expect_err("no such place"));
        assert!(error.starts_with("there is no join token: "), "{error}");
    }

    #[test]
    fn a_token_without_an_expiry_has_not_expired_in_a_century() {
        let token = unlimited().expect("randomness");
        let century = Duration::from_hours(24 * 36_500);
        assert!(!token.is_expired(SystemTime::now() + century));
        assert_eq!(token.expose().parse(), Ok(token));
    }
}
