//! Options of torchrun that are no options of elasticrun. Refusals name their origin instead of an option that looks similar.

/// As torchrun documents them, with `-` between words.
const OPTIONS: [&str; 24] = [
    "nnodes",
    "nproc-per-node",
    "rdzv-backend",
    "rdzv-endpoint",
    "rdzv-id",
    "rdzv-conf",
    "standalone",
    "monitor-interval",
    "start-method",
    "event-log-handler",
    "role",
    "module",
    "no-python",
    "run-path",
    "log-dir",
    "redirects",
    "tee",
    "local-ranks-filter",
    "node-rank",
    "master-addr",
    "master-port",
    "local-addr",
    "logs-specs",
    "numa-binding",
];

/// Whether torchrun has this option. It takes `-` and `_` between words.
pub(super) fn is_option(flag: &str) -> bool {
    let name = flag
        .strip_prefix("--")
        .unwrap_or_default()
        .replace('_', "-");
    OPTIONS.contains(&name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::KEYS;

    #[test]
    fn options_of_torchrun_are_known_and_are_no_settings() {
        assert!(is_option("--nproc_per_node") && is_option("--rdzv-backend"));
        assert!(!is_option("--max-restarts") && !is_option("-m") && !is_option("nnodes"));
        for key in KEYS {
            assert!(!OPTIONS.contains(&key.name), "{}", key.name);
        }
    }
}
