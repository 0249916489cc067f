//! Properties of the parsers for any input: for the fuzzer, and for a test of some thousand inputs in the test suite.

#[cfg(test)]
mod tests;

use crate::{
    hostlist::{MAX_NAME, MAX_NAMES, expand},
    slots,
};

/// Checks an input of the fuzzer if it is for this crate: the first byte selects it. Gives the number of names.
///
/// # Panics
/// As [`check`].
pub fn check_input(input: &[u8]) -> Option<usize> {
    let (kind, rest) = input.split_first()?;
    let text = str::from_utf8(rest).ok()?;
    (kind % 4 >= 2).then(|| check(text))
}

/// Expands a text as a host list, and reads it as Slurm's variables of tasks and GPUs. Gives the number of names.
///
/// # Panics
/// If the names are not plain, too long or too many, if their list expands to other names, or if an error is not one short
/// line.
pub fn check(text: &str) -> usize {
    for nodes in [0, 1, 3] {
        for name in [
            "SLURM_TASKS_PER_NODE",
            "SLURM_GPUS_PER_NODE",
            "SLURM_GPUS_ON_NODE",
        ] {
            let env = |asked: &str| match asked {
                "SLURM_NTASKS" => Some("1".to_owned()),
                asked => (asked == name).then(|| text.to_owned()),
            };
            assert_eq!(slots::slots(&env, nodes).len(), nodes);
        }
    }
    match expand(text) {
        Ok(names) => {
            assert!(names.len() <= MAX_NAMES);
            for name in &names {
                assert!((1..=MAX_NAME).contains(&name.len()), "{name}");
                assert!(!name.contains(['[', ']', ',']), "{name}");
            }
            assert_eq!(expand(&names.join(",")).as_ref(), Ok(&names));
            names.len()
        }
        Err(error) => {
            let line = error.to_string();
            assert!(
                line.len() < 1500 && !line.contains(char::is_control),
                "{line:?}"
            );
            0
        }
    }
}
