//! Log lines of peers that were refused at the control port: few, however many peers there are.

use std::{
    mem,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use elasticrun_plugin_sdk::text::one_line;
use tokio::time::Instant;

use super::opening;

/// Lines that are logged in a window.
const SHOWN: usize = 10;

/// Length of a window. It begins with a refusal.
const WINDOW: Duration = Duration::from_secs(10);

/// Logs refused peers. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Refusals(Arc<Mutex<Refused>>);

/// What was refused so far.
#[derive(Debug, Default)]
struct Refused {
    /// Peers that this driver does not trust.
    strangers: Window,
    /// The number of peers that do not trust this driver.
    distrustful: u64,
}

impl Refusals {
    /// Logs a refused peer, unless there were many in a short time. Then they are counted, and the next line that is logged
    /// follows their number.
    ///
    /// A peer that has refused this driver is no stranger that was kept out: an agent that has waited for the next job dials
    /// with the keys of the last one first. It is counted.
    pub(super) fn log(&self, from: SocketAddr, error: &opening::Error) {
        // The words of a stranger may be in it.
        let text = one_line(&error.to_string());
        if error.is_reset() {
            return tracing::debug!(peer = %from, error = %text, "a peer has gone away while it dialled");
        }
        let mut refused = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if error.is_refusal_of_peer() {
            refused.distrustful += 1;
            let count = refused.distrustful;
            return tracing::debug!(peer = %from, error = %text, count, "a peer does not trust this driver");
        }
        let verdict = refused.strangers.judge(Instant::now());
        drop(refused);
        let error = text;
        match verdict {
            Verdict::Logged { unlogged: 0 } => {}
            Verdict::Logged { unlogged } => {
                tracing::warn!(unlogged, "refused further connections to the control port");
            }
            Verdict::Counted => {
                return tracing::debug!(peer = %from, %error, "refused a connection to the control port");
            }
        }
        tracing::warn!(peer = %from, %error, "refused a connection to the control port");
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// It is logged, after the number of earlier refusals that were not.
    Logged { unlogged: usize },
    /// It is only counted.
    Counted,
}

#[derive(Debug, Default)]
struct Window {
    until: Option<Instant>,
    count: usize,
}

impl Window {
    /// What becomes of the line of a refusal.
    fn judge(&mut self, now: Instant) -> Verdict {
        let mut unlogged = 0;
        if self.until.is_none_or(|until| until <= now) {
            self.until = Some(now + WINDOW);
            unlogged = mem::take(&mut self.count).saturating_sub(SHOWN);
        }
        self.count += 1;
        if self.count <= SHOWN {
            Verdict::Logged { unlogged }
        } else {
            Verdict::Counted
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use elasticrun_tls::{Error as TlsError, opening};

    use super::*;

    #[test]
    fn a_peer_that_does_not_trust_this_driver_is_no_stranger() {
        let refusals = Refusals::default();
        let from = SocketAddr::from(([127, 0, 0, 1], 1));
        let distrusts = TlsError::Refused("this process is of another job".into());
        let errors = [
            distrusts.clone(),
            TlsError::OtherJob,
            TlsError::NoCertificate,
            distrusts,
        ];
        for error in errors {
            refusals.log(from, &opening::Error::from(error).into());
        }
        let refused = refusals.0.lock().unwrap();
        assert_eq!((refused.strangers.count, refused.distrustful), (2, 2));
    }

    #[test]
    fn a_peer_that_has_gone_away_was_not_refused() {
        let refusals = Refusals::default();
        let from = SocketAddr::from(([127, 0, 0, 1], 1));
        let kinds = [
            io::ErrorKind::ConnectionReset,
            io::ErrorKind::BrokenPipe,
            io::ErrorKind::PermissionDenied,
        ];
        for kind in kinds {
            refusals.log(from, &opening::Error::from(io::Error::from(kind)).into());
        }
        assert_eq!(refusals.0.lock().unwrap().strangers.count, 1);
    }

    #[test]
    fn many_strangers_are_a_few_lines_and_a_number() {
        let (mut window, began) = (Window::default(), Instant::now());
        let lines = |window: &mut Window, now, count| {
            let lines: Vec<_> = (0..count).map(|_| window.judge(now)).collect();
            let logged = lines
                .iter()
                .filter(|line| **line != Verdict::Counted)
                .count();
            (logged, lines.into_iter().next())
        };
        let logged = |unlogged| Some(Verdict::Logged { unlogged });
        assert_eq!(lines(&mut window, began, 1000), (10, logged(0)));
        assert_eq!(lines(&mut window, began + WINDOW, 3), (3, logged(990)));
        assert_eq!(lines(&mut window, began + 2 * WINDOW, 1), (1, logged(0)));
    }
}
