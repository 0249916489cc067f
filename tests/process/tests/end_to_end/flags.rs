//! Wrong command lines: one line that names the flag, the value and what is allowed; exit code 2, no process
//! started.

use elasticrun_process_tests::Job;

#[track_caller]
fn refused(job: Job, words: &[&str]) {
    let ended = job.run();
    ended.expect(2, words);
    assert_eq!(
        ended.stderr.trim_end().lines().count(),
        1,
        "one line:\n{}",
        ended.stderr
    );
    assert!(ended.events.is_empty(), "nothing is started");
}

#[test]
fn numbers_that_do_not_fit_together() {
    refused(Job::new("-np 2 --min-np 3"), &["--min-np", "3"]);
    refused(Job::new("-np 4 --max-np 2"), &["--max-np", "2"]);
    refused(Job::new("-np 0"), &["np", "0"]);
    refused(Job::new("-np -1"), &["np", "-1"]);
    refused(Job::new("-np two"), &["np", "two"]);
}

#[test]
fn flags_that_do_not_exist() {
    refused(Job::new("-np 1 --min-pn 1"), &["--min-pn", "--min-np"]);
    refused(
        Job::new("-np 1 --config /nonexistent.toml"),
        &["/nonexistent.toml"],
    );
}

#[test]
fn times_and_words() {
    refused(
        Job::new("-np 1 --elastic-timeout soon"),
        &["--elastic-timeout", "soon"],
    );
    refused(
        Job::new("-np 1 --heartbeat-timeout 0"),
        &["--heartbeat-timeout"],
    );
    refused(
        Job::new("-np 1 --heartbeat-interval 5s --heartbeat-timeout 2s"),
        &["--heartbeat"],
    );
    refused(
        Job::new("-np 1 --failure-domain rack"),
        &["--failure-domain", "rack", "host"],
    );
    refused(
        Job::new("-np 1 --blacklist-cooldown-range 9s 2s"),
        &["--blacklist-cooldown-range"],
    );
    refused(
        Job::new("-np 1 --launcher carrier-pigeon"),
        &["--launcher", "carrier-pigeon", "ssh"],
    );
}

#[test]
fn hosts() {
    refused(Job::new("-H localhost:2,localhost:2"), &["localhost"]);
    refused(Job::new("-H localhost:0"), &["localhost:0"]);
    refused(Job::new("-H localhost:x"), &["localhost:x"]);
    refused(Job::new("-H a_b!:1"), &["a_b!"]);
    refused(Job::new("-np 2").flag(["-H", ""]), &["-H"]);
    refused(Job::new("-H ::1:2"), &["::1", "["]);
    refused(
        Job::new("--hostfile /nonexistent/hosts"),
        &["/nonexistent/hosts"],
    );
}

#[test]
fn an_ipv6_host_in_brackets_is_a_host() {
    let ended = Job::new("-H [::1]:2 --launcher local")
        .plan(|plan| plan.steps = Some(5))
        .run();
    ended.expect(0, &["succeeded"]);
    assert!(
        ended.events.iter().all(|event| event.host == "::1"),
        "{:?}",
        ended.events.first()
    );
}

#[test]
fn more_workers_than_slots() {
    refused(Job::new("-np 4 -H localhost:2"), &["4", "2"]);
}

#[test]
fn a_script_that_is_not_there() {
    refused(
        Job::new("-np 1 --host-discovery-script /nonexistent.sh"),
        &["/nonexistent.sh"],
    );
}

#[test]
fn no_command() {
    let job = Job::new("-np 1").command([]);
    refused(job, &["command"]);
}
