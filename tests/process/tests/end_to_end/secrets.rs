//! Traffic between driver and agents, recorded by a proxy.

use std::{
    fs,
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use elasticrun_process_tests::Job;

use crate::agents::{agent, port, wait};

/// A proxy on loopback that records all bytes in both directions.
struct Recorder {
    port: u16,
    passed: Arc<Mutex<Vec<u8>>>,
}

impl Recorder {
    /// A proxy to a port of this machine. Its threads end with the connections.
    fn before(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let recorder = Self {
            port: listener.local_addr().unwrap().port(),
            passed: Arc::default(),
        };
        let passed = Arc::clone(&recorder.passed);
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let Ok(far) = TcpStream::connect(("127.0.0.1", port)) else {
                    continue;
                };
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let passed = Arc::clone(&passed);
                    thread::spawn(move || pass(from, to, &passed));
                }
            }
        });
        recorder
    }

    fn count(&self) -> usize {
        self.passed.lock().unwrap().len()
    }

    fn saw(&self, text: &str) -> bool {
        let passed = self.passed.lock().unwrap();
        passed
            .windows(text.len())
            .any(|part| part == text.as_bytes())
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, passed: &Mutex<Vec<u8>>) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        passed.lock().unwrap().extend_from_slice(&bytes[..count]);
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

#[test]
fn only_variables_that_are_asked_for_are_sent_to_other_hosts() {
    let job = Job::new("-np 2 --min-np 1 --launcher agent --listen 127.0.0.1:0 --no-prefix")
        .before([
            "env",
            "AWS_SECRET_ACCESS_KEY=s3cr3t-of-the-user",
            "TRAINING_MODE=asked-for",
            "OMP_DISPLAY_ENV=listed",
        ])
        .flag(["--env", "TRAINING_MODE", "--env", "STEPS=seven"])
        .command([
            "sh",
            "-c",
            "echo mode=$TRAINING_MODE steps=$STEPS omp=$OMP_DISPLAY_ENV secret=$AWS_SECRET_ACCESS_KEY.",
        ]);
    let token = job.directory().join("token");
    let mut job = job
        .flag(["--join-token-file", &token.display().to_string()])
        .start();
    let recorder = Recorder::before(port(&mut job));
    let one = agent(recorder.port, &token, job.tag(), "one");
    assert_eq!(wait(one).0, 0);
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    assert!(
        ended
            .stderr
            .contains("are not sent to other hosts; --env NAME")
    );
    assert_eq!(
        ended.stdout,
        "mode=asked-for steps=seven omp=listed secret=.\n".repeat(2)
    );
    assert!(recorder.count() > 1000, "nothing was recorded");
    let token = fs::read_to_string(&token).unwrap();
    let secret = token.split('.').nth(2).unwrap();
    for private in ["s3cr3t-of-the-user", "asked-for", "seven", secret] {
        assert!(!recorder.saw(private), "{private} was sent in clear");
    }
}

#[test]
fn a_variable_that_is_not_set_is_refused_before_anything_starts() {
    let ended = Job::new("-np 1 --env NO_SUCH_VARIABLE_HERE")
        .command(["true"])
        .run();
    ended.expect(2, &["--env", "NO_SUCH_VARIABLE_HERE is not set here"]);
}
