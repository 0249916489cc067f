//! Traffic between driver and agents, recorded by a proxy.

use std::{
    fs,
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use elasticrun_process_tests::{
    Job,
    agents::{agent, port, wait},
};

/// A proxy on loopback that records all bytes in both directions.
struct Recorder {
    port: u16,
    passed: Arc<Mutex<Vec<u8>>>,
    /// What the dialler of each connection has sent.
    sent: Arc<Mutex<Vec<Recorded>>>,
}

type Recorded = Arc<Mutex<Vec<u8>>>;

impl Recorder {
    /// A proxy to a port of this machine. Its threads end with the connections.
    fn before(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let recorder = Self {
            port: listener.local_addr().unwrap().port(),
            passed: Arc::default(),
            sent: Arc::default(),
        };
        let (passed, connections) = (recorder.passed.clone(), recorder.sent.clone());
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let Ok(far) = TcpStream::connect(("127.0.0.1", port)) else {
                    continue;
                };
                let sent = Recorded::default();
                connections.lock().unwrap().push(sent.clone());
                let (up, down) = (vec![sent, passed.clone()], vec![passed.clone()]);
                for (from, to, records) in [(&near, &far, up), (&far, &near, down)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    thread::spawn(move || pass(from, to, &records));
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

fn pass(mut from: TcpStream, mut to: TcpStream, records: &[Recorded]) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        for record in records {
            record.lock().unwrap().extend_from_slice(&bytes[..count]);
        }
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
    for private in ["s3cr3t-of-the-user", "asked-for", "seven", "mode=", secret] {
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

#[test]
fn neither_the_store_nor_the_messages_of_a_job_are_sent_in_clear() {
    let job = Job::new("-np 2 --min-np 1 --launcher agent --listen 127.0.0.1:0")
        .plan(|plan| plan.store = true);
    let token = job.directory().join("token");
    let mut job = job
        .flag(["--join-token-file", &token.display().to_string()])
        .start();
    let recorder = Recorder::before(port(&mut job));
    let one = agent(recorder.port, &token, job.tag(), "one");
    job.wait_training(2, 20);
    job.finish();
    assert_eq!(wait(one).0, 0);
    job.end().expect(0, &["succeeded"]);
    assert!(recorder.count() > 10_000, "nothing was recorded");
    let private = [
        "noted",
        "pid/0",
        "step/1",
        "rounds",
        "elasticrun",
        "heartbeat_interval",
    ];
    for private in private {
        assert!(!recorder.saw(private), "{private} was sent in clear");
    }
}

/// All that a host sends to enrol and to join, sent again by somebody who has recorded it.
#[test]
fn a_recorded_enrolment_is_worth_nothing_when_it_is_sent_again() {
    let job = Job::new("-np 2 --min-np 1 --launcher agent --listen 127.0.0.1:0");
    let token = job.directory().join("token");
    let mut job = job
        .flag(["--join-token-file", &token.display().to_string()])
        .start();
    let driver = port(&mut job);
    let recorder = Recorder::before(driver);
    let one = agent(recorder.port, &token, job.tag(), "one");
    job.wait_training(2, 3);
    let sent = recorder.sent.lock().unwrap().clone();
    assert!(sent.len() >= 3, "enrolment, control and output");
    for connection in sent {
        let bytes = connection.lock().unwrap().clone();
        let mut again = TcpStream::connect(("127.0.0.1", driver)).unwrap();
        // The driver may close it before it has all.
        let _ = again.write_all(&bytes);
        let _ = again.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = again.read_to_end(&mut answer);
        assert!(answer.len() < 3000, "an alert at most: {}", answer.len());
    }
    job.wait_said("refused a connection to the control port");
    job.finish();
    assert_eq!(wait(one).0, 0);
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    assert_eq!(ended.sizes(), [2]);
}
