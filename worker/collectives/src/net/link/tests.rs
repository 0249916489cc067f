//! Two links with a stranger between them, who sees and changes every byte.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, poll};

use super::*;
use crate::{
    error::Error,
    net::{
        frame::HEAD,
        protection::{Role, TAG},
    },
    signature::CallSignature,
};

const PATIENCE: Duration = Duration::from_secs(30);

/// A link, and the socket at the other end of its connection.
struct End {
    link: Link,
    wire: TcpStream,
}

impl End {
    fn new(role: Role, encrypt: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let wire = listener.accept().unwrap().0;
        wire.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nonblocking(true).unwrap();
        let session = Session::derive(&[1; 32], &[b"transcript"], encrypt, role);
        Self {
            link: Link::new(1, stream, session),
            wire,
        }
    }

    /// The bytes of a frame that this link sends.
    fn sends(&mut self, index: u32, payload: &[u8]) -> Vec<u8> {
        let sent = self.link.push(&head(index, payload.len()), payload);
        assert_eq!(sent.unwrap(), Progress::Done);
        self.receives(frame_len(payload.len()))
    }

    /// The next bytes that this link sent.
    fn receives(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.wire.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// Gives these bytes to the link.
    fn gets(&mut self, bytes: &[u8]) {
        self.wire.write_all(bytes).unwrap();
    }

    /// Waits for a frame.
    fn pulls(&mut self, index: u32, payload: &mut [u8]) -> Result<(), Fault> {
        let head = head(index, payload.len());
        while self.link.pull(&head, payload)? == Progress::Stuck {
            self.wait();
        }
        Ok(())
    }

    /// Waits until this many bytes have arrived.
    fn wait_for(&self, len: usize) {
        let mut bytes = vec![0; len];
        while self.link.stream.peek(&mut bytes).unwrap_or(0) < len {
            self.wait();
        }
    }

    fn wait(&self) {
        let mut fds = [PollFd::new(&self.link.stream, PollFlags::IN)];
        let timeout = PATIENCE.try_into().unwrap();
        assert_eq!(poll(&mut fds, Some(&timeout)), Ok(1), "nothing arrives");
    }
}

fn ends(encrypt: bool) -> (End, End) {
    (
        End::new(Role::Connector, encrypt),
        End::new(Role::Acceptor, encrypt),
    )
}

fn head(index: u32, payload: usize) -> Head {
    Head {
        call: CallSignature {
            code: 2,
            root: 0,
            len: 100,
            seq: 9,
        },
        index,
        payload: payload as u32,
        rank: 3,
    }
}

fn frame_len(payload: usize) -> usize {
    HEAD + payload + if payload == 0 { 0 } else { TAG }
}

#[track_caller]
fn assert_altered(found: Result<(), Fault>) {
    assert!(matches!(found, Err(Fault::Altered)), "{found:?}");
}

#[test]
fn frames_arrive_as_they_were_sent() {
    for encrypt in [false, true] {
        let (mut one, mut other) = ends(encrypt);
        // Shorter ones follow longer ones, too.
        for (index, len) in [0, 1, 15, 16, 17, 64, 1000, 70_000, 3, 0]
            .into_iter()
            .enumerate()
        {
            let payload: Vec<u8> = (0..len).map(|byte| byte as u8).collect();
            let bytes = one.sends(index as u32, &payload);
            let visible = len > 100 && bytes.windows(100).any(|part| part == &payload[..100]);
            assert_eq!(visible, len > 100 && !encrypt);
            other.gets(&bytes);
            let mut found = vec![0; len];
            other.pulls(index as u32, &mut found).unwrap();
            assert_eq!(found, payload);
        }
    }
}

#[test]
fn a_change_of_any_byte_of_a_frame_is_found() {
    for encrypt in [false, true] {
        for at in 0..frame_len(40) {
            let (mut one, mut other) = ends(encrypt);
            let mut bytes = one.sends(0, &[7; 40]);
            bytes[at] ^= 0x40;
            other.gets(&bytes);
            assert_altered(other.pulls(0, &mut [0; 40]));
        }
    }
}

#[test]
fn frames_that_change_places_are_found() {
    let (mut one, mut other) = ends(false);
    let first = one.sends(0, &[7; 40]);
    let second = one.sends(0, &[8; 40]);
    other.gets(&second);
    other.gets(&first);
    assert_altered(other.pulls(0, &mut [0; 40]));
    // Also payloads alone: both headers are the same, apart from their tags.
    let (mut one, mut other) = ends(false);
    let (first, second) = (one.sends(0, &[7; 40]), one.sends(0, &[8; 40]));
    other.gets(&first[..HEAD]);
    other.gets(&second[HEAD..]);
    assert_altered(other.pulls(0, &mut [0; 40]));
}

#[test]
fn a_repeated_frame_is_found() {
    for len in [0, 40] {
        let (mut one, mut other) = ends(false);
        let bytes = one.sends(0, &vec![7; len]);
        other.gets(&bytes);
        other.gets(&bytes);
        other.pulls(0, &mut vec![0; len]).unwrap();
        assert_altered(other.pulls(0, &mut vec![0; len]));
    }
}

#[test]
fn a_dropped_frame_is_found() {
    let (mut one, mut other) = ends(false);
    one.sends(0, &[7; 40]);
    let second = one.sends(0, &[8; 40]);
    other.gets(&second);
    assert_altered(other.pulls(0, &mut [0; 40]));
}

#[test]
fn a_frame_of_another_connection_and_the_echo_of_an_own_frame_are_found() {
    let (mut one, mut other) = ends(false);
    let own = other.sends(0, &[7; 40]);
    other.gets(&own);
    assert_altered(other.pulls(0, &mut [0; 40]));
    let mut next = End::new(Role::Acceptor, false);
    let session = Session::derive(&[1; 32], &[b"next"], false, Role::Acceptor);
    next.link.opener = session.opener;
    next.gets(&one.sends(0, &[7; 40]));
    assert_altered(next.pulls(0, &mut [0; 40]));
}

#[test]
fn bytes_of_a_stranger_between_two_frames_are_found() {
    let (mut one, mut other) = ends(false);
    other.gets(&one.sends(0, &[7; 40]));
    other.gets(&[0; HEAD]);
    other.gets(&one.sends(1, &[7; 40]));
    other.pulls(0, &mut [0; 40]).unwrap();
    assert_altered(other.pulls(1, &mut [0; 40]));
}

#[test]
fn a_frame_that_ends_early_is_no_frame() {
    for len in [
        0,
        1,
        HEAD - 1,
        HEAD,
        HEAD + 39,
        HEAD + 40,
        frame_len(40) - 1,
    ] {
        let (mut one, mut other) = ends(false);
        let bytes = one.sends(0, &[7; 40]);
        other.gets(&bytes[..len]);
        other.wire.shutdown(Shutdown::Write).unwrap();
        let found = other.pulls(0, &mut [0; 40]);
        assert!(
            matches!(&found, Err(Fault::Lost(why)) if why == "it closed the connection"),
            "{len}: {found:?}"
        );
    }
}

#[test]
fn a_forged_question_or_failure_is_not_believed() {
    let question = head(0, 0).encode_question();
    let failure =
        crate::net::frame::encode_failure(&Record::from_error(&Error::PeerLeft { rank: 1 }));
    for fields in [question, failure] {
        let mut forged = fields.to_vec();
        forged.extend_from_slice(&[0; TAG]);
        let (_, mut other) = ends(false);
        other.gets(&forged);
        other.wait_for(HEAD);
        let peeked = other.link.peek_question();
        assert!(matches!(peeked, Err(Fault::Altered)), "{peeked:?}");
        let closed = other.link.peer_closed("it closed the connection");
        assert!(matches!(closed, Fault::Altered), "{closed:?}");
        assert!(other.link.take_question().is_none());
    }
}

#[test]
fn questions_count_as_frames_wherever_they_are_read() {
    for encrypt in [false, true] {
        let (mut one, mut other) = ends(encrypt);
        let (question, payload) = (head(4, 0), [7; 200]);
        // The first is taken while nothing is expected, the others arrive together with a frame.
        one.link.ask(&question);
        let first = one.receives(HEAD);
        other.gets(&first);
        other.wait_for(HEAD);
        assert!(other.link.peek_question().unwrap());
        assert_eq!(other.link.take_question(), Some(question));
        let mut bytes = Vec::new();
        for _ in 0..2 {
            one.link.ask(&question);
            bytes.extend(one.receives(HEAD));
        }
        bytes.extend(one.sends(0, &payload));
        other.gets(&bytes);
        other.wait_for(bytes.len());
        let mut found = [0; 200];
        other.pulls(0, &mut found).unwrap();
        assert_eq!(found, payload);
        assert_eq!(other.link.take_question(), Some(question));
        // A look at a frame takes nothing of it.
        let bytes = one.sends(1, &payload);
        other.gets(&bytes);
        other.wait_for(bytes.len());
        for _ in 0..2 {
            assert!(!other.link.peek_question().unwrap());
        }
        other.pulls(1, &mut found).unwrap();
    }
}

#[test]
fn a_failure_in_the_middle_of_a_frame_reaches_the_neighbour() {
    for encrypt in [false, true] {
        for sent in [0, 10, HEAD, HEAD + 20, HEAD + 40, HEAD + 40 + 5] {
            let (mut one, mut other) = ends(encrypt);
            // The rest of the frame is in flight when the sender fails.
            let mut frame = one.link.seal(&head(0, 40), &[7; 40]);
            let start = {
                let payload = if encrypt {
                    &one.link.sealed[..]
                } else {
                    &[7; 40]
                };
                frame.rest(payload).concat()[..sent].to_vec()
            };
            frame.set_sent(sent);
            one.link.outgoing = Some(frame);
            let record = Record::from_error(&Error::PeerLeft { rank: 6 });
            other.gets(&start);
            one.wire.shutdown(Shutdown::Write).unwrap();
            one.link
                .close_with_failure(&record, Instant::now() + PATIENCE);
            let rest = one.receives(frame_len(40) - sent + HEAD);
            other.gets(&rest);
            let mut ended = other.pulls(0, &mut [0; 40]);
            if ended.is_ok() {
                assert!(sent >= HEAD + 40, "{sent}");
                ended = other.pulls(1, &mut [0; 40]);
            }
            assert!(
                matches!(&ended, Err(Fault::Failed(found)) if *found == record),
                "{encrypt} {sent}: {ended:?}"
            );
        }
    }
}

#[test]
fn nothing_but_a_failure_may_follow_a_cancelled_frame() {
    let (mut one, mut other) = ends(false);
    let mut bytes = one.link.seal(&head(0, 40), &[7; 40]);
    bytes.set_sent(0);
    one.link.outgoing = Some(bytes);
    let record = Record::from_error(&Error::PeerLeft { rank: 6 });
    let last = one.link.last_bytes(&record);
    other.gets(&last[..frame_len(40)]);
    // The sender would have to forge a frame of the same number. Here it is honest and does so.
    let session = Session::derive(&[1; 32], &[b"transcript"], false, Role::Connector);
    one.link.sealer = session.sealer;
    one.link.sealer.advance();
    let next = one.sends(0, &[7; 40]);
    other.gets(&next);
    let ended = other.pulls(0, &mut [0; 40]);
    assert!(matches!(ended, Err(Fault::Lost(_))), "{ended:?}");
}
