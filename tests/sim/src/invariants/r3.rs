//! R3: no event of an older round, driver epoch or generation changes anything, and a repeat changes nothing. In a
//! calm run the job refuses no event either.

use elasticrun_core::{Command, Decision, Rejected, agent};
use elasticrun_protocol::AgentReport;

use crate::world::World;

#[derive(Debug, Default)]
pub(super) struct Memory {
    /// A round was aborted, possibly while it formed.
    aborted: bool,
}

/// An event that was late or repeated has been applied.
pub(crate) fn unchanged(world: &mut World, before: &str, after: &str, what: &str, why: &str) {
    if before != after {
        let from = before
            .bytes()
            .zip(after.bytes())
            .take_while(|(a, b)| a == b)
            .count();
        let from = from.saturating_sub(60);
        let clip = |text: &str| {
            text.get(from..(from + 200).min(text.len()))
                .unwrap_or("")
                .to_owned()
        };
        let (before, after) = (clip(before), clip(after));
        let what = format!(
            "{why}, and it changed the job: {what}\n  before ..{before}\n  after  ..{after}"
        );
        world.violate("R3", what);
    }
}

pub(super) fn on_command(world: &mut World, command: &Command) {
    if matches!(command, Command::Announce(Decision::RoundAborted { .. })) {
        world.invariants.r3.aborted = true;
    }
    let refused = matches!(command, Command::Reject { .. });
    if let Some(why) = world.driver.inert.filter(|_| !refused) {
        let what = format!("{why}, and the job commands {command:?}");
        world.violate("R3", what);
    }
    // The job refuses an answer to a plan that was just aborted, and a count after the first member has finished.
    let aborted = world.invariants.r3.aborted || world.invariants.r10.finishing;
    let unknown = matches!(
        command,
        Command::Reject {
            // The job also refuses probe answers about a round that was left meanwhile.
            why: Rejected::UnknownHost | Rejected::StaleProbe(_),
            ..
        }
    );
    if refused && !unknown && world.plan.calm && world.driver.inert.is_none() && !aborted {
        let what = format!("nothing goes wrong and the job refuses: {command:?}");
        world.violate("R3", what);
    }
}

/// An agent received the same order again, perhaps much later.
pub(crate) fn order_repeated(
    world: &mut World,
    host: usize,
    what: &str,
    commands: &[agent::Command],
) {
    for command in commands {
        // A repeated count is harmless: the job has the first answer and refuses the second.
        if !matches!(
            command,
            agent::Command::AgentReport(AgentReport::BoundaryCounted { .. })
        ) {
            let what = format!("h{host} hears {what} again and does {command:?}");
            return world.violate("R3", what);
        }
    }
}
