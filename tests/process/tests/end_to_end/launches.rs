//! Launches of many hosts, with a script in place of ssh.

use elasticrun_process_tests::{Job, send_signal};
use nix::sys::signal::Signal;

/// A list for `-H` of so many hosts with one slot each.
fn hosts(count: usize) -> String {
    let hosts: Vec<_> = (1..=count).map(|n| format!("127.0.1.{n}:1")).collect();
    hosts.join(",")
}

/// The most commands that ran at a time, and how many ran: each has added `+` to this text at its start and `-` at its end.
fn most_at_once(log: &str) -> (i32, usize) {
    let (mut running, mut most) = (0, 0);
    for line in log.lines() {
        running += if line == "+" { 1 } else { -1 };
        most = most.max(running);
    }
    (most, log.lines().filter(|line| *line == "+").count())
}

#[test]
fn at_most_eight_hosts_are_pushed_to_at_once() {
    // No host has the binary, and every push fails once the test opens the gate.
    let ssh = r#"cd "$PROCESS_TEST_DIR" || exit 1
        case "$*" in
        *mktemp*)
            echo + >>pushes
            while [ ! -e gate ]; do sleep 0.05; done
            echo - >>pushes
            echo no space left >&2
            exit 1;;
        *)
            echo asked >>asked
            exit 97;;
        esac"#;
    let mut job = Job::new("-np 40 --min-np 1 --launcher ssh --push-binary --blacklist forever")
        .flag(["-H", &hosts(40)])
        .ssh(ssh)
        .start();
    let lines = |text: String| text.lines().count();
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let (asked, pushes) = (job.path("asked"), job.path("pushes"));
    job.wait_for("all hosts are asked, and eight pushes begin", |_| {
        (lines(read(&asked)) == 40 && lines(read(&pushes)) >= 8).then_some(())
    });
    job.touch("gate");
    let ended = job.end();
    ended.expect(
        1,
        &[
            "all hosts are out for good",
            "cannot copy the binary there: no space left",
        ],
    );
    assert_eq!(most_at_once(&read(&ended.path("pushes"))), (8, 40));
}

#[test]
fn a_list_of_20000_hosts_holds_up_no_signal() {
    let job = Job::new("-np 20000 --min-np 1 --launcher ssh");
    let list = job.directory().join("list");
    // Addresses for benchmarks of networks, since a machine without a name server looks for a name for seconds.
    let address = |n: u32| format!("198.18.{}.{} slots=1\n", n / 250, n % 250 + 1);
    let hosts: Vec<_> = (0..20_000).map(address).collect();
    std::fs::write(&list, hosts.concat()).unwrap();
    let mut job = job
        .flag(["--hostfile", &list.display().to_string()])
        .ssh("echo asked >>\"$PROCESS_TEST_DIR/asked\"; echo no route to host >&2; exit 255")
        .start();
    // Launches fail all the time.
    let asked = job.path("asked");
    job.wait_for("several batches have failed", |_| {
        let asked = std::fs::read_to_string(&asked).unwrap_or_default();
        (asked.lines().count() > 150).then_some(())
    });
    send_signal(job.driver(), Signal::SIGTERM);
    let ended = job.end();
    ended.expect(143, &["stopped by signal 15"]);
    let lines = ended.stderr.lines().count();
    assert!(lines < 100, "{lines} lines:\n{}", ended.stderr);
    let host = "host * failed: no route to host";
    assert!(ended.stderr.contains(host), "{}", ended.stderr);
}

#[test]
fn a_local_job_with_an_address_to_listen_at() {
    let job = Job::new("-np 1 -H localhost:1 --listen 127.0.0.2:0");
    let ended = job.plan(|plan| plan.steps = Some(3)).run();
    ended.expect(0, &["succeeded"]);
}
