//! Jobs over ssh between network namespaces: a host that is cut, and the failures of ssh.

// Tests and their helpers may panic.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use elasticrun_process_tests::{Kind, monotonic};
use elasticrun_ssh_tests::Net;

/// Makes a net, or skips the test with the reason.
macro_rules! net {
    ($hosts:literal, $test:literal) => {
        match Net::new($hosts) {
            Ok(net) => net,
            Err(why) => {
                eprintln!("skipped {}: {why}", $test);
                return;
            }
        }
    };
}

const QUICK: &str = "--heartbeat-interval 200ms --heartbeat-timeout 2s --orphan-timeout 500ms";

fn both(net: &Net) -> [String; 2] {
    [
        "-H".into(),
        format!("{}:2,{}:2", net.host(0).address, net.host(1).address),
    ]
}

#[test]
fn ssh_two_hosts_train() {
    let net = net!(2, "ssh_two_hosts_train");
    let [flag, hosts] = both(&net);
    let mut job = net.job("-np 4").flag([&flag, &hosts]).start();
    let four = job.wait_training(4, 5);
    assert_eq!(
        (four[0].host.as_str(), four[2].host.as_str()),
        ("10.77.0.11", "10.77.0.12")
    );
    for host in [net.host(0), net.host(1)] {
        let workers = host
            .processes()
            .iter()
            .filter(|(_, command)| command.contains("test-worker"))
            .count();
        assert_eq!(workers, 2, "{:?}", host.processes());
    }
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    net.assert_empty();
}

#[test]
fn ssh_the_secret_is_on_no_command_line_and_in_no_environment() {
    let net = net!(
        2,
        "ssh_the_secret_is_on_no_command_line_and_in_no_environment"
    );
    let [flag, hosts] = both(&net);
    let mut job = net.job("-np 4").flag([&flag, &hosts]).start();
    job.wait_training(4, 3);
    let processes = net.processes();
    assert!(
        processes
            .iter()
            .any(|(_, command)| command.starts_with("ssh ")),
        "{processes:?}"
    );
    for (pid, command) in &processes {
        assert!(!has_secret(command.as_bytes()), "{command}");
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        assert!(!has_secret(&environment), "environment of {command}");
    }
    job.finish();
    job.end().expect(0, &["succeeded"]);
}

/// Whether the text has 64 hexadecimal digits in a row, the form of a secret.
fn has_secret(text: &[u8]) -> bool {
    text.split(|byte| !byte.is_ascii_hexdigit())
        .any(|run| run.len() >= 64)
}

#[test]
fn ssh_a_host_is_cut_without_a_packet_and_comes_back() {
    let net = net!(2, "ssh_a_host_is_cut_without_a_packet_and_comes_back");
    let [flag, hosts] = both(&net);
    let flags = format!("-np 4 --min-np 2 --max-np 4 {QUICK} --blacklist-cooldown-range 1s 2s");
    let mut job = net.job(&flags).flag([&flag, &hosts]).start();
    let four = job.wait_training(4, 5);
    net.host(1).cut();
    let cut = monotonic();
    let two = job.wait_training(2, four[0].step + 1);
    assert_eq!((two[0].pid, two[1].pid), (four[0].pid, four[1].pid));
    net.host(1).mend();
    let again = job.wait_training(4, two[0].step + 1);
    assert_eq!(again[2].host, "10.77.0.12");
    assert_eq!(
        (again[2].pid, again[3].pid),
        (four[2].pid, four[3].pid),
        "the workers outlive the cut"
    );
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    assert_eq!(ended.sizes(), [4, 2, 4]);
    let first = ended
        .events
        .iter()
        .find(|e| e.kind == Kind::Step && e.size == 2)
        .expect("a step of two");
    let took = Duration::from_nanos(first.at - cut);
    println!("from the cut to the next step: {took:?}");
    // The last heartbeat came a while before, on a busy machine several intervals. All other timeouts are longer
    // than the harness waits.
    assert!(took >= Duration::from_secs(1), "{took:?}");
    net.assert_empty();
}

#[test]
fn ssh_the_driver_is_cut_off_and_its_host_ends_by_itself() {
    let net = net!(1, "ssh_the_driver_is_cut_off_and_its_host_ends_by_itself");
    let flags = format!("-np 2 --min-np 2 {QUICK} --blacklist forever");
    let mut job = net
        .job(&flags)
        .flag(["-H", &format!("{}:2", net.host(0).address)])
        .start();
    job.wait_training(2, 3);
    net.host(0).cut();
    let ended = job.end();
    ended.expect(1, &["all hosts are out for good", "silent"]);
    net.assert_empty();
}

#[test]
fn ssh_a_host_that_refuses_the_key_is_a_failed_host() {
    let mut net = net!(2, "ssh_a_host_that_refuses_the_key_is_a_failed_host");
    net.serve(1, "AuthorizedKeysFile /dev/null");
    let [flag, hosts] = both(&net);
    let mut job = net
        .job("-np 2 --min-np 2 --max-np 4 --blacklist forever")
        .flag([&flag, &hosts])
        .start();
    job.wait_training(2, 3);
    job.wait_said("host 10.77.0.12 failed");
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    assert!(
        ended.stderr.contains("Permission denied"),
        "{}",
        ended.stderr
    );
}

#[test]
fn ssh_a_host_with_another_key_than_known_is_a_failed_host() {
    let mut net = net!(1, "ssh_a_host_with_another_key_than_known_is_a_failed_host");
    let other = format!("HostKey {}", net.directory().join("other_key").display());
    net.serve(0, &other);
    // sshd offers both keys unless only the other one exists.
    std::fs::copy(
        net.directory().join("other_key"),
        net.directory().join("host_key"),
    )
    .unwrap();
    net.serve(0, "");
    let known = net.directory().join("known_hosts");
    let lines = std::fs::read_to_string(&known).unwrap();
    let first = lines.lines().next().unwrap().to_owned();
    std::fs::write(&known, first + "\n").unwrap();
    let ended = net
        .job("-np 1 --min-np 1 --blacklist forever")
        .flag(["-H", "10.77.0.11:1"])
        .run();
    ended.expect(
        1,
        &[
            "all hosts are out for good",
            "10.77.0.11",
            "Host key verification failed",
        ],
    );
}

#[test]
fn ssh_a_port_where_nobody_listens() {
    let net = net!(1, "ssh_a_port_where_nobody_listens");
    let ended = net
        .job("-np 1 --ssh-port 2222")
        .flag(["-H", "10.77.0.11:1"])
        .run();
    ended.expect(1, &["10.77.0.11", "Connection refused"]);
}

#[test]
fn ssh_a_host_that_does_not_answer_fails_at_the_connect_timeout() {
    let net = net!(
        0,
        "ssh_a_host_that_does_not_answer_fails_at_the_connect_timeout"
    );
    let silent = net.silent_address();
    let ended = net
        .job("-np 1 --ssh-option ConnectTimeout=1")
        .flag(["-H", &format!("{silent}:1")])
        .run();
    ended.expect(1, &[&format!("host {silent}"), "timed out"]);
    net.assert_empty();
}

#[test]
fn ssh_a_host_that_hangs_holds_up_nobody() {
    let net = net!(1, "ssh_a_host_that_hangs_holds_up_nobody");
    let silent = net.silent_address();
    // Longer than the other host needs to train, on any machine.
    let flags = "-np 2 --min-np 2 --max-np 4 --blacklist forever --last-call 200ms --ssh-option ConnectTimeout=300";
    let mut job = net
        .job(flags)
        .flag(["-H", &format!("10.77.0.11:2,{silent}:2")])
        .start();
    job.wait_training(2, 3);
    let failed = format!("host {silent} failed");
    assert!(
        !job.said().contains(&failed),
        "the job did not wait for the silent host"
    );
    net.lose_silent_address();
    job.wait_said(&failed);
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    assert!(
        ended.stderr.contains("No route to host"),
        "{}",
        ended.stderr
    );
    net.assert_empty();
}

#[test]
fn ssh_ctrl_c_while_a_host_hangs_leaves_nothing() {
    let net = net!(0, "ssh_ctrl_c_while_a_host_hangs_leaves_nothing");
    let silent = net.silent_address();
    let mut job = net
        .job("-np 1")
        .flag(["-H", &format!("{silent}:1")])
        .start();
    job.wait_for("ssh runs", |_| {
        net.processes()
            .iter()
            .any(|(_, command)| command.starts_with("ssh "))
            .then_some(())
    });
    elasticrun_process_tests::send_signal(job.driver(), nix::sys::signal::Signal::SIGINT);
    // Without a signal, ssh waits longer for the host than the harness does.
    job.end().expect(130, &["stopped by signal 2"]);
    net.assert_empty();
}

#[test]
fn ssh_another_release_on_a_host_is_told_to_both_sides() {
    let mut net = net!(2, "ssh_another_release_on_a_host_is_told_to_both_sides");
    let own = std::env::current_exe().unwrap();
    let fake = own
        .parent()
        .and_then(|deps| deps.parent())
        .unwrap()
        .join("elasticrun-fake-agent");
    assert!(
        fake.is_file(),
        "{} is built with these tests",
        fake.display()
    );
    net.serve(1, &format!("ForceCommand {}", fake.display()));
    let [flag, hosts] = both(&net);
    let mut job = net
        .job("-np 2 --min-np 2 --max-np 4 --blacklist forever")
        .flag([&flag, &hosts])
        .start();
    job.wait_training(2, 3);
    job.wait_said("host 10.77.0.12 failed");
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    assert!(
        ended
            .stderr
            .contains("runs elasticrun 9.9.9 (protocol 98 to 99)"),
        "{}",
        ended.stderr
    );
    assert!(
        ended.stderr.contains("install the same release"),
        "{}",
        ended.stderr
    );
}
