//! Properties of the readers of plugins' answers for any input: for the fuzzer, and for a test of some thousand inputs in
//! the test suite.

#[cfg(test)]
mod tests;

use elasticrun_hosts::list::parse_lines;
use elasticrun_plugin_sdk::{Host, PluginError, Snapshot};

use crate::{
    Allowed, Failure, Manifest, Spec,
    failure::MAX_MESSAGE,
    frames,
    library::{manifest, snapshot},
    process::{PluginMessage, message, parse},
};

/// Checks an input of the fuzzer: the first byte selects the reader, the second one the code or the size of parts. Gives the
/// number of successful reads.
///
/// # Panics
/// As the other functions of this module.
pub fn check_input(input: &[u8]) -> usize {
    let [kind, number, rest @ ..] = input else {
        return 0;
    };
    match kind % 4 {
        0 => check_answer(i32::from(*number), rest),
        1 => check_stream(usize::from(*number), rest),
        2 => check_script(rest),
        _ => str::from_utf8(rest).map_or(0, check_spec),
    }
}

/// Reads bytes as each answer of a plugin library: a snapshot, a manifest, and the error of a call. Gives the number of
/// valid snapshots and manifests.
///
/// # Panics
/// If a valid answer prints to something else than it is, or if a message is not one line of limited length.
pub fn check_answer(number: i32, bytes: &[u8]) -> usize {
    let mut valid = 0;
    match snapshot(bytes) {
        Ok(found) => {
            check_snapshot(&found);
            valid += 1;
        }
        Err(error) => check_failure(&error.into()),
    }
    match manifest(bytes) {
        Ok(found) => {
            let json = serde_json::to_vec(&found).expect("a manifest is always JSON");
            assert_eq!(manifest(&json).as_ref(), Ok(&found));
            valid += 1;
        }
        Err(error) => check_line(&error.to_string()),
    }
    check_failure(&PluginError::from_answer(number, bytes).into());
    valid
}

/// Reads a stream of a plugin process in parts of `cut` bytes. Gives the number of messages.
///
/// # Panics
/// If a frame prints to something else than it is, or if a message is not one line of limited length.
pub fn check_stream(cut: usize, stream: &[u8]) -> usize {
    let (mut bytes, mut messages) = (Vec::new(), 0);
    for part in stream.chunks(cut.max(1)) {
        bytes.extend_from_slice(part);
        loop {
            match frames::take(&mut bytes) {
                Ok(Some(body)) => messages += usize::from(check_frame(&body)),
                Ok(None) => break,
                Err(error) => {
                    check_line(&error.to_string());
                    return messages;
                }
            }
        }
    }
    messages
}

/// Whether the body is a message for the caller.
fn check_frame(body: &[u8]) -> bool {
    let frame = match parse(body) {
        Ok(frame) => frame,
        Err(why) => {
            check_line(&why);
            return false;
        }
    };
    let printed = serde_json::to_string(&frame).expect("a frame is always JSON");
    let again = parse(printed.as_bytes()).expect("a frame can be read");
    let again = serde_json::to_string(&again).expect("a frame is always JSON");
    assert_eq!(again, printed);
    match message(frame) {
        Some(PluginMessage::Answer(_, Ok(Some(found)))) => check_snapshot(&found),
        Some(PluginMessage::Answer(_, Err(failure))) => check_failure(&failure),
        Some(PluginMessage::Hello(hello)) => check_manifest(&hello.manifest),
        Some(_) => {}
        None => return false,
    }
    true
}

/// Reads bytes as the output of a discovery script. What is accepted is a valid snapshot. Gives the number of hosts.
///
/// # Panics
/// If it is none.
pub fn check_script(output: &[u8]) -> usize {
    let Ok(hosts) = parse_lines(output) else {
        return 0;
    };
    let found = Snapshot::new(hosts.into_iter().map(Host::from).collect());
    check_snapshot(&found);
    found.hosts.len()
}

/// Reads a text as the value of `--discovery` and of `--plugin-allow`. Gives the number of successful reads.
///
/// # Panics
/// If a value prints to something else than it is, or if an error is not one line of limited length.
pub fn check_spec(text: &str) -> usize {
    let mut valid = 0;
    match text.parse::<Spec>() {
        Ok(spec) => {
            assert_eq!(spec.to_string().parse::<Spec>().as_ref(), Ok(&spec));
            valid += 1;
        }
        Err(error) => check_line(&error.to_string()),
    }
    if let Ok(allowed) = text.parse::<Allowed>() {
        assert_eq!(
            allowed.to_string().parse::<Allowed>().as_ref(),
            Ok(&allowed)
        );
        valid += 1;
    }
    valid
}

fn check_snapshot(found: &Snapshot) {
    let json = serde_json::to_vec(found).expect("a snapshot is always JSON");
    assert_eq!(snapshot(&json).as_ref(), Ok(found));
}

fn check_manifest(found: &Manifest) {
    let json = serde_json::to_vec(found).expect("a manifest is always JSON");
    assert_eq!(manifest(&json).as_ref(), Ok(found));
}

fn check_failure(failure: &Failure) {
    check_line(&failure.message);
}

fn check_line(line: &str) {
    assert!(
        line.chars().count() <= MAX_MESSAGE + 100 && !line.contains(char::is_control),
        "{line:?}"
    );
}
