//! Hosts and slots that come and go while the job trains: no step is lost, and no worker is interrupted in vain.

use std::{fs, process::Command};

use elasticrun_process_tests::{Fault, Job, Kind, Point, What, When, binaries};

use crate::support::{BOTH, FOUR, USUAL, assert_nothing_lost, first};

#[test]
fn two_then_four_then_two_and_the_survivor_becomes_rank_0() {
    let mut job = Job::new(USUAL).discovered("localhost:2\n").start();
    job.wait_training(2, 3);
    job.set_hosts(BOTH);
    let four = job.wait_training(4, 6);
    job.set_hosts("127.0.0.1:2\n");
    let two = job.wait_training(2, four[0].step + 3);
    assert_eq!(
        (two[0].pid, two[1].pid),
        (four[2].pid, four[3].pid),
        "the survivors go on in their order"
    );
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    assert_eq!(ended.sizes(), [2, 4, 2]);
    assert!(
        ended
            .rounds()
            .concat()
            .iter()
            .all(|event| event.generation == 1),
        "no worker is started twice"
    );
    assert_nothing_lost(&ended.events, 0);
}

#[test]
fn a_growth_is_a_common_commit_of_all() {
    let mut job = Job::new("-np 2 --min-np 1 --max-np 3")
        .discovered("localhost:2\n")
        .start();
    job.wait_training(2, 3);
    job.set_hosts("localhost:2\n127.0.0.1:1\n");
    job.wait_training(3, 0);
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    let left: Vec<_> = ended
        .events
        .iter()
        .filter(|event| event.kind == Kind::Left)
        .collect();
    assert_eq!(
        left.len(),
        2,
        "both old workers left the first round: {left:?}"
    );
    let grown = &ended.rounds()[1];
    assert!(
        left.iter().all(|event| event.step == left[0].step),
        "at one step: {left:?}"
    );
    assert!(
        grown.iter().all(|event| event.step == left[0].step),
        "and go on from it: {grown:?}"
    );
}

#[test]
fn a_slot_that_goes_takes_only_its_own_worker() {
    let mut job = Job::new("-np 3 --min-np 1 --max-np 3")
        .discovered("localhost:2\n127.0.0.1:1\n")
        .start();
    let three = job.wait_training(3, 3);
    job.set_hosts("localhost:1\n127.0.0.1:1\n");
    let two = job.wait_training(2, three[0].step);
    assert_eq!((two[0].pid, two[1].pid), (three[0].pid, three[2].pid));
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    assert!(
        !ended.stderr.contains("failed"),
        "a removal is no failure:\n{}",
        ended.stderr
    );
    assert_nothing_lost(&ended.events, 0);
}

#[test]
fn the_exit_code_of_a_removed_worker_is_ignored() {
    let seven = Fault::new(
        Point::Trained,
        When {
            host: Some("127.0.0.1".into()),
            ..When::default()
        },
        What::Exit(7),
    );
    let mut job = Job::new(FOUR).discovered(BOTH).fault(seven).start();
    job.wait_training(4, 3);
    job.set_hosts("localhost:2\n");
    job.wait_training(2, 3);
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    assert_eq!(first(&ended.events, Kind::Fault).host, "127.0.0.1");
}

#[test]
fn a_host_beyond_max_np_interrupts_nobody() {
    let mut job = Job::new("-np 2 --min-np 2 --max-np 2")
        .discovered("localhost:2\n")
        .start();
    let before = job.wait_training(2, 3);
    job.set_hosts(BOTH);
    job.wait_said("2 hosts with 4 slots");
    job.wait_training(2, before[0].step + 50);
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    assert_eq!(ended.sizes(), [2]);
    assert!(
        ended.events.iter().all(|event| event.host == "localhost"),
        "no worker is started in vain"
    );
}

#[test]
fn a_host_that_is_missing_once_is_not_removed() {
    // Every second answer lacks the second host.
    let script = r#"n=$(cat "$PROCESS_TEST_DIR/count" 2>/dev/null || echo 0); echo $((n+1)) > "$PROCESS_TEST_DIR/count"
echo localhost:1; [ $((n % 2)) = 0 ] && echo 127.0.0.1:1; exit 0"#;
    let mut job = Job::new("-np 2 --min-np 1 --max-np 2")
        .script(script)
        .start();
    job.wait_training(2, 3);
    let count = job.path("count");
    let asked = || {
        std::fs::read_to_string(&count)
            .unwrap()
            .trim()
            .parse()
            .unwrap_or(0u32)
    };
    let before = asked();
    job.wait_for("ten more answers", |_| {
        (asked() >= before + 10).then_some(())
    });
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    assert_eq!(ended.sizes(), [2]);
}

#[test]
fn a_host_that_comes_before_the_first_worker_has_registered_is_used() {
    let wait = Fault::new(Point::Begin, When::default(), What::Wait).always();
    let mut job = Job::new("-np 1 --min-np 1 --max-np 2")
        .discovered("localhost:1\n")
        .fault(wait)
        .start();
    job.wait_for("a worker begins", |events| {
        events.iter().any(|e| e.kind == Kind::Begin).then_some(())
    });
    job.set_hosts("localhost:1\n127.0.0.1:1\n");
    job.wait_said("2 hosts with 2 slots");
    job.touch("release");
    job.wait_training(2, 3);
    job.finish();
    job.end().expect(0, &["succeeded"]);
}

#[test]
fn a_spare_waits_and_takes_the_place_of_the_dead() {
    let dies = crate::support::on_file(1, "die", What::Kill);
    let flags = "-np 2 --min-np 2 --max-np 2 --spares 1 -H localhost:3 --blacklist forever";
    let mut job = Job::new(flags).fault(dies).start();
    let before = job.wait_training(2, 3);
    let trains = |pid| before.iter().any(|event| event.pid == pid);
    let spare = job.wait_for("the spare begins", |events| {
        let mut begun = events.iter().filter(|event| event.kind == Kind::Begin);
        begun.find(|event| !trains(event.pid)).cloned()
    });
    job.touch("die");
    let after = job.wait_for("the spare trains", |events| {
        let mut steps = events.iter().filter(|event| event.kind == Kind::Step);
        steps.find(|event| event.pid == spare.pid).cloned()
    });
    assert_eq!(
        (after.generation, after.size),
        (1, 2),
        "the spare was started before the failure"
    );
    assert!(
        after.step > before[0].step,
        "the spare has the state of the others: {after:?}"
    );
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    assert_eq!(ended.sizes(), [2, 2]);
}

#[test]
fn one_worker_is_enough() {
    let ended = Job::new("-np 1").plan(|plan| plan.steps = Some(20)).run();
    ended.expect(0, &["succeeded"]);
    assert_eq!(ended.sizes(), [1]);
    assert_eq!(
        ended
            .events
            .iter()
            .filter(|event| event.kind == Kind::Step)
            .count(),
        20
    );
}

#[test]
fn a_host_joins_after_the_program_of_the_driver_was_replaced() {
    let job = Job::new(USUAL).discovered("localhost:2\n");
    let program = job.directory().join("elasticrun");
    // Another process writes the copy: a descriptor of this one could reach a child, and the kernel runs no file that is open
    // for writing.
    let copied = Command::new("cp")
        .arg(binaries::elasticrun())
        .arg(&program)
        .status()
        .unwrap();
    assert!(copied.success());
    let mut job = job.program(program.clone()).start();
    let two = job.wait_training(2, 3);
    let upgrade = job.path("upgrade");
    fs::write(&upgrade, "not this program").unwrap();
    fs::rename(&upgrade, &program).unwrap();
    job.set_hosts(BOTH);
    job.wait_training(4, two[0].step + 1);
    let processes = job.tag().processes();
    let agent = format!("{} agent", program.display());
    let names = (processes.iter())
        .filter(|(_, command)| *command == agent)
        .map(|(pid, _)| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default());
    let agents = names.filter(|name| name == "elasticrun\n").count();
    assert_eq!(agents, 2, "{processes:?}");
    job.finish();
    job.end().expect(0, &["succeeded"]);
}
