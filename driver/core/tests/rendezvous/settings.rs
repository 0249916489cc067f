//! Settings with the names, defaults and limits of PyTorch.

use std::time::Duration;

use elasticrun_core::rendezvous::{Settings, SettingsError, State};

#[test]
fn the_defaults_are_those_of_pytorch() {
    let defaults = Settings::new(3, 6).unwrap();
    let given = [
        ("join_timeout", "600"),
        ("last_call_timeout", "30"),
        ("close_timeout", "30"),
        ("heartbeat_timeout", "5"),
        ("keep_alive_interval", "5"),
        ("keep_alive_max_attempt", "3"),
        ("cas_backoff_max_seconds", "0.0"),
    ];
    for (key, value) in given {
        assert_eq!(
            defaults.clone().with(key, value),
            Ok(defaults.clone()),
            "{key}"
        );
        let other = defaults.clone().with(key, "7").unwrap();
        assert_ne!(other, defaults, "{key}");
    }
    assert_eq!(defaults.lease(), Duration::from_secs(15));
}

#[test]
fn the_minimum_is_positive_and_not_above_the_maximum() {
    assert!(Settings::new(3, 3).is_ok());
    for (min_nodes, max_nodes) in [(0, 3), (3, 2), (1, State::MAX_NODES + 1)] {
        let nodes = SettingsError::Nodes {
            min_nodes,
            max_nodes,
        };
        assert_eq!(Settings::new(min_nodes, max_nodes), Err(nodes));
    }
}

#[test]
fn a_wrong_pair_is_an_error_that_names_it() {
    let with = |key: &str, value: &str| Settings::new(1, 2).unwrap().with(key, value);
    for value in ["0", "-1", "soon", "", "inf", "NaN", "1e300"] {
        let error = with("join_timeout", value).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("join_timeout={value}: give a positive number")
        );
    }
    for value in ["0", "-1", "2.5"] {
        assert!(with("keep_alive_max_attempt", value).is_err(), "{value}");
    }
    assert!(with("cas_backoff_max_seconds", "0").is_ok());
    assert!(with("cas_backoff_max_seconds", "-0.1").is_err());
    let unknown = SettingsError::Key {
        key: "timeout".into(),
    };
    assert_eq!(with("timeout", "900"), Err(unknown));
}
