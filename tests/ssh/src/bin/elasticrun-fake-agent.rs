//! An agent of a release with a newer protocol: connects to the driver, sends its versions, and prints the answer.

#![forbid(unsafe_code)]

use std::{
    io::{Read, Write, stdin},
    net::TcpStream,
    process::ExitCode,
};

use elasticrun_agent::Launch;
use elasticrun_protocol::{
    frame::{self, FrameBuffer},
    opening::{Hello, Purpose, Verdict},
};
use elasticrun_tls::{Blocking, ClientConfig, Role, Session};

fn main() -> ExitCode {
    let launch = Launch::read(&mut stdin().lock()).expect("a launcher started it");
    let stream = TcpStream::connect(&launch.driver[0]).expect("the driver listens");
    let config = ClientConfig::new(&launch.credentials.agent, Role::Driver).expect("keys");
    let session = Session::client(&config).expect("a session");
    let mut stream = Blocking::handshake(session, stream).expect("the driver of this job");
    let mut hello = Hello::new(Purpose::Control);
    (hello.min, hello.max, hello.software) = (98, 99, "9.9.9".into());
    stream
        .write_all(&frame::to_frame(&hello).expect("a small frame"))
        .expect("the driver reads");
    let mut frames = FrameBuffer::unproven();
    let mut bytes = [0; 1024];
    loop {
        match frames.next_message::<Verdict>() {
            Ok(Some(Verdict::Refused { why })) => {
                eprintln!("elasticrun: the driver refused: {why}");
                return ExitCode::FAILURE;
            }
            Ok(Some(Verdict::Welcome { .. })) => {
                panic!("a driver of this release welcomed protocol 98")
            }
            Ok(None) => {}
            Err(error) => panic!("{error}"),
        }
        let read = stream.read(&mut bytes).expect("the driver answers");
        assert!(
            read > 0,
            "the driver closes the connection without a reason"
        );
        frames.buffer().extend_from_slice(&bytes[..read]);
    }
}
