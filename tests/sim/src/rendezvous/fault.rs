//! Faults of a rendezvous.

use std::time::Duration;

use elasticrun_core::{
    Time,
    rendezvous::{Event, HeartbeatChanges, State},
};

use super::world::{Occurrence, World};
use crate::rng::Rng;

/// Something that goes wrong, or that a user does.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// The process of a node ends without a word.
    Kill(usize),
    /// A dead node has a new process.
    Restart(usize),
    /// No message passes between a node and the holder.
    Cut(usize, Duration),
    /// Messages of a node arrive, and those of the holder do not.
    Deaf(usize, Duration),
    /// No message reaches the holder.
    HolderDown(Duration),
    /// A process stands still, and its workers go on.
    Stop(usize, Duration),
    /// The clock of a node steps forward.
    StepClock(usize, Duration),
    /// Others write often, so nodes lose races.
    Races(u32),
    /// The holder loses all heartbeats, and keeps the state.
    LoseHeartbeats,
    /// The holder loses the state, and keeps the tokens.
    LoseState,
    /// A node leaves.
    Exit(usize),
    /// A node joins, or joins again without being asked to.
    Join(usize),
}

impl Fault {
    pub(super) fn draw(rng: &mut Rng, nodes: usize, clocks: bool, state_is_lost: bool) -> Self {
        let node = rng.range(0, nodes as u64 - 1) as usize;
        let duration = rng.millis(100, 20_000);
        match rng.range(0, 16) {
            0 | 1 => Self::Kill(node),
            2 | 3 => Self::Restart(node),
            4 | 5 => Self::Cut(node, duration),
            6 => Self::Deaf(node, duration),
            7 => Self::HolderDown(duration),
            8 | 9 => Self::Stop(node, duration),
            10 if clocks => Self::StepClock(node, duration),
            10 | 11 => Self::Races(rng.range(1, 40) as u32),
            12 if state_is_lost => Self::LoseState,
            12 | 13 => Self::Exit(node),
            14 => Self::LoseHeartbeats,
            _ => Self::Join(node),
        }
    }
}

impl World {
    /// A fault strikes.
    pub(super) fn strike(&mut self, fault: Fault) {
        let now = self.now;
        match fault {
            Fault::Kill(node) => self.nodes[node].kill(),
            Fault::Restart(node) if self.nodes[node].alive => {}
            Fault::Restart(node) => self.start(node),
            Fault::Cut(node, duration) => self.nodes[node].cut_until = now + duration,
            Fault::Deaf(node, duration) => self.nodes[node].deaf_until = now + duration,
            Fault::HolderDown(duration) => self.holder_down_until = now + duration,
            Fault::Stop(node, _) if self.nodes[node].stopped || !self.nodes[node].alive => {}
            Fault::Stop(node, duration) => {
                self.nodes[node].stopped = true;
                self.later(duration, Occurrence::Resume { node });
            }
            Fault::StepClock(node, by) => {
                self.nodes[node].ahead += by;
                self.schedule_tick(node);
            }
            Fault::Races(count) => {
                for _ in 0..count {
                    let at = self.rng.millis(0, 2000);
                    self.later(at, Occurrence::Race);
                }
            }
            Fault::LoseHeartbeats => {
                self.holder.lose_heartbeats();
                self.invariants.heartbeats_lost = true;
            }
            Fault::LoseState => self.lose_state(),
            Fault::Exit(node) => {
                self.nodes[node].wants = false;
                self.request(node, Event::ExitRequested);
            }
            Fault::Join(node) => {
                self.nodes[node].wants = true;
                self.request(node, Event::JoinRequested);
            }
        }
    }

    /// A write that changes nothing but the token.
    pub(super) fn race(&mut self) {
        let snapshot = self.holder.snapshot().clone();
        let state = snapshot.state.unwrap_or_default();
        let unchanged = HeartbeatChanges::default();
        let written = self
            .holder
            .compare_and_set(snapshot.token, state, &unchanged);
        debug_assert!(written.is_ok());
    }

    fn lose_state(&mut self) {
        self.holder.lose_state();
        self.invariants.state_lost(self.now);
        self.report_state(usize::MAX);
    }

    /// Ends all faults, and lets all nodes that live join.
    pub(super) fn heal(&mut self) {
        self.healed = true;
        self.holder_down_until = Time::ZERO;
        let alive = self.nodes.iter().filter(|node| node.alive).count();
        let missing = self.scenario.min_nodes.saturating_sub(alive);
        let all_return = self.rng.percent(50);
        let mut started = 0;
        for index in 0..self.nodes.len() {
            let node = &mut self.nodes[index];
            (node.cut_until, node.deaf_until) = (Time::ZERO, Time::ZERO);
            node.wants = true;
            if !node.alive && (all_return || started < missing) {
                started += 1;
                self.start(index);
            } else if node.alive {
                let process = node.process;
                self.later(
                    Duration::ZERO,
                    Occurrence::Join {
                        node: index,
                        process,
                    },
                );
            }
        }
    }

    /// The state of the holder.
    pub(super) fn state(&self) -> State {
        self.holder.snapshot().state.clone().unwrap_or_default()
    }
}
