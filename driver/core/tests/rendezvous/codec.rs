//! The state as JSON: whole, bounded, and refused by a typed error if it is corrupt.

use elasticrun_core::rendezvous::{Action, NodeId, State, StateError};
use proptest::prelude::*;

use crate::states::{Made, node};

fn decoded(json: &str) -> Result<State, StateError> {
    State::decode(json.as_bytes())
}

#[test]
fn a_state_survives_its_encoding() {
    let forming = Made::new(1, 2).participants(&["one"]);
    let full = forming.clone().participants(&["two"]).redundant("three");
    let open = full.clone().apply("two", Action::RemoveFromParticipants);
    let waited = open.clone().waiting("three");
    for made in [forming, full, open, waited.clone(), waited.closed()] {
        assert_eq!(State::decode(&made.state.encode()), Ok(made.state));
    }
    assert_eq!(
        State::decode(&State::default().encode()),
        Ok(State::default())
    );
}

#[test]
fn the_encoding_is_the_documented_one() {
    let made = Made::new(1, 1)
        .participants(&["host-7_4711_0"])
        .redundant("host-8_815_0");
    let json = String::from_utf8(made.state.encode()).unwrap();
    let expected = r#"{"version":2,"round":0,"phase":{"complete":{"world_size":1}},"closed":false,"last_calls":0,"arrivals":2,"members":{"host-7_4711_0":{"role":"participant","rank":0,"arrival":0},"host-8_815_0":{"role":"redundant","arrival":1}}}"#;
    assert_eq!(json, expected);
}

#[test]
fn a_corrupt_state_is_a_typed_error() {
    let made = Made::new(1, 2).participants(&["a", "b"]);
    let json = String::from_utf8(made.state.encode()).unwrap();
    let with = |from: &str, to: &str| {
        assert!(json.contains(from), "{json}");
        decoded(&json.replace(from, to))
    };
    assert!(matches!(
        decoded("corrupt_state"),
        Err(StateError::Malformed { line: 1, .. })
    ));
    assert!(matches!(decoded(""), Err(StateError::Malformed { .. })));
    assert!(matches!(
        with(r#""closed":false,"#, ""),
        Err(StateError::Malformed { .. })
    ));
    assert_eq!(
        with(r#""version":2"#, r#""version":3"#),
        Err(StateError::Version { version: 3 })
    );
    let rank = StateError::Rank { node: node("b") };
    assert_eq!(
        with(r#""rank":1"#, r#""rank":0"#),
        Err(rank.clone()),
        "twice"
    );
    assert_eq!(
        with(r#""rank":1"#, r#""rank":2"#),
        Err(rank.clone()),
        "not below the world size"
    );
    assert_eq!(with(r#""rank":1,"#, ""), Err(rank), "missing");
    let arrival = StateError::Arrival { node: node("b") };
    assert_eq!(
        with(r#""arrival":1"#, r#""arrival":0"#),
        Err(arrival.clone()),
        "twice"
    );
    assert_eq!(
        with(r#""arrival":1"#, r#""arrival":2"#),
        Err(arrival),
        "not given yet"
    );
    let forming = r#""forming":{"last_call":null}"#;
    let early = StateError::Rank { node: node("a") };
    assert_eq!(
        with(r#""complete":{"world_size":2}"#, forming),
        Err(early),
        "not due"
    );
    let empty = r#"{"version":2,"round":0,"phase":{"complete":{"world_size":2}},"closed":false,"last_calls":0,"arrivals":0,"members":{}}"#;
    assert_eq!(decoded(empty), Err(StateError::NoParticipants));
    let call = r#"{"version":2,"round":0,"phase":{"forming":{"last_call":1}},"closed":false,"last_calls":0,"arrivals":0,"members":{}}"#;
    assert_eq!(decoded(call), Err(StateError::LastCall));
}

#[test]
fn a_state_that_is_too_large_is_refused() {
    let bytes = State::MAX_BYTES + 1;
    assert_eq!(
        State::decode(&vec![b' '; bytes]),
        Err(StateError::TooLong { bytes })
    );
    for invalid in ["", "tab\t", &"x".repeat(NodeId::MAX_BYTES + 1)] {
        assert!(NodeId::new(invalid).is_err());
    }
}

/// The sizes that PyTorch's test allows: 160 bytes a node.
#[test]
fn encoded_size_is_within_expected_limit() {
    for (nodes, limit) in [
        (5, 2 << 10),
        (50, 16 << 10),
        (500, 160 << 10),
        (5000, 1600 << 10),
    ] {
        let member = |index: usize| {
            let kind = 1 + index / nodes;
            let domain = format!("dummy{kind}-dummy{kind}-dummy{kind}-dummy{kind}.com");
            let role = match kind {
                1 => format!(r#""role":"participant","rank":{index}"#),
                _ => r#""role":"redundant""#.to_owned(),
            };
            format!(r#""dummy{index}.{domain}_12345_{index}":{{{role},"arrival":{index}}}"#)
        };
        let members: Vec<_> = (0..2 * nodes).map(member).collect();
        let (members, arrivals) = (members.join(","), 2 * nodes);
        let state = decoded(&format!(
            r#"{{"version":2,"round":1,"phase":{{"complete":{{"world_size":{nodes}}}}},"closed":true,"last_calls":9,"arrivals":{arrivals},"members":{{{members}}}}}"#
        ));
        let state = state.unwrap();
        let bytes = state.encode().len();
        assert!(
            bytes <= limit,
            "{nodes} nodes and as many redundant ones: {bytes} bytes"
        );
    }
}

/// The largest state is read again.
#[test]
fn the_largest_state_is_within_the_bound() {
    let name = |index: usize| format!("{index:0>width$}", width = NodeId::MAX_BYTES);
    let member = r#":{"role":"participant","rank":4294967295,"arrival":18446744073709551615},"#;
    let bytes = State::MAX_NODES * (name(0).len() + 2 + member.len()) + 1024;
    assert!(bytes <= State::MAX_BYTES, "{bytes}");
}

proptest! {
    #[test]
    fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = State::decode(&bytes);
    }

    #[test]
    fn a_changed_byte_is_refused_or_gives_a_state_that_survives(
        index in any::<proptest::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let made = Made::new(1, 2).participants(&["one", "two"]).redundant("three");
        let mut bytes = made.state.encode();
        *index.get_mut(&mut bytes) = byte;
        if let Ok(state) = State::decode(&bytes) {
            prop_assert_eq!(State::decode(&state.encode()), Ok(state));
        }
    }
}
