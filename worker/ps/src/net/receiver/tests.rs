use std::{
    io::Write,
    net::{TcpListener, TcpStream},
    thread,
};

use super::*;
use crate::core::{
    frame::{Kind, PUSH, REQUEST},
    node::NodeId,
};

#[test]
fn frames_of_any_size_come_whole() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut to = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut receiver = Receiver::new(Arc::new(listener.accept().unwrap().0.into()));
    let sizes = [1usize, 0, 3, 4000, 40_000, 7, 9_000_001, 0];
    let sending = thread::spawn(move || {
        for (index, &size) in sizes.iter().enumerate() {
            let header = Header {
                keys: size as u32 % 5,
                lens: size as u32 % 5,
                value_bytes: size as u64,
                timestamp: index as u64,
                ..Header::new(Kind::Data, REQUEST | PUSH, NodeId(9))
            };
            to.write_all(&header.encode()).unwrap();
            to.write_all(&vec![index as u8; header.payload() as usize])
                .unwrap();
        }
    });
    let mut scratch = Scratch::default();
    for (index, &size) in sizes.iter().enumerate() {
        let header = receiver.header().unwrap();
        assert_eq!(header.timestamp, index as u64);
        let index = index as u8;
        let payload = receiver.payload(&header, &mut scratch).unwrap();
        assert_eq!(payload.values.len(), size);
        assert!(payload.values.iter().all(|&byte| byte == index));
        assert!(
            payload
                .keys
                .iter()
                .all(|&key| key == u64::from_ne_bytes([index; 8]))
        );
        assert!(
            payload
                .lens
                .iter()
                .all(|&len| len == u32::from_ne_bytes([index; 4]))
        );
        assert_eq!(payload.lens.len(), size % 5);
    }
    sending.join().unwrap();
    assert!(matches!(receiver.header(), Err(ReceiveError::Io(_))));
}
