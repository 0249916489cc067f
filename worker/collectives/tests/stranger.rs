//! A stranger on the path between two hosts, who sees, changes and adds bytes; and peers of other
//! releases.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

#[path = "support/mod.rs"]
#[allow(dead_code, clippy::unwrap_used)]
mod support;

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use elasticrun_collectives::{Error, Group, Op};
use support::{Member, members};

/// Bytes that a connector sends before its first frame: its hello and its proof.
const OPENING: usize = 80 + 32;
/// Bytes of a header.
const HEAD: usize = 80;
/// The frame by which a connector of two hosts ends its connecting.
const LAYOUT: usize = HEAD + 8 + 16;
/// A text that no header and no tag contains.
const TEXT: &[u8] = b"bytes of a state that nobody else may read";

/// What the stranger does with the bytes from the connector, which come as a whole stream so far and
/// a new piece.
type Change = Box<dyn FnMut(&[u8], &mut Vec<u8>) + Send>;

/// All bytes that the stranger saw.
type Seen = Arc<Mutex<Vec<u8>>>;

/// Relays one connection to `target`.
fn stranger(target: SocketAddr, mut change: Change) -> (SocketAddr, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let seen = Seen::default();
    let all = Arc::clone(&seen);
    thread::spawn(move || {
        let connector = listener.accept().unwrap().0;
        let acceptor = TcpStream::connect(target).unwrap();
        let back = (
            acceptor.try_clone().unwrap(),
            connector.try_clone().unwrap(),
        );
        let also = Arc::clone(&all);
        thread::spawn(move || {
            relay(back.0, back.1, |piece| {
                also.lock().unwrap().extend_from_slice(piece);
            });
        });
        let mut stream = Vec::new();
        relay(connector, acceptor, |piece| {
            all.lock().unwrap().extend_from_slice(piece);
            change(&stream, piece);
            stream.extend_from_slice(piece);
        });
    });
    (address, seen)
}

fn relay(mut from: TcpStream, mut to: TcpStream, mut each: impl FnMut(&mut Vec<u8>)) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(received @ 1..) = from.read(&mut buffer) {
        let mut piece = buffer[..received].to_vec();
        each(&mut piece);
        if to.write_all(&piece).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}

/// Runs `body` on both members of a round of two hosts with a stranger between them.
fn between<R: Send>(
    encrypt: bool,
    change: Change,
    body: impl Fn(&mut Group) -> R + Sync,
) -> (Vec<R>, Vec<u8>) {
    let mut members = members(&[1, 1]);
    let (address, seen) = stranger(members[0].listener.local_addr().unwrap(), change);
    members[1].peers.insert(0, address);
    let results = thread::scope(|scope| {
        let start = |member: Member| {
            let body = &body;
            scope.spawn(move || body(&mut member.connect_with(encrypt).unwrap()))
        };
        let running: Vec<_> = members.into_iter().map(start).collect();
        let ended = running.into_iter().map(|member| member.join().unwrap());
        ended.collect()
    });
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    (results, seen)
}

fn nothing() -> Change {
    Box::new(|_, _| ())
}

fn contains(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|part| part == text)
}

/// Exchanges the text in small and large messages.
fn exchange(group: &mut Group) -> Result<(), Error> {
    let own: Vec<u8> = TEXT.repeat(10_000);
    for len in [TEXT.len(), own.len()] {
        let mut all = vec![0; 2 * len];
        group.allgather(&own[..len], &mut all)?;
        assert_eq!(all[..len], own[..len]);
        assert_eq!(all[len..], own[..len]);
    }
    Ok(())
}

#[test]
fn a_stranger_reads_what_is_not_encrypted_and_nothing_that_is() {
    for encrypt in [false, true] {
        let (results, seen) = between(encrypt, nothing(), exchange);
        assert_eq!(results, [Ok(()), Ok(())]);
        assert!(seen.len() > 2 * TEXT.len() * 10_000);
        assert_eq!(contains(&seen, TEXT), !encrypt);
    }
}

/// Exchanges the text until the round is over.
fn exchange_until_failure(group: &mut Group) -> Error {
    loop {
        if let Err(error) = exchange(group) {
            return error;
        }
    }
}

/// The acceptor blames the path to the connector, and both members fail.
fn assert_refused(errors: &[Error]) {
    match &errors[0] {
        Error::PeerLost {
            host_index: 1,
            reason,
        } => {
            assert!(reason.contains("wrong authentication tag"), "{reason}");
            assert!(reason.contains("127.0.0.1"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    assert!(
        matches!(&errors[1], Error::PeerLost { host_index: 0, .. }),
        "{:?}",
        errors[1]
    );
}

#[test]
fn a_byte_that_a_stranger_changes_ends_the_round_on_both_hosts() {
    for encrypt in [false, true] {
        // In the header, the payload and the tag of a small message; far within a large one.
        for at in [
            3,
            HEAD - 1,
            HEAD,
            HEAD + TEXT.len() - 1,
            HEAD + TEXT.len() + 3,
            300_000,
        ] {
            let at = OPENING + LAYOUT + at;
            let flip: Change = Box::new(move |before, piece| {
                if let Some(byte) = at
                    .checked_sub(before.len())
                    .and_then(|at| piece.get_mut(at))
                {
                    *byte ^= 4;
                }
            });
            assert_refused(&between(encrypt, flip, exchange_until_failure).0);
        }
    }
}

#[test]
fn bytes_that_a_stranger_adds_end_the_round_on_both_hosts() {
    let first = OPENING + LAYOUT;
    // A message again, and zeroes.
    for replay in [true, false] {
        let mut added = false;
        let inject: Change = Box::new(move |before, piece| {
            let end = first + HEAD + TEXT.len() + 16;
            let all = [before, piece].concat();
            if !added && all.len() >= end {
                let mut extra = all[first..end].to_vec();
                if !replay {
                    extra.fill(0);
                }
                let at = end.saturating_sub(before.len());
                piece.splice(at..at, extra);
                added = true;
            }
        });
        assert_refused(&between(false, inject, exchange_until_failure).0);
    }
}

#[test]
fn a_sum_that_a_stranger_changed_reaches_no_member() {
    let at = OPENING + LAYOUT + HEAD + 10;
    let flip: Change = Box::new(move |before, piece| {
        if let Some(byte) = at
            .checked_sub(before.len())
            .and_then(|at| piece.get_mut(at))
        {
            *byte ^= 0x40;
        }
    });
    let results = between(false, flip, |group| {
        let mut data = [1.0f32; 100];
        group.allreduce(&mut data, Op::Sum).map(|()| data.to_vec())
    })
    .0;
    assert!(results[0].is_err(), "{results:?}");
}

#[test]
fn members_that_disagree_on_encryption_form_no_round() {
    let mut pair = members(&[1, 1]);
    let (connector, acceptor) = (pair.pop().unwrap(), pair.pop().unwrap());
    thread::scope(|scope| {
        let acceptor = scope.spawn(|| acceptor.connect_for(Duration::from_secs(3), true));
        let error = connector.connect_with(false).unwrap_err();
        assert!(
            matches!(&error, Error::Config(why) if why.contains("another view")),
            "{error}"
        );
        assert!(acceptor.join().unwrap().is_err());
    });
}

#[test]
fn a_connector_of_another_release_is_refused_with_a_sentence() {
    let mut pair = members(&[1, 1]);
    let _absent = pair.pop().unwrap();
    let member = pair.pop().unwrap();
    // A hello of the first version.
    let mut hello = [0; 76];
    hello[..8].copy_from_slice(b"ERCOLL\0\x01");
    let mut older = TcpStream::connect(member.listener.local_addr().unwrap()).unwrap();
    older.write_all(&hello).unwrap();
    let error = member
        .connect_within(Duration::from_millis(200))
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("install the same release on all hosts"),
        "{error}"
    );
    // It got no answer.
    assert_eq!(older.read_to_end(&mut Vec::new()).unwrap_or(0), 0);
}

#[test]
fn an_acceptor_of_another_release_is_named() {
    let mut pair = members(&[1, 1]);
    let mut member = pair.pop().unwrap();
    let older = TcpListener::bind("127.0.0.1:0").unwrap();
    member.peers.insert(0, older.local_addr().unwrap());
    // It closes what it cannot read.
    thread::spawn(move || {
        for stream in older.incoming() {
            let mut hello = [0; 76];
            let _ = stream.unwrap().read_exact(&mut hello);
        }
    });
    let error = member
        .connect_within(Duration::from_millis(200))
        .unwrap_err();
    assert!(error.to_string().contains("same release"), "{error}");
}
