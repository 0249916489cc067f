//! What a seed decides: settings, the network, and the faults to come.

use std::time::Duration;

use elasticrun_core::rendezvous::Settings;

use super::fault::Fault;
use crate::rng::Rng;

/// Faults strike in this time.
pub(super) const FAULTS_END: Duration = Duration::from_secs(90);

/// The scenario of a seed.
#[derive(Debug)]
pub(super) struct Scenario {
    pub(super) settings: Settings,
    pub(super) min_nodes: usize,
    pub(super) max_nodes: usize,
    pub(super) heartbeat_timeout: Duration,
    pub(super) last_call: Duration,
    /// When each node starts to join.
    pub(super) starts: Vec<Duration>,
    /// The longest usual delay of a message.
    pub(super) latency: Duration,
    /// Messages, in a hundred, that take seconds.
    pub(super) slow: u64,
    /// Reports of the holder, in a hundred, that are lost.
    pub(super) lost_reports: u64,
    pub(super) faults: Vec<(Duration, Fault)>,
    /// Whether clocks step: then D6 and D7 are not promised.
    pub(super) clocks_step: bool,
}

impl Scenario {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        let min_nodes = rng.range(1, 4) as usize;
        let max_nodes = min_nodes + rng.range(0, 3) as usize;
        let nodes = min_nodes + rng.range(0, 5) as usize;
        let heartbeat_timeout = rng.range(1, 3);
        let interval = rng.range(1, 2);
        let last_call = rng.range(1, 5);
        let backoff = rng.pick(&["0", "0.3"]).unwrap_or("0");
        let pairs = [
            ("join_timeout", rng.range(20, 120).to_string()),
            ("last_call_timeout", last_call.to_string()),
            ("close_timeout", rng.range(5, 20).to_string()),
            ("heartbeat_timeout", heartbeat_timeout.to_string()),
            ("keep_alive_interval", interval.to_string()),
            ("keep_alive_max_attempt", rng.range(2, 4).to_string()),
            ("cas_backoff_max_seconds", backoff.to_owned()),
        ];
        let with = |settings: Settings, (key, value): (&str, String)| settings.with(key, &value);
        let defaults = Settings::new(min_nodes, max_nodes);
        let settings = defaults.and_then(|defaults| pairs.into_iter().try_fold(defaults, with));
        let clocks_step = rng.percent(20);
        let state_is_lost = rng.percent(15);
        let count = rng.range(0, 14);
        let faults = (0..count).map(|_| {
            let at = rng.millis(0, FAULTS_END.as_millis() as u64);
            (at, Fault::draw(rng, nodes, clocks_step, state_is_lost))
        });
        let faults = faults.collect();
        Self {
            settings: settings.expect("the ranges are those of the settings"),
            min_nodes,
            max_nodes,
            heartbeat_timeout: Duration::from_secs(heartbeat_timeout),
            last_call: Duration::from_secs(last_call),
            starts: (0..nodes).map(|_| rng.millis(0, 8000)).collect(),
            latency: rng
                .pick(&[1, 5, 20])
                .map_or(Duration::ZERO, Duration::from_millis),
            slow: rng.pick(&[0, 0, 2, 15]).unwrap_or(0),
            lost_reports: rng.pick(&[0, 0, 20, 100]).unwrap_or(0),
            faults,
            clocks_step,
        }
    }

    /// How long the next message takes.
    pub(super) fn delay(&self, rng: &mut Rng, healed: bool) -> Duration {
        if !healed && rng.percent(self.slow) {
            return rng.millis(500, 6000);
        }
        rng.micros(50, 50 + self.latency.as_micros() as u64)
    }
}
