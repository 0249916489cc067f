//! Commands without the SDK, and commands that do not exist.

use elasticrun_process_tests::Job;

#[test]
fn a_command_without_the_sdk() {
    let ended = Job::new("-np 2").command(["hostname"]).run();
    ended.expect(0, &["succeeded"]);
    let mut lines: Vec<_> = ended.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines.len(), 2, "{}", ended.stdout);
    assert!(
        lines[0].starts_with("[0]<stdout>:") && lines[1].starts_with("[1]<stdout>:"),
        "{lines:?}"
    );
}

#[test]
fn a_command_without_the_sdk_that_fails() {
    let ended = Job::new("-np 2")
        .command(["sh", "-c", "echo oh dear >&2; exit 6"])
        .run();
    ended.expect(1, &["a worker failed", "exit code 6"]);
    assert!(ended.stderr.contains("oh dear"), "{}", ended.stderr);
}

#[test]
fn a_command_that_does_not_exist() {
    for flags in ["-np 2", "-np 2 --min-np 1"] {
        let ended = Job::new(flags).command(["/nonexistent/train"]).run();
        ended.expect(2, &["/nonexistent/train: no such file [E205]"]);
    }
}

#[test]
fn a_command_that_is_no_program() {
    let ended = Job::new("-np 1").command(["/etc/passwd"]).run();
    ended.expect(2, &["/etc/passwd: not executable", "[E205]"]);
}

#[test]
fn the_environment_that_existing_scripts_read() {
    let names = "HOROVOD_HOSTNAME HOROVOD_RANK HOROVOD_SIZE HOROVOD_LOCAL_RANK HOROVOD_LOCAL_SIZE \
                 HOROVOD_CROSS_RANK HOROVOD_CROSS_SIZE RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR";
    let words: String = names
        .split_whitespace()
        .map(|name| format!(" {name}=${name}"))
        .collect();
    let script = format!("echo {words}; [ -n \"$MASTER_PORT\" ] && [ -n \"$ELASTICRUN_RUN_ID\" ]");
    let ended = Job::new("-np 3 -H localhost:2,127.0.0.1:1 --no-prefix")
        .command(["sh", "-c", &script])
        .run();
    ended.expect(0, &["succeeded"]);
    let mut lines: Vec<_> = ended.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "HOROVOD_HOSTNAME=127.0.0.1 HOROVOD_RANK=2 HOROVOD_SIZE=3 HOROVOD_LOCAL_RANK=0 HOROVOD_LOCAL_SIZE=1 \
             HOROVOD_CROSS_RANK=1 HOROVOD_CROSS_SIZE=2 RANK=2 WORLD_SIZE=3 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 \
             MASTER_ADDR=127.0.0.1",
            "HOROVOD_HOSTNAME=localhost HOROVOD_RANK=0 HOROVOD_SIZE=3 HOROVOD_LOCAL_RANK=0 HOROVOD_LOCAL_SIZE=2 \
             HOROVOD_CROSS_RANK=0 HOROVOD_CROSS_SIZE=2 RANK=0 WORLD_SIZE=3 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 \
             MASTER_ADDR=127.0.0.1",
            "HOROVOD_HOSTNAME=localhost HOROVOD_RANK=1 HOROVOD_SIZE=3 HOROVOD_LOCAL_RANK=1 HOROVOD_LOCAL_SIZE=2 \
             HOROVOD_CROSS_RANK=0 HOROVOD_CROSS_SIZE=1 RANK=1 WORLD_SIZE=3 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 \
             MASTER_ADDR=127.0.0.1",
        ]
    );
}

#[test]
fn grandchildren_do_not_outlive_the_job() {
    let script = "sleep 1000 & setsid sleep 1001 & exit 0";
    // The `sleep` is in the worker's process group. The `setsid` one would leave the group and hold the worker's
    // output open, so this test removes it.
    let ended = Job::new("-np 1")
        .command(["sh", "-c", &script.replace("setsid sleep 1001 & ", "")])
        .run();
    ended.expect(0, &["succeeded"]);
}

#[test]
fn few_descriptors_are_raised_for_the_driver_and_restored_for_programs() {
    let hosts: Vec<_> = (1..=20).map(|n| format!("127.0.0.{n}:1")).collect();
    let ended = Job::new("-np 20 --no-prefix")
        .flag(["-H", &hosts.join(",")])
        .before(["prlimit", "--nofile=64:4096"])
        .command(["sh", "-c", "ulimit -Sn"])
        .run();
    ended.expect(0, &["succeeded"]);
    let limits: Vec<_> = ended.stdout.lines().collect();
    assert_eq!(limits, ["64"; 20], "{}", ended.stderr);
}
