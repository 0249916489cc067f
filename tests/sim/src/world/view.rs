//! What invariants ask of the world.

use elasticrun_protocol::{Process, control::Exit};

use super::{Seat, World, worker::Phase};

impl World {
    /// Whether the driver can reach the agent of a host now, as an onlooker sees it.
    pub(crate) fn reaches(&self, host: usize) -> bool {
        let state = &self.hosts[host];
        let Some(agent) = &state.agent else {
            return false;
        };
        let open = self.driver.current[host].is_some_and(|link| {
            let link = &self.links[link];
            link.driver_open && link.agent_open && link.agent == agent.number
        });
        open && state.alive && state.cut_up == 0 && state.cut_down == 0
    }

    /// Whether a worker is at `run()` and nobody told it to go.
    pub(crate) fn waits_well(&self, host: usize, process: Process) -> bool {
        let worker = self.hosts[host].workers.get(&process);
        worker.is_some_and(|w| w.phase == Phase::Joined && !w.told_to_stop && !w.suspended)
    }

    /// How a member of the last round ended, if it has.
    pub(super) fn member_ends(&mut self, host: usize, process: Process, end: &Exit, lost: bool) {
        if let Some(seat) = self.last_seat(host, process) {
            seat.end = Some(end.clone());
            seat.lost = lost;
        }
    }

    /// A member of the last round is told to stop, as its domain has failed.
    pub(crate) fn member_stopped(&mut self, host: usize, process: Process) {
        if let Some(seat) = self.last_seat(host, process) {
            seat.stopped = true;
        }
    }

    fn last_seat(&mut self, host: usize, process: Process) -> Option<&mut Seat> {
        let (_, last) = self.rounds.iter_mut().next_back()?;
        last.seats
            .iter_mut()
            .find(|seat| seat.host == host && seat.process == process)
    }
}
