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
use tokio::{
    sync::Mutex as AsyncMutex,
    task::{JoinHandle, spawn_blocking},
    time::{sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::join_token::{self, LIFETIME};

/// How often the file is read for hosts that name another token, at most. Hosts that come before wait for the next time.
const READ_INTERVAL: Duration = Duration::from_secs(1);

/// A token that replaces another one is valid for as long as that one, and for this long at least.
const MIN_LIFETIME: Duration = Duration::from_hours(1);

/// How often the age of the token is checked, and the pause after one could not be replaced. The clock may be set, and the
/// user may give another token, so nothing is planned for longer.
const CHECK_INTERVAL: Duration = Duration::from_mins(1);

/// The tokens of a job. There is one at least.
#[derive(Debug)]
pub(crate) struct JoinTokens {
    file: Option<PathBuf>,
    state: Mutex<State>,
    /// One host reads the file for all that wait. Nothing else waits for it: the file system may not answer.
    reading: AsyncMutex<Reading>,
}

/// The last time that the file was read for a host.
#[derive(Debug, Default)]
struct Reading {
    began: Option<Instant>,
    /// It has not ended yet. The host that began it may have given up.
    task: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct State {
    tokens: Tokens,
    newest: Token,
    /// When half of the time of the newest is over.
    renewed_from: SystemTime,
}

impl JoinTokens {
    /// This token, which is in `file` if there is one.
    pub(crate) fn new(token: Token, file: Option<PathBuf>) -> Self {
        let state = State {
            tokens: Tokens::new(vec![token.clone()]),
            renewed_from: half_way(&token),
            newest: token,
        };
        Self {
            file,
            state: Mutex::new(state),
            reading: AsyncMutex::default(),
        }
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

    /// The token that a host names. One that is not known may be in the file, which is read after this call then.
    ///
    /// # Errors
    /// It is not one of this job, or has expired.
    pub(crate) async fn find(self: Arc<Self>, id: TokenId) -> Result<Token, Refusal> {
        let known = self.known(id);
        if known.is_err() && self.file.is_some() {
            self.read_after(Instant::now()).await;
            return self.known(id);
        }
        known
    }

    fn known(&self, id: TokenId) -> Result<Token, Refusal> {
        let now = SystemTime::now();
        self.lock().tokens.find(id, now).cloned()
    }

    /// Returns when the file was read after `asked`, by this host or by another one. Cancel-safe.
    async fn read_after(self: &Arc<Self>, asked: Instant) {
        let mut reading = self.reading.lock().await;
        loop {
            if let Some(task) = &mut reading.task {
                // It fails only at the end of the driver.
                let _ = task.await;
                reading.task = None;
            }
            match reading.began {
                Some(began) if began >= asked => return,
                Some(began) => sleep_until((began + READ_INTERVAL).into()).await,
                None => {}
            }
            let tokens = Arc::clone(self);
            reading.began = Some(Instant::now());
            reading.task = Some(spawn_blocking(move || tokens.read_file()));
        }
    }

    /// Adds the token of the file, if there is one. A file that cannot be read changes nothing: it may be about to be
    /// replaced.
    fn read_file(&self) {
        let Some(path) = &self.file else { return };
        match elasticrun_agent::read_token_file(path) {
            Ok(token) => self.lock().add(token),
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
        self.lock().add(token);
        Ok(())
    }

    /// Whether half of the time of the newest token is over, else how long it is until then.
    fn must_renew(&self) -> Result<(), Duration> {
        match self.lock().renewed_from.duration_since(SystemTime::now()) {
            Ok(left) if !left.is_zero() => Err(left),
            _ => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn add(&mut self, token: Token) {
        self.tokens.add(token.clone());
        // Reading the same one again does not give it more time.
        if token != self.newest {
            self.renewed_from = half_way(&token);
            self.newest = token;
        }
    }
}

fn half_way(token: &Token) -> SystemTime {
    SystemTime::now() + time_left(token) / 2
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
        let pause = match tokens.must_renew() {
            Ok(()) if !fails => Duration::ZERO,
            Ok(()) => CHECK_INTERVAL,
            Err(left) => left.min(CHECK_INTERVAL),
        };
        tokio::select! {
            () = sleep(pause) => {}
            () = stop.cancelled() => return,
        }
        if tokens.must_renew().is_err() {
            continue;
        }
        let renewing = tokens.clone();
        let renewal = tokio::select! {
            renewal = spawn_blocking(move || renewing.renew()) => renewal,
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

    use nix::{sys::stat::Mode, unistd::mkfifo};

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
            assert_eq!(tokens.known(token.id()), Ok(token));
        }
        assert_eq!(fs::read_dir(directory.path()).expect("ours").count(), 1);
    }

    #[tokio::test]
    async fn a_file_that_the_user_has_replaced_is_read_for_the_next_host() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("token");
        let (old, new) = (token(Duration::ZERO), token(Duration::from_hours(1)));
        join_token::write(&path, &old).expect("it is ours");
        let tokens = Arc::new(JoinTokens::new(old.clone(), Some(path.clone())));
        let asks = |token: &Token| tokens.clone().find(token.id());
        assert_eq!(asks(&old).await, Err(Refusal::Expired(old.id())));
        join_token::write(&path, &new).expect("it is ours");
        assert_eq!(asks(&new).await, Ok(new.clone()));
        assert_eq!(tokens.newest(), new);
        // A host with the old one still learns why it is refused.
        assert_eq!(asks(&old).await, Err(Refusal::Expired(old.id())));
        let restored = JoinTokens::restore(old, Some(path));
        assert_eq!(restored.newest(), new);
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_read_holds_up_only_hosts_that_need_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("token");
        // Whoever opens it waits for a writer.
        mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR).expect("a pipe");
        let known = token(Duration::from_hours(1));
        let tokens = Arc::new(JoinTokens::new(known.clone(), Some(path.clone())));
        let stranger = token(Duration::ZERO).id();
        for _ in 0..2 {
            let waits =
                tokio::time::timeout(Duration::from_millis(20), tokens.clone().find(stranger));
            waits.await.expect_err("the file does not answer");
        }
        assert_eq!(tokens.clone().find(known.id()).await, Ok(known));
        tokens.must_renew().expect_err("it is new");
        // So that its reader ends.
        let writer = fs::OpenOptions::new().write(true).open(&path);
        drop(writer.expect("there is a reader"));
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

    #[tokio::test]
    async fn hosts_that_come_just_after_the_file_was_read_wait_for_the_next_time() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("token");
        let (old, new) = (
            token(Duration::from_hours(1)),
            token(Duration::from_hours(1)),
        );
        join_token::write(&path, &old).expect("it is ours");
        let tokens = Arc::new(JoinTokens::new(old, Some(path.clone())));
        let unknown = token(Duration::ZERO).id();
        let refused = tokens.clone().find(unknown).await;
        assert_eq!(refused, Err(Refusal::Unknown(unknown)));
        join_token::write(&path, &new).expect("it is ours");
        let hosts = (0..3).map(|_| tokens.clone().find(new.id()));
        let found = tokio::task::JoinSet::from_iter(hosts).join_all().await;
        assert_eq!(found, vec![Ok(new.clone()); 3]);
    }

    #[test]
    fn a_token_must_be_renewed_once_half_of_its_time_is_over() {
        let tokens = JoinTokens::new(token(Duration::from_hours(2)), None);
        let left = tokens.must_renew().expect_err("it is new");
        assert!(left > Duration::from_mins(59), "{left:?}");
        let same = tokens.newest();
        tokens.lock().renewed_from = SystemTime::now();
        tokens.lock().add(same);
        assert_eq!(tokens.must_renew(), Ok(()), "it is not new");
        tokens.lock().add(token(Duration::from_secs(2)));
        let left = tokens.must_renew().expect_err("it is new");
        assert!(left <= Duration::from_secs(1), "{left:?}");
        tokens.lock().add(token(Duration::ZERO));
        assert_eq!(tokens.must_renew(), Ok(()));
    }

    #[test]
    fn a_token_that_has_expired_is_replaced_by_one_of_the_usual_time() {
        let tokens = JoinTokens::new(token(Duration::ZERO), None);
        tokens.renew().expect("randomness");
        assert!(time_left(&tokens.newest()) > LIFETIME / 2);
    }
}
