//! The tokens by which hosts join a running job: that of its file, and those before it until they expire.
//!
//! - The driver replaces the token when half of its time is over, if it may write the file.
//! - A user may replace the file as well. The driver reads it again when a host names a token that is unknown or has expired.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use elasticrun_tls::token::{Refusal, Token, TokenId, Tokens};
use tokio::{task::spawn_blocking, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::join_token::{self, LIFETIME};

/// How often the file is read for hosts that name another token, at most.
const READ_INTERVAL: Duration = Duration::from_secs(1);

/// A token that replaces another one is valid for as long as that one, and for this long at least.
const MIN_LIFETIME: Duration = Duration::from_hours(1);

/// The pause after a token could not be replaced, at least.
const RETRY_INTERVAL: Duration = Duration::from_mins(1);

/// The tokens of a job. There is one at least.
#[derive(Debug)]
pub(crate) struct JoinTokens {
    file: Option<PathBuf>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    tokens: Tokens,
    newest: Token,
    /// When the file was read last for a host.
    read: Option<Instant>,
}

impl JoinTokens {
    /// This token, which is in `file` if there is one.
    pub(crate) fn new(token: Token, file: Option<PathBuf>) -> Self {
        let state = State {
            tokens: Tokens::new(vec![token.clone()]),
            newest: token,
            read: None,
        };
        let state = Mutex::new(state);
        Self { file, state }
    }

    /// The tokens of a later driver: that of the first one, and that which the file has now.
    pub(crate) fn restore(token: Token, file: Option<PathBuf>) -> Self {
        let tokens = Self::new(token, file);
        tokens.read_file();
        tokens
    }

    /// The token that was added last.
    pub(crate) fn newest(&self) -> Token {
        self.lock().newest.clone()
    }

    /// The token that a host names. Blocks: it may read the file.
    ///
    /// # Errors
    /// It is not one of this job, or has expired.
    pub(crate) fn find(&self, id: TokenId) -> Result<Token, Refusal> {
        let now = SystemTime::now();
        let found = self.lock().tokens.find(id, now).cloned();
        if found.is_ok() || !self.may_read() {
            return found;
        }
        self.read_file();
        self.lock().tokens.find(id, now).cloned()
    }

    /// Whether the file was not read for a host just now. It counts as read then.
    fn may_read(&self) -> bool {
        let (mut state, now) = (self.lock(), Instant::now());
        let may = state
            .read
            .is_none_or(|read| now.duration_since(read) >= READ_INTERVAL);
        if may {
            state.read = Some(now);
        }
        may
    }

    /// Adds the token of the file. A file that cannot be read changes nothing: it may be about to be replaced.
    fn read_file(&self) {
        let Some(path) = &self.file else { return };
        match elasticrun_agent::read_token_file(path) {
            Ok(token) => self.add(token),
            Err(error) => tracing::debug!(%error, "the join token is not read again"),
        }
    }

    /// Replaces the newest token, unless the file has another one that is valid for longer. Blocks.
    ///
    /// # Errors
    /// The file cannot be written.
    fn renew(&self) -> anyhow::Result<()> {
        let old = self.newest();
        self.read_file();
        if self.newest().expiry() > old.expiry() {
            return Ok(());
        }
        let lifetime = match time_left(&old) {
            Duration::ZERO => LIFETIME,
            left => (left * 2).max(MIN_LIFETIME),
        };
        let token = join_token::random(lifetime)?;
        if let Some(path) = &self.file {
            join_token::write(path, &token)?;
        }
        self.add(token);
        Ok(())
    }

    fn add(&self, token: Token) {
        let mut state = self.lock();
        state.tokens.add(token.clone());
        state.newest = token;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn time_left(token: &Token) -> Duration {
    let left = token.expiry().duration_since(SystemTime::now());
    left.unwrap_or_default()
}

/// Replaces the token each time that half of its time is over, until `stop`. `renewed` gets the new one.
pub(crate) async fn keep_fresh(
    tokens: Arc<JoinTokens>,
    renewed: impl Fn(&Token),
    stop: CancellationToken,
) {
    let mut fails = false;
    loop {
        let half = time_left(&tokens.newest()) / 2;
        let pause = if fails {
            half.max(RETRY_INTERVAL)
        } else {
            half
        };
        let renewing = tokens.clone();
        let renewal = async {
            sleep(pause).await;
            spawn_blocking(move || renewing.renew()).await
        };
        let renewal = tokio::select! {
            renewal = renewal => renewal,
            () = stop.cancelled() => return,
        };
        match renewal.map_err(anyhow::Error::from).flatten() {
            Ok(()) => {
                fails = false;
                renewed(&tokens.newest());
            }
            Err(error) if !std::mem::replace(&mut fails, true) => {
                let left = time_left(&tokens.newest()).as_secs();
                tracing::warn!(
                    "the join token cannot be replaced: {error:#}; no host can join in {left} s unless you replace it"
                );
            }
            Err(error) => tracing::debug!("the join token cannot be replaced: {error:#}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn token(lifetime: Duration) -> Token {
        join_token::random(lifetime).expect("randomness")
    }

    #[test]
    fn a_token_is_replaced_in_its_file_and_stays_valid() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("token");
        let old = token(Duration::from_hours(100));
        join_token::write(&path, &old).expect("it is ours");
        let tokens = JoinTokens::new(old.clone(), Some(path.clone()));
        tokens.renew().expect("it is ours");
        let new = tokens.newest();
        assert_ne!(new, old);
        assert_eq!(
            elasticrun_agent::read_token_file(&path).expect("it is ours"),
            new
        );
        assert!(time_left(&new) > Duration::from_hours(199), "{new:?}");
        for token in [old, new] {
            assert_eq!(tokens.find(token.id()), Ok(token));
        }
        assert_eq!(fs::read_dir(directory.path()).expect("ours").count(), 1);
    }

    #[test]
    fn a_file_that_the_user_has_replaced_is_read_for_the_next_host() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("token");
        let (old, new) = (token(Duration::ZERO), token(Duration::from_hours(1)));
        let tokens = JoinTokens::new(old.clone(), Some(path.clone()));
        assert_eq!(tokens.find(old.id()), Err(Refusal::Expired(old.id())));
        join_token::write(&path, &new).expect("it is ours");
        assert_eq!(
            tokens.find(new.id()),
            Err(Refusal::Unknown(new.id())),
            "it was read just now"
        );
        tokens.lock().read = None;
        assert_eq!(tokens.find(new.id()), Ok(new.clone()));
        assert_eq!(tokens.newest(), new);
        // A host with the old one still learns why it is refused.
        assert_eq!(tokens.find(old.id()), Err(Refusal::Expired(old.id())));
        let restored = JoinTokens::restore(old, Some(path));
        assert_eq!(restored.newest(), new);
    }

    #[test]
    fn a_token_of_the_user_that_is_valid_for_longer_is_not_replaced() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("token");
        let (old, new) = (
            token(Duration::from_hours(1)),
            token(Duration::from_hours(2)),
        );
        join_token::write(&path, &new).expect("it is ours");
        let tokens = JoinTokens::new(old, Some(path));
        tokens.renew().expect("it is read");
        assert_eq!(tokens.newest(), new);
    }

    #[test]
    fn a_token_that_has_expired_is_replaced_by_one_of_the_usual_time() {
        let tokens = JoinTokens::new(token(Duration::ZERO), None);
        tokens.renew().expect("randomness");
        assert!(time_left(&tokens.newest()) > LIFETIME / 2);
    }
}
