//! The standby drivers of a run, of which its agents are told.
//!
//! Each heartbeat names them. Agents learn of a change at once, by a heartbeat that answers none of theirs.

use elasticrun_protocol::AgentCommand;

use crate::journal::Notice;

/// The addresses of drivers that would continue the run.
#[derive(Debug, Default)]
pub(crate) struct Standbys {
    addresses: Vec<String>,
    /// Agents are being told of a change.
    is_new: bool,
    /// The user wants one of them to continue the run.
    is_wanted: bool,
}

impl Standbys {
    /// Takes a change, and gives the command that tells agents of it.
    pub(crate) fn changed(&mut self, addresses: Vec<String>) -> AgentCommand {
        self.addresses.clone_from(&addresses);
        self.is_new = true;
        // It answers no heartbeat, and renews no lease.
        AgentCommand::Heartbeat {
            acked_count: 0,
            lease: None,
            applied: 0,
            standbys: addresses,
            job_code: None,
        }
    }

    /// The command that tells agents how their job has ended.
    pub(crate) fn ended(&self, job_code: u8) -> AgentCommand {
        // It answers no heartbeat, and renews no lease.
        AgentCommand::Heartbeat {
            acked_count: 0,
            lease: None,
            applied: 0,
            standbys: self.addresses.clone(),
            job_code: Some(job_code),
        }
    }

    /// Lets one of them continue the run. Returns whether one is known.
    pub(crate) fn hand_over(&mut self) -> bool {
        self.is_wanted = true;
        !self.addresses.is_empty()
    }

    /// Whether the driver hands the run over now: the user wants it, and agents know where they find the next driver.
    pub(crate) fn take_over(&self) -> bool {
        self.is_wanted && !self.is_new && !self.addresses.is_empty()
    }

    /// Completes a heartbeat.
    pub(crate) fn name_in(&self, command: &mut AgentCommand) {
        if let AgentCommand::Heartbeat { standbys, .. } = command {
            standbys.clone_from(&self.addresses);
        }
    }

    /// A change of which all agents were told, for the user. Call this at each heartbeat: by the next one the connections have
    /// sent the command, so a driver that is killed after the line has told its agents.
    pub(crate) fn told(&mut self) -> Option<Notice> {
        std::mem::take(&mut self.is_new).then(|| Notice::Standbys(self.addresses.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(command: &AgentCommand) -> &[String] {
        match command {
            AgentCommand::Heartbeat { standbys, .. } => standbys,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_run_is_handed_over_once_agents_know_to_whom() {
        let mut standbys = Standbys::default();
        assert!(!standbys.hand_over() && !standbys.take_over());
        standbys.changed(vec!["a:1".to_owned()]);
        assert!(!standbys.take_over(), "agents are being told");
        standbys.told();
        assert!(standbys.take_over());
        standbys.changed(Vec::new());
        standbys.told();
        assert!(!standbys.take_over(), "it is gone");
        let mut standbys = Standbys::default();
        standbys.changed(vec!["a:1".to_owned()]);
        standbys.told();
        assert!(!standbys.take_over() && standbys.hand_over() && standbys.take_over());
    }

    #[test]
    fn each_heartbeat_names_them_and_the_user_learns_of_a_change_once() {
        let mut standbys = Standbys::default();
        assert_eq!(standbys.told(), None);
        let addresses = vec!["a:1".to_owned()];
        assert_eq!(named(&standbys.changed(addresses.clone())), addresses);
        assert_eq!(standbys.told(), Some(Notice::Standbys(addresses.clone())));
        assert_eq!(standbys.told(), None);
        let mut beat = Standbys::default().changed(Vec::new());
        standbys.name_in(&mut beat);
        assert_eq!(named(&beat), addresses);
    }
}
