//! Detects a cut path to a neighbour from the state that the kernel keeps. The kernel acknowledges
//! on behalf of a busy process; over a cut path no acknowledgement arrives.
//!
//! Detection depends on the state of the connection:
//! - Nothing in flight: keepalive probes. The kernel ends the connection (ETIMEDOUT).
//! - Data in flight: retransmissions of the kernel, which would continue for a quarter of an hour.
//!   A leader that has waited for long checks them ([`PathMonitor::is_cut`]), and also the probes
//!   of a closed window.
//!
//! TCP_USER_TIMEOUT is not used. It also ends a connection whose peer answers each probe but has a
//! full receive buffer. That is every process that computes while much is sent to it.
//!
//! # Invariants
//! - A path that is interrupted for less than the timeout ends no connection: it ends only after
//!   one more probe or retransmission, sent after the timeout, is unanswered too.
//! - A process that is alive or stopped and does not read ends no connection: its kernel answers.

use std::{
    io,
    net::TcpStream,
    os::fd::{AsFd, AsRawFd},
    time::{Duration, Instant},
};

use nix::errno::Errno;
use socket2::{SockRef, TcpKeepalive};

/// Keepalive probes within a timeout.
const PROBES: u32 = 5;
/// The kernel counts keepalive intervals in seconds.
const SECOND: Duration = Duration::from_secs(1);
/// Minimum number of unanswered retransmissions or probes that counts.
const MIN_UNANSWERED: u8 = 2;
/// How long the answer to a retransmission may take, in addition to two round trips.
const ANSWER_ALLOWANCE: Duration = Duration::from_millis(200);
/// Maximum time between two checks. After a longer gap, monitoring starts over.
const MAX_CHECK_GAP: Duration = Duration::from_secs(1);

/// How often a leader that has waited for long checks its paths.
pub(super) const PATH_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Enables keepalive probes on idle connections. Also makes the kernel retransmit often enough to
/// find a path that recovers within `timeout`.
///
/// # Errors
/// A socket option that the system refuses.
pub fn watch_path(stream: &impl AsFd, timeout: Duration) -> io::Result<()> {
    let interval = (timeout / PROBES).as_secs() + u64::from((timeout / PROBES).subsec_nanos() > 0);
    let interval = Duration::from_secs(interval.clamp(1, 3600));
    let probes = timeout.as_millis().div_ceil(interval.as_millis()).max(1);
    let keepalive = TcpKeepalive::new()
        .with_time(interval)
        .with_interval(interval)
        .with_retries(probes as u32);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)?;
    // Since Linux 6.15. Without it, intervals double, so that a cut is found within two timeouts
    // instead of one.
    let _ = set_max_retransmission_interval(stream, (timeout / 4).max(SECOND));
    Ok(())
}

/// Sets TCP_RTO_MAX_MS.
fn set_max_retransmission_interval(stream: &impl AsFd, interval_max: Duration) -> io::Result<()> {
    const TCP_RTO_MAX_MS: libc::c_int = 44;
    let millis = interval_max.as_millis().min(120_000) as libc::c_int;
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

/// Whether the kernel reports that nothing answered for as long as it tried.
pub(super) fn is_silence(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::ETIMEDOUT | Errno::EHOSTUNREACH | Errno::ENETUNREACH | Errno::EHOSTDOWN
    )
}

/// What the kernel knows of a connection.
#[derive(Clone, Copy, Debug, Default)]
struct TcpStats {
    /// Segments in flight.
    unacknowledged: u32,
    /// Unanswered retransmissions of the oldest segment.
    retransmissions: u8,
    /// Unanswered probes.
    probes: u8,
    since_sent: Duration,
    since_ack: Duration,
    round_trip: Duration,
}

impl TcpStats {
    fn read(stream: &TcpStream) -> Option<Self> {
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
            since_ack: millis(info.tcpi_last_ack_recv),
            round_trip: Duration::from_micros(info.tcpi_rtt.into()),
        })
    }

    /// Whether a segment was retransmitted repeatedly without an acknowledgement.
    fn is_stuck(&self) -> bool {
        self.unacknowledged > 0 && self.retransmissions >= MIN_UNANSWERED
    }
}

/// Observations of a path while a leader waits for its neighbour.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PathMonitor {
    /// Time of the last check.
    last_check: Option<Instant>,
    retransmissions: u8,
    /// Start of the current run of unacknowledged retransmissions.
    since: Option<Instant>,
    /// Number of unanswered probes when the timeout had passed, and the time of the first probe
    /// after that.
    overdue: Option<(u8, Option<Instant>)>,
}

impl PathMonitor {
    /// Whether nothing that was sent for `timeout` was acknowledged.
    pub(super) fn is_cut(&mut self, stream: &TcpStream, timeout: Duration, now: Instant) -> bool {
        match TcpStats::read(stream) {
            Some(stats) => self.observe(stats, timeout, now),
            None => false,
        }
    }

    fn observe(&mut self, stats: TcpStats, timeout: Duration, now: Instant) -> bool {
        let anew = stats.unacknowledged == 0
            || stats.retransmissions == 0
            || stats.retransmissions < self.retransmissions
            || self
                .last_check
                .is_none_or(|last_check| last_check + MAX_CHECK_GAP < now);
        self.last_check = Some(now);
        self.retransmissions = stats.retransmissions;
        if anew {
            self.since = None;
        }
        if stats.retransmissions == 0 {
            return self.probes_fail(stats, timeout, now);
        }
        let since = *self.since.get_or_insert(now);
        let answer = ANSWER_ALLOWANCE + 2 * stats.round_trip;
        let sent_at_end = (now - since).saturating_sub(stats.since_sent) >= timeout;
        stats.is_stuck() && sent_at_end && stats.since_sent >= answer
    }

    /// Whether a probe after the timeout is unanswered too.
    fn probes_fail(&mut self, stats: TcpStats, timeout: Duration, now: Instant) -> bool {
        if stats.probes == 0 || stats.since_ack < timeout {
            self.overdue = None;
            return false;
        }
        let (before, more) = self.overdue.get_or_insert((stats.probes, None));
        if stats.probes > *before {
            more.get_or_insert(now);
        }
        let answer = ANSWER_ALLOWANCE + 2 * stats.round_trip;
        stats.probes >= MIN_UNANSWERED && more.is_some_and(|more| now - more >= answer)
    }
}

/// Whether a connection that should have received something has been silent for at least this long.
/// This is not proof enough to end the connection. It explains a failure that has another cause.
pub(super) fn is_silent(stream: &TcpStream, at_least: Duration) -> bool {
    TcpStats::read(stream).is_some_and(|stats| {
        stats.since_ack >= at_least && (stats.is_stuck() || stats.probes >= MIN_UNANSWERED)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(5);

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Checks a connection each 100 ms while its kernel retransmits at these times. Returns when a
    /// cut is found.
    fn looks(again: &[u64], until: u64, in_flight: u32) -> Option<u64> {
        let start = Instant::now();
        let mut path = PathMonitor::default();
        (0..until).step_by(100).find(|&at| {
            let sent = again.iter().filter(|&&sent| sent <= at);
            let stats = TcpStats {
                unacknowledged: in_flight,
                retransmissions: sent.clone().count() as u8,
                since_sent: millis(at - sent.max().copied().unwrap_or(0)),
                round_trip: millis(1),
                ..TcpStats::default()
            };
            path.observe(stats, TIMEOUT, start + millis(at))
        })
    }

    #[test]
    fn a_cut_is_found_by_the_first_retransmission_after_the_timeout() {
        let doubling = [200, 600, 1_400, 3_000, 6_200, 12_600];
        assert_eq!(looks(&doubling, 20_000, 3), Some(6_500));
        let bounded = [200, 600, 1_400, 2_650, 3_900, 5_150, 6_400, 7_650];
        assert_eq!(looks(&bounded, 20_000, 3), Some(6_700));
        // The path recovers just before the next retransmission, which is answered.
        assert_eq!(looks(&doubling[..4], 6_200, 3), None);
    }

    #[test]
    fn late_acknowledgements_and_full_buffers_are_no_cut() {
        // Zero-window probes are no retransmissions, whatever their number.
        assert_eq!(looks(&[], 100_000, 0), None);
        assert_eq!(looks(&[200, 5_500], 100_000, 0), None);
        // With an acknowledgement from time to time, the count starts over.
        let start = Instant::now();
        let mut path = PathMonitor::default();
        for at in (0..60_000u64).step_by(100) {
            let stats = TcpStats {
                unacknowledged: 1,
                retransmissions: (at % 4_000 / 700) as u8,
                since_sent: millis(at % 700),
                ..TcpStats::default()
            };
            assert!(!path.observe(stats, TIMEOUT, start + millis(at)), "{at}");
        }
    }

    #[test]
    fn a_closed_window_is_no_cut_while_its_probes_are_answered() {
        let start = Instant::now();
        let mut path = PathMonitor::default();
        let mut see = |at: u64, probes: u8, since_ack: u64| {
            let stats = TcpStats {
                probes,
                since_ack: millis(since_ack),
                ..TcpStats::default()
            };
            path.observe(stats, TIMEOUT, start + millis(at))
        };
        // A probe each 13 s, each checked before its answer arrives.
        for turn in 0..5 {
            let at = turn * 13_000;
            assert!(!see(at, 1, 13_000) && !see(at + 100, 0, 100) && !see(at + 6_000, 0, 6_000));
        }
        // The last of these is answered.
        assert!(!see(70_000, 1, 4_000) && !see(71_000, 2, 5_000) && !see(72_500, 3, 6_500));
        assert!(!see(72_600, 0, 50));
        // From here on, none is answered.
        assert!(!see(77_900, 2, 5_300) && !see(78_900, 3, 6_300));
        assert!(see(79_200, 3, 6_600));
    }

    #[test]
    fn a_gap_between_two_checks_starts_over() {
        let start = Instant::now();
        let mut path = PathMonitor::default();
        let stats = TcpStats {
            unacknowledged: 1,
            retransmissions: 3,
            since_sent: millis(1_000),
            ..TcpStats::default()
        };
        assert!(!path.observe(stats, TIMEOUT, start));
        assert!(!path.observe(stats, TIMEOUT, start + millis(60_000)));
    }
}
