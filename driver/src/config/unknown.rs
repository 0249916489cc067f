//! Variables that look like settings and are none.

use super::{layer::variable, nearest::nearest_setting, table::KEYS};

/// The beginning of all variables of elasticrun.
pub(crate) const PREFIX: &str = "ELASTICRUN_";

/// Variables that are no settings, without the prefix.
const OTHERS: [&str; 24] = [
    // What a worker gets from its agent.
    "AGENT_SOCKET",
    "GENERATION",
    "HOST",
    "LOCAL_RANK",
    "RUN_ID",
    // What a user may set.
    "AZURE_IMDS",
    "BIN",
    "CONFIG",
    "GCE_ENDPOINT",
    "PLUGIN_PATH",
    // Of the parameter server, beside those of ps-lite.
    "PS_HANDLER_TIMEOUT",
    "PS_KEY",
    "PS_REPLACE_TIMEOUT",
    "PS_REQUEST_TIMEOUT",
    "PS_SEND_BUFFER",
    "PS_SHARED_MEMORY",
    "PS_START_TIMEOUT",
    "PYTHON",
    // What the build and the tests of elasticrun read.
    "CLOUD_TARGET",
    "FUZZ_TARGET",
    "MUTANT",
    "SPARK_TEST",
    "TEST",
    "WHEEL",
];

/// A note for each variable that starts with [`PREFIX`] and that nothing reads. Of `names`, variables of others are ignored.
pub(crate) fn unknown_variables<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let unknown = |name: &&str| {
        name.strip_prefix(PREFIX)
            .is_some_and(|rest| !is_known(rest))
    };
    names.into_iter().filter(unknown).map(note).collect()
}

fn is_known(rest: &str) -> bool {
    OTHERS.contains(&rest)
        || rest.starts_with("TEST_")
        || KEYS
            .iter()
            .any(|key| variable(key.name).strip_prefix(PREFIX) == Some(rest))
}

fn note(name: &str) -> String {
    let key = name[PREFIX.len()..].replace('_', "-").to_ascii_lowercase();
    let shown: String = name.chars().take(80).filter(|c| !c.is_control()).collect();
    match nearest_setting(&key) {
        Some(setting) => {
            let meant = variable(setting);
            format!("{shown} is no setting; did you mean {meant}?")
        }
        None => format!("{shown} is no setting; all are listed by elasticrun config show"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_that_are_no_settings_are_named() {
        let names = [
            "ELASTICRUN_MINNP",
            "ELASTICRUN_NUM_PROC",
            "ELASTICRUN_COLOUR",
            "ELASTICRUN_min_np",
            "ELASTICRUN_",
        ];
        assert_eq!(
            unknown_variables(names),
            [
                "ELASTICRUN_MINNP is no setting; did you mean ELASTICRUN_MIN_NP?",
                "ELASTICRUN_NUM_PROC is no setting; did you mean ELASTICRUN_NP?",
                "ELASTICRUN_COLOUR is no setting; all are listed by elasticrun config show",
                "ELASTICRUN_min_np is no setting; did you mean ELASTICRUN_MIN_NP?",
                "ELASTICRUN_ is no setting; all are listed by elasticrun config show",
            ]
        );
    }

    #[test]
    fn other_variables_are_not_named() {
        let names = OTHERS.map(|name| format!("{PREFIX}{name}"));
        let settings = KEYS.iter().map(|key| variable(key.name));
        let all: Vec<_> = names
            .into_iter()
            .chain(settings)
            .chain([
                "ELASTICRUN_TEST_X".into(),
                "PATH".into(),
                "_ELASTICRUN_CALL".into(),
            ])
            .collect();
        assert_eq!(unknown_variables(all.iter().map(String::as_str)), [""; 0]);
    }

    /// The sources of programs name each variable that they read.
    #[test]
    fn each_variable_in_the_sources_is_known() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut found = std::collections::BTreeSet::new();
        let directories = ["driver/src", "worker", "discovery-plugins", "spark-bridge"];
        let mut pending: Vec<_> = directories.iter().map(|name| root.join(name)).collect();
        while let Some(path) = pending.pop() {
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if path.is_dir() {
                if !["tests", "target", "benches", "include"].contains(&&*name) {
                    let entries = std::fs::read_dir(&path).expect("a directory");
                    pending.extend(entries.map(|entry| entry.expect("an entry").path()));
                }
            } else if name.ends_with(".rs") || name.ends_with(".py") {
                let text = std::fs::read_to_string(&path).expect("UTF-8");
                // Not this file, which names wrong ones, and not constants of the C header.
                if name != "unknown.rs" {
                    found.extend(
                        variables(&text).filter(|name| !name.starts_with("ELASTICRUN_PLUGIN_")),
                    );
                }
            }
        }
        assert!(found.contains("ELASTICRUN_BIN"), "{found:?}");
        assert_eq!(unknown_variables(found.iter().map(String::as_str)), [""; 0]);
    }

    /// Names in quotes: of variables that a program reads or sets.
    fn variables(text: &str) -> impl Iterator<Item = String> + '_ {
        text.split('"').filter_map(|word| {
            let rest = word.strip_prefix(PREFIX)?;
            let plain = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
            (!rest.is_empty() && rest.chars().all(plain)).then(|| word.to_owned())
        })
    }
}
