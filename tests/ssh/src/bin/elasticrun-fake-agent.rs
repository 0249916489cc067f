//! An agent of a release with a newer protocol: connects to the driver, sends its versions, and prints the answer.

#![forbid(unsafe_code)]

use std::{
    io::{Read, Write, stdin},
    net::TcpStream,
    process::ExitCode,
};

use elasticrun_agent::Launch;
use elasticrun_protocol::{
    auth::{self, Dialler, Purpose, Verdict},
    frame::{self, FrameBuffer},
};

fn main() -> ExitCode {
    let launch = Launch::read(&mut stdin().lock()).expect("a launcher started it");
    let mut stream = TcpStream::connect(&launch.driver[0]).expect("the driver listens");
    let dialler = Dialler::new(
        launch.secret,
        Purpose::Control,
        auth::nonce().expect("randomness"),
    );
    let mut hello = dialler.hello().clone();
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
            Ok(Some(Verdict::Welcome)) => panic!("a driver of this release welcomed protocol 98"),
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
