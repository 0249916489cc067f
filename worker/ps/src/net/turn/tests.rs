use std::{
    io::Write,
    os::unix::net::UnixStream,
    sync::{
        Arc,
        mpsc::{RecvTimeoutError, channel},
    },
    thread,
    time::Duration,
};

use super::*;
use crate::core::{
    frame::{Header, Kind, REQUEST},
    node::NodeId,
};

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(50);

fn frame(timestamp: u64) -> Vec<u8> {
    let header = Header {
        timestamp,
        ..Header::new(Kind::Data, REQUEST, NodeId(9))
    };
    header.encode().to_vec()
}

/// A receiving thread that tells which frames it has read.
fn receiving(turns: &Arc<Turns>) -> std::sync::mpsc::Receiver<u64> {
    let (send, received) = channel();
    let turns = Arc::clone(turns);
    thread::spawn(move || {
        loop {
            let mut turn = turns.wait().unwrap();
            while turn.receiver.has_frame() || turn.receiver.read_some().unwrap() {
                if turn.receiver.has_frame()
                    && send
                        .send(turn.receiver.header().unwrap().timestamp)
                        .is_err()
                {
                    return;
                }
            }
        }
    });
    received
}

fn pair() -> (UnixStream, Arc<Turns>) {
    let (to, from) = UnixStream::pair().unwrap();
    (
        to,
        Arc::new(Turns::new(&Arc::new(from.into()), true).unwrap()),
    )
}

#[test]
fn what_a_turn_leaves_in_the_buffer_is_announced() {
    let (mut to, turns) = pair();
    let mut turn = turns.take().unwrap();
    let received = receiving(&turns);
    to.write_all(&[frame(1), frame(2)].concat()).unwrap();
    while !turn.receiver.read_some().unwrap() {}
    assert_eq!(turn.receiver.header().unwrap().timestamp, 1);
    assert_eq!(received.recv_timeout(SHORT), Err(RecvTimeoutError::Timeout));
    drop(turn);
    // No byte comes any more.
    assert_eq!(received.recv_timeout(LONG), Ok(2));
}

#[test]
fn what_comes_after_a_turn_wakes_the_receiving_thread() {
    let (mut to, turns) = pair();
    let received = receiving(&turns);
    for round in 0..100 {
        let turn = loop {
            if let Some(turn) = turns.take() {
                break turn;
            }
        };
        to.write_all(&frame(round)).unwrap();
        assert!(turns.take().is_none());
        drop(turn);
        assert_eq!(received.recv_timeout(LONG), Ok(round));
    }
}

#[test]
fn the_end_of_a_connection_is_announced_after_a_turn() {
    let (to, turns) = pair();
    let turn = turns.take().unwrap();
    drop(to);
    drop(turn);
    let mut turn = turns.wait().unwrap();
    assert!(turn.receiver.read_some().is_err());
}

#[test]
fn a_thread_that_takes_turns_loses_no_frame() {
    let (mut to, turns) = pair();
    let received = receiving(&turns);
    let count = 20_000;
    let writer = thread::spawn(move || {
        for index in 0..count {
            to.write_all(&frame(index)).unwrap();
        }
        to
    });
    let mut seen = Vec::new();
    while seen.len() < count as usize {
        // It reads a frame, and leaves the others that it has read.
        if let Some(mut turn) = turns.take()
            && turn.receiver.read_some().unwrap()
            && turn.receiver.has_frame()
        {
            seen.push(turn.receiver.header().unwrap().timestamp);
        }
        seen.extend(received.try_iter());
        if writer.is_finished() {
            while seen.len() < count as usize {
                seen.push(received.recv_timeout(LONG).unwrap());
            }
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..count).collect::<Vec<_>>());
    drop(writer.join().unwrap());
}
