//! Exit codes of `elasticrun`, as documented constants.
//!
//! They are part of the contract and are never renumbered. Each has a section in `docs/errors.md`. The last line of stderr
//! states the same outcome in words.

/// The job succeeded: all members of its last round ended with 0.
pub const SUCCESS: u8 = 0;

/// A worker failed the job.
pub const WORKER_FAILED: u8 = 1;

/// Wrong usage or configuration. Nothing was started.
pub const USAGE: u8 = 2;

/// There were fewer than min-np workers for longer than the elastic timeout.
pub const TOO_FEW_WORKERS: u8 = 3;

/// The reset limit was reached.
pub const RESET_LIMIT: u8 = 4;

/// The first discovery of hosts failed for a permanent reason.
pub const DISCOVERY_FAILED: u8 = 5;

/// No worker survived and no committed state is left.
pub const STATE_LOST: u8 = 6;

/// `elasticrun resume` cannot continue the run: its journal cannot be read, another driver has it, or its address is taken.
pub const JOURNAL: u8 = 7;

/// Another driver continues the run, as the journal in etcd says. The agents belong to it.
pub const REPLACED: u8 = 9;

/// Of a driver below a supervisor, which does not show it: the run cannot be resumed now, for a reason that may be over soon.
pub const NOT_RESUMED: u8 = 75;

/// Of `task-service`: its driver was lost, or the process that it depends on has ended.
pub const TASK_ABANDONED: u8 = 8;

/// The codes that a user may see, with their meaning, for `--help` and the man page.
pub(crate) const DOCUMENTED: [(&str, &str); 10] = [
    ("0", "success"),
    ("1", "a worker failed the job"),
    ("2", "usage or configuration"),
    ("3", "too few workers in time"),
    ("4", "reset limit"),
    ("5", "first discovery failed"),
    ("6", "no committed state left"),
    ("7", "run cannot be resumed"),
    ("9", "another driver continues the run"),
    ("128+N", "stopped by signal N"),
];

/// The code of a job that a signal stopped: 128 + the number of the signal.
///
/// A number outside of 1..=127 is no signal and gives 255.
#[must_use]
pub fn stopped_by(signal: i32) -> u8 {
    u8::try_from(signal)
        .ok()
        .filter(|number| (1..=127).contains(number))
        .map_or(255, |number| 128 + number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_added_to_128() {
        assert_eq!(stopped_by(2), 130);
        assert_eq!(stopped_by(15), 143);
        assert_eq!(stopped_by(127), 255);
        assert_eq!(stopped_by(-1), 255);
        assert_eq!(stopped_by(500), 255);
    }
}
