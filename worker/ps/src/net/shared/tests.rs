use std::os::{fd::AsFd, unix::net::UnixStream};

use proptest::prelude::*;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::*;
use crate::{
    core::{
        frame::{Kind, PUSH, REQUEST},
        node::NodeId,
    },
    net::{
        ReceiveError, Receiver, Scratch,
        outgoing::{Batch, Outgoing},
    },
};

fn pair() -> (Stream, Stream) {
    let (one, two) = UnixStream::pair().unwrap();
    (one.into(), two.into())
}

/// The sending half of one end, and the receiver of the other one.
fn connected(len: usize) -> (Stream, Writer, Receiver) {
    let (dialled, accepted) = pair();
    let (memory, fd) = SharedMemory::create(len).unwrap();
    memory.send(&fd, &dialled).unwrap().unwrap();
    let other = SharedMemory::receive(&accepted).unwrap().unwrap();
    let mut receiver = Receiver::new(Arc::new(accepted));
    receiver.share(other.halves(End::Accepted).1);
    (dialled, memory.halves(End::Dialled).0, receiver)
}

fn header(keys: usize, lens: usize, bytes: usize) -> Header {
    Header {
        keys: keys as u32,
        lens: lens as u32,
        value_bytes: bytes as u64,
        ..Header::new(Kind::Data, REQUEST | PUSH, NodeId(9))
    }
}

fn frame(number: usize, keys: usize, lens: usize, bytes: usize) -> (Header, Outgoing) {
    let header = Header {
        timestamp: number as u64,
        ..header(keys, lens, bytes)
    };
    let part = |len: usize, salt: usize| {
        Bytes::from(
            (0..len)
                .map(|at| (at + number + salt) as u8)
                .collect::<Vec<_>>(),
        )
    };
    let parts = [part(keys * 8, 1), part(lens * 4, 2), part(bytes, 3)];
    (header, Outgoing::new(&header, parts))
}

fn check(
    number: usize,
    receiver: &mut Receiver,
    scratch: &mut Scratch,
    expected: Header,
    skip: bool,
) {
    let header = receiver.header().unwrap();
    assert_eq!(header, expected);
    if skip {
        receiver.skip(header.payload()).unwrap();
    } else {
        let payload = receiver.payload(&header, scratch).unwrap();
        let right = |bytes: &[u8], salt: usize| {
            (bytes.iter().enumerate()).all(|(at, byte)| *byte == (at + number + salt) as u8)
        };
        assert!(right(bytemuck::cast_slice(payload.keys), 1));
        assert!(right(bytemuck::cast_slice(payload.lens), 2));
        assert!(right(payload.values, 3));
        assert_eq!(payload.values.len() as u64, header.value_bytes);
    }
    receiver.release();
}

#[test]
fn a_payload_goes_through_memory_and_its_place_is_used_again() {
    let (stream, mut writer, mut receiver) = connected(1 << 20);
    let mut scratch = Scratch::default();
    for number in 0..10 {
        let (expected, frame) = frame(number, 3, 3, 1_000_000);
        let mut batch = Batch::default();
        batch.push(frame);
        batch.share(&mut writer);
        // The socket has the header and the position.
        assert_eq!(batch.bytes, 88);
        assert!(batch.send(&stream).unwrap());
        check(number, &mut receiver, &mut scratch, expected, number == 5);
    }
}

#[test]
fn an_answer_is_read_into_its_destination_in_parts() {
    let (stream, mut writer, mut receiver) = connected(1 << 20);
    let (_, frame) = frame(7, 2, 1, 9000);
    let mut batch = Batch::default();
    batch.push(frame);
    batch.share(&mut writer);
    assert!(batch.send(&stream).unwrap());
    receiver.header().unwrap();
    let (mut first, mut second, mut third) = (vec![0; 18], vec![0; 1002], vec![0; 8000]);
    receiver.read(&mut [&mut first, &mut second]).unwrap();
    receiver.read(&mut [&mut third]).unwrap();
    let all = [first, second, third].concat();
    let parts = [(1, 16), (2, 4), (3, 9000)].into_iter();
    let expected: Vec<u8> = parts
        .flat_map(|(salt, len)| (0..len).map(move |at| (at + 7 + salt) as u8))
        .collect();
    assert!(all == expected);
    assert!(receiver.read(&mut [&mut [0]]).is_err());
}

#[test]
fn nothing_is_put_before_the_other_end_has_the_memory() {
    let (dialled, accepted) = pair();
    let (memory, fd) = SharedMemory::create(1 << 20).unwrap();
    let (mut writer, _) = Arc::clone(&memory).halves(End::Dialled);
    let parts = [Bytes::new(), Bytes::new(), Bytes::from(vec![1; 5000])];
    assert_eq!(writer.put(&parts), None);
    memory.send(&fd, &dialled).unwrap().unwrap();
    assert_eq!(writer.put(&parts), None);
    SharedMemory::receive(&accepted).unwrap().unwrap();
    assert_eq!(writer.put(&parts), Some(0));
}

#[test]
fn memory_that_could_end_this_process_is_refused() {
    let send = |fd: Option<&OwnedFd>, len: u64| {
        let (one, two) = pair();
        let fds: Vec<_> = fd.iter().map(|fd| fd.as_fd()).collect();
        fds::send_all(&one, &len.to_le_bytes(), &fds).unwrap();
        drop(one);
        SharedMemory::receive(&two).map(|mapped| mapped.is_ok())
    };
    let unsealed = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&unsealed, 3 * PAGE as u64).unwrap();
    assert!(!send(Some(&unsealed), PAGE as u64).unwrap());
    let sealed = memfd::create("test", 3 * PAGE as u64).unwrap();
    assert!(send(Some(&sealed), PAGE as u64).unwrap());
    assert!(!send(Some(&sealed), 2 * PAGE as u64).unwrap());
    assert!(send(Some(&sealed), u64::MAX).is_err());
    assert!(send(None, PAGE as u64).is_err());
    assert!(!send(None, 0).unwrap(), "its sender does without");
}

#[test]
fn a_position_outside_of_the_memory_ends_the_connection() {
    let (stream, _writer, mut receiver) = connected(PAGE);
    let (mut bytes, shared) = (
        header(1, 0, 4000).encode(),
        (0u64, 64, 128, 1, u64::MAX - 63),
    );
    crate::core::frame::mark_shared(&mut bytes);
    let mut send = |position: u64| {
        rustix::io::write(&stream, &[&bytes[..], &position.to_le_bytes()].concat()).unwrap();
        receiver.header()
    };
    assert!(send(shared.0).is_ok());
    for position in [shared.1, shared.2, shared.3, shared.4] {
        assert!(matches!(
            send(position),
            Err(ReceiveError::Frame(FrameError::OutOfMemory {
                bytes: 4008,
                ..
            }))
        ));
    }
    // Without memory, the mark is one of another release.
    let (one, two) = pair();
    rustix::io::write(&one, &[&bytes[..], &[0; 8]].concat()).unwrap();
    assert!(matches!(
        Receiver::new(Arc::new(two)).header(),
        Err(ReceiveError::Frame(FrameError::Unknown { flags: 19, .. }))
    ));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever fits where, all frames come whole and in order.
    #[test]
    fn frames_come_whole_whatever_there_is_room_for(
        len in 1usize..40_000,
        sizes in prop::collection::vec((0usize..600, 0usize..9, 0usize..12_000, 0usize..4, any::<bool>()), 1..60),
    ) {
        let (stream, mut writer, mut receiver) = connected(len);
        let mut scratch = Scratch::default();
        let mut waiting = std::collections::VecDeque::new();
        let mut batch = Batch::default();
        for (number, &(keys, lens, bytes, read, skip)) in sizes.iter().enumerate() {
            let (expected, frame) = frame(number, keys, lens, bytes);
            batch.push(frame);
            waiting.push_back((number, expected, skip));
            batch.share(&mut writer);
            if batch.send(&stream).unwrap() {
                for _ in 0..read {
                    if let Some((number, expected, skip)) = waiting.pop_front() {
                        check(number, &mut receiver, &mut scratch, expected, skip);
                    }
                }
            }
        }
        while let Some((number, expected, skip)) = waiting.pop_front() {
            // The receiver waits for bytes that the socket has not taken.
            while !batch.is_empty() && !receiver.has_frame() {
                let sent = batch.send(&stream).unwrap();
                if sent || !receiver.read_some().unwrap() { break; }
            }
            check(number, &mut receiver, &mut scratch, expected, skip);
        }
    }
}
