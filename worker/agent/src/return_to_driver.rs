//! The agent between two connections: it keeps its workers, dials, registers with them, and goes on.

use elasticrun_core::agent::{Command, Event};
use elasticrun_core::lease::Lease;

use crate::{
    agent::Agent,
    connect::{Joined, Reached, Registration},
    error::PeerError,
    join::coordinator_port,
    link::DriverLink,
    redial::Dialled,
    socket::tune_control,
};

impl Agent {
    /// Handles the end of the connection.
    pub(crate) fn connection_ended(&mut self, error: &PeerError, out: &mut Vec<Command>) {
        tracing::warn!(%error, "the driver is lost");
        self.link = None;
        self.step(Event::DriverLost, out);
        self.dial_if_useful();
    }

    /// Dials for a driver if the workers can go on with one.
    pub(crate) fn dial_if_useful(&mut self) {
        if self.machine.may_return() {
            self.store.driver_away();
            self.redial.begin(self.driver);
        } else {
            self.redial.stop();
            self.store.driver_lost();
        }
    }

    /// Ends what waits for a driver, once the agent ends without one.
    pub(crate) fn give_up_driver_if_ending(&mut self) {
        let gives_up = self.link.is_none() && self.machine.is_ending();
        if gives_up && !std::mem::replace(&mut self.gave_up_driver, true) {
            self.redial.stop();
            self.store.driver_lost();
        }
    }

    pub(crate) fn on_dialled(&mut self, dialled: Dialled, out: &mut Vec<Command>) {
        match dialled {
            Dialled::Failed { refused } => self.step(Event::DialFailed { refused }, out),
            Dialled::Reached(reached) if self.link.is_none() || self.machine.misses_driver() => {
                self.on_reached(*reached, out);
            }
            Dialled::ReachedStandby(reached) if self.link.is_some() => {
                self.on_reached(*reached, out);
            }
            Dialled::Reached(_) | Dialled::ReachedStandby(_) => {}
            Dialled::Answered(joined) => self.on_answered(*joined, out),
            Dialled::Unanswered(error) => {
                tracing::debug!(%error, "the driver does not take this agent back yet");
                self.dial_if_useful();
            }
        }
    }

    /// Registers over a new connection. The old one is closed before.
    fn on_reached(&mut self, reached: Reached, out: &mut Vec<Command>) {
        if !self.machine.may_return() {
            return;
        }
        if self.link.take().is_some() {
            // Answers may have been lost with it.
            self.store.driver_away();
            self.step(Event::DriverLost, out);
        }
        let free_port = coordinator_port(&mut self.ports);
        self.machine.set_free_port(free_port);
        self.driver = reached.driver;
        let registration = Registration {
            address: self.address,
            memory_port: self.memory_port,
            free_port,
            keeps_run: None,
            adoption: Some(Box::new(self.machine.adoption(&self.memories))),
        };
        self.redial.register(reached, registration);
    }

    /// Goes on with a driver that has answered.
    fn on_answered(&mut self, joined: Joined, out: &mut Vec<Command>) {
        if !self.machine.obeys(&joined.setup.run_id, joined.epoch) {
            tracing::warn!(
                epoch = joined.epoch.0,
                "a driver that was replaced answers; it is not obeyed"
            );
            return self.dial_if_useful();
        }
        if !self.machine.may_return() {
            return;
        }
        let Joined {
            stream,
            frames,
            epoch,
            setup,
            ..
        } = joined;
        let peer_timeout = Lease::from_setup(&setup).peer_timeout(setup.keep_timeout);
        if let Err(error) = tune_control(stream.get_ref(), peer_timeout) {
            tracing::debug!(%error, "the connection to the driver is as it is");
        }
        if setup.adopted {
            tracing::info!(driver = %self.driver, "back at the driver, with all workers");
            self.link = Some(DriverLink::new(stream, frames));
            self.setup = setup.clone();
            self.store.driver_back(self.driver, setup.instance);
            self.output.driver_back(self.driver);
            if let Some(last_will) = &self.last_will {
                last_will.driver_back(self.driver);
            }
            self.redial.stop();
        } else {
            tracing::warn!("the driver goes on without the workers of this host: they end");
        }
        let setup = Box::new(setup);
        self.step(Event::DriverBack { epoch, setup }, out);
    }
}
