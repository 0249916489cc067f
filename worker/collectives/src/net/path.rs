//! Whether the path to a neighbour is there, as the kernel knows it: it acknowledges for a process that
//! computes, and nothing does for a path that is cut.
//!
//! States of a connection, and ways to find out:
//! - Nothing of ours is on its way: keepalive probes. The kernel ends the connection (ETIMEDOUT).
//! - Something is: the retransmissions of the kernel. It would go on with them for a quarter of an hour, so who
//!   waits for long looks at them ([`Path::is_cut`]), and at the probes of a window that is closed.
//!
//! TCP_USER_TIMEOUT is not used: it also ends a connection whose other end answers each probe and has no room, which is
//! every process that computes while much is sent to it.
//!
//! # Invariants
//! - A path that is interrupted for less than the timeout ends no connection: after the timeout there is one more
//!   probe or retransmission, and that is unanswered too.
//! - A process that is alive or stopped and does not read ends no connection: its kernel answers.

use std::{
    io,
    net::TcpStream,
    os::fd::{AsFd, AsRawFd},
    time::{Duration, Instant},
};

use nix::errno::Errno;
use socket2::{SockRef, TcpKeepalive};

/// Probes within a timeout.
const PROBES: u32 = 5;
/// The kernel counts them in seconds.
const SECOND: Duration = Duration::from_secs(1);
/// Unanswered retransmissions that are no accident.
const FEW: u8 = 2;
/// How long the answer to a retransmission may take, beside two round trips.
const ANSWER: Duration = Duration::from_millis(200);
/// Who looks seldom does not know what was between.
const LOOKS: Duration = Duration::from_secs(1);

/// How often who waits for long looks at its paths.
pub(super) const LOOK: Duration = Duration::from_millis(100);

/// Has the kernel ask over an idle connection whether its other end is there, and repeat what is not
/// acknowledged often enough that a path which is mended within `timeout` is found so.
///
/// # Errors
/// When the system refuses it.
pub fn watch_path(stream: &impl AsFd, timeout: Duration) -> io::Result<()> {
    let interval = (timeout / PROBES).as_secs() + u64::from((timeout / PROBES).subsec_nanos() > 0);
    let interval = Duration::from_secs(interval.clamp(1, 3600));
    let probes = timeout.as_millis().div_ceil(interval.as_millis()).max(1);
    let keepalive = TcpKeepalive::new()
        .with_time(interval)
        .with_interval(interval)
        .with_retries(probes as u32);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)?;
    // Since Linux 6.15. Without it the pauses double, so that a cut is found within two timeouts and not one.
    let _ = set_longest_pause(stream, (timeout / 4).max(SECOND));
    Ok(())
}

/// TCP_RTO_MAX_MS.
fn set_longest_pause(stream: &impl AsFd, pause: Duration) -> io::Result<()> {
    const TCP_RTO_MAX_MS: libc::c_int = 44;
    let millis = pause.as_millis().min(120_000) as libc::c_int;
    // SAFETY: the kernel reads an int, of the length that is given.
    let set = unsafe {
        libc::setsockopt(
            stream.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            TCP_RTO_MAX_MS,
            (&raw const millis).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    Errno::result(set).map(drop).map_err(io::Error::from)
}

/// What the kernel says when nothing has answered for as long as it tries.
pub(super) fn is_silence(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::ETIMEDOUT | Errno::EHOSTUNREACH | Errno::ENETUNREACH | Errno::EHOSTDOWN
    )
}

/// What the kernel knows of a connection.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Segments on their way.
    unacknowledged: u32,
    /// Unanswered retransmissions of the oldest.
    retransmissions: u8,
    /// Unanswered probes.
    probes: u8,
    since_sent: Duration,
    since_heard: Duration,
    round_trip: Duration,
}

impl Seen {
    fn of(stream: &TcpStream) -> Option<Self> {
        // SAFETY: a tcp_info is integers only.
        let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
        let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes, which is the size of `info`.
        let got = unsafe {
            libc::getsockopt(
                stream.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                (&raw mut info).cast(),
                &raw mut len,
            )
        };
        Errno::result(got).ok()?;
        let millis = |value: u32| Duration::from_millis(value.into());
        Some(Self {
            unacknowledged: info.tcpi_unacked,
            retransmissions: info.tcpi_retransmits,
            probes: info.tcpi_probes,
            since_sent: millis(info.tcpi_last_data_sent),
            since_heard: millis(info.tcpi_last_ack_recv),
            round_trip: Duration::from_micros(info.tcpi_rtt.into()),
        })
    }

    /// Whether something was sent again and again, and nothing came back.
    fn is_stuck(&self) -> bool {
        self.unacknowledged > 0 && self.retransmissions >= FEW
    }
}

/// What was seen of a path while somebody waited for it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Path {
    /// When it was looked at last.
    looked: Option<Instant>,
    retransmissions: u8,
    /// Since when what was sent is not acknowledged.
    since: Option<Instant>,
    /// Unanswered probes when the timeout had passed, and when there was one more.
    overdue: Option<(u8, Option<Instant>)>,
}

impl Path {
    /// Whether nothing that was sent for so long arrives.
    pub(super) fn is_cut(&mut self, stream: &TcpStream, timeout: Duration, now: Instant) -> bool {
        match Seen::of(stream) {
            Some(seen) => self.see(seen, timeout, now),
            None => false,
        }
    }

    fn see(&mut self, seen: Seen, timeout: Duration, now: Instant) -> bool {
        let anew = seen.unacknowledged == 0
            || seen.retransmissions == 0
            || seen.retransmissions < self.retransmissions
            || self.looked.is_none_or(|looked| looked + LOOKS < now);
        self.looked = Some(now);
        self.retransmissions = seen.retransmissions;
        if anew {
            self.since = None;
        }
        if seen.retransmissions == 0 {
            return self.probes_fail(seen, timeout, now);
        }
        let since = *self.since.get_or_insert(now);
        let answer = ANSWER + 2 * seen.round_trip;
        let sent_at_end = (now - since).saturating_sub(seen.since_sent) >= timeout;
        seen.is_stuck() && sent_at_end && seen.since_sent >= answer
    }

    /// Whether a probe after the timeout was not answered either.
    fn probes_fail(&mut self, seen: Seen, timeout: Duration, now: Instant) -> bool {
        if seen.probes == 0 || seen.since_heard < timeout {
            self.overdue = None;
            return false;
        }
        let (before, more) = self.overdue.get_or_insert((seen.probes, None));
        if seen.probes > *before {
            more.get_or_insert(now);
        }
        let answer = ANSWER + 2 * seen.round_trip;
        seen.probes >= FEW && more.is_some_and(|more| now - more >= answer)
    }
}

/// Whether nothing has come over a connection for so long although something should have: not proof enough to end it, but
/// when it is ended for another reason, worth a word.
pub(super) fn is_silent(stream: &TcpStream, at_least: Duration) -> bool {
    Seen::of(stream)
        .is_some_and(|seen| seen.since_heard >= at_least && (seen.is_stuck() || seen.probes >= FEW))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(5);

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Looks at a connection each 100 ms whose kernel sends again at these times; what is cut, when.
    fn looks(again: &[u64], until: u64, in_flight: u32) -> Option<u64> {
        let start = Instant::now();
        let mut path = Path::default();
        (0..until).step_by(100).find(|&at| {
            let sent = again.iter().filter(|&&sent| sent <= at);
            let seen = Seen {
                unacknowledged: in_flight,
                retransmissions: sent.clone().count() as u8,
                since_sent: millis(at - sent.max().copied().unwrap_or(0)),
                round_trip: millis(1),
                ..Seen::default()
            };
            path.see(seen, TIMEOUT, start + millis(at))
        })
    }

    #[test]
    fn a_cut_is_found_by_the_first_retransmission_after_the_timeout() {
        let doubling = [200, 600, 1_400, 3_000, 6_200, 12_600];
        assert_eq!(looks(&doubling, 20_000, 3), Some(6_500));
        let bounded = [200, 600, 1_400, 2_650, 3_900, 5_150, 6_400, 7_650];
        assert_eq!(looks(&bounded, 20_000, 3), Some(6_700));
        // Mended just before the next one, which is answered.
        assert_eq!(looks(&doubling[..4], 6_200, 3), None);
    }

    #[test]
    fn who_acknowledges_late_or_has_no_room_is_no_cut() {
        // Zero-window probes are no retransmissions, whatever their number.
        assert_eq!(looks(&[], 100_000, 0), None);
        assert_eq!(looks(&[200, 5_500], 100_000, 0), None);
        // Acknowledged now and then: the count begins anew.
        let start = Instant::now();
        let mut path = Path::default();
        for at in (0..60_000u64).step_by(100) {
            let seen = Seen {
                unacknowledged: 1,
                retransmissions: (at % 4_000 / 700) as u8,
                since_sent: millis(at % 700),
                ..Seen::default()
            };
            assert!(!path.see(seen, TIMEOUT, start + millis(at)), "{at}");
        }
    }

    #[test]
    fn a_closed_window_is_no_cut_while_its_probes_are_answered() {
        let start = Instant::now();
        let mut path = Path::default();
        let mut see = |at: u64, probes: u8, since_heard: u64| {
            let seen = Seen {
                probes,
                since_heard: millis(since_heard),
                ..Seen::default()
            };
            path.see(seen, TIMEOUT, start + millis(at))
        };
        // Asked each 13 s, and seen before the answer each time.
        for turn in 0..5 {
            let at = turn * 13_000;
            assert!(!see(at, 1, 13_000) && !see(at + 100, 0, 100) && !see(at + 6_000, 0, 6_000));
        }
        // The last of these is answered.
        assert!(!see(70_000, 1, 4_000) && !see(71_000, 2, 5_000) && !see(72_500, 3, 6_500));
        assert!(!see(72_600, 0, 50));
        // And now none is.
        assert!(!see(77_900, 2, 5_300) && !see(78_900, 3, 6_300));
        assert!(see(79_200, 3, 6_600));
    }

    #[test]
    fn what_was_between_two_looks_far_apart_is_not_guessed() {
        let start = Instant::now();
        let mut path = Path::default();
        let seen = Seen {
            unacknowledged: 1,
            retransmissions: 3,
            since_sent: millis(1_000),
            ..Seen::default()
        };
        assert!(!path.see(seen, TIMEOUT, start));
        assert!(!path.see(seen, TIMEOUT, start + millis(60_000)));
    }
}
