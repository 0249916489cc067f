//! Discovery sources that misbehave. At the start the job ends with exit code 5; later it tolerates the failure.

use elasticrun_process_tests::{Job, Running, binaries};

#[test]
fn a_script_that_fails_at_the_start_ends_the_job() {
    let job = Job::new("-np 1 --min-np 1").script("echo no such group >&2; exit 3");
    let ended = job.run();
    ended.expect(5, &["discovery failed", "no such group"]);
    assert!(ended.events.is_empty());
}

#[test]
fn a_wrong_source_beside_one_that_answers_ends_the_job() {
    let job = Job::new("-np 1 -H localhost:1 --launcher local --discovery file:pth=hosts");
    let ended = job.command(["sleep", "600"]).run();
    ended.expect(5, &["unknown field `pth`", "expected `path`"]);
}

#[test]
fn a_script_that_prints_garbage_at_the_start_ends_the_job() {
    let ended = Job::new("-np 1 --min-np 1")
        .script("echo 'localhost:many'")
        .run();
    ended.expect(5, &["localhost:many"]);
}

#[test]
fn a_script_that_repeats_a_host_ends_the_job() {
    let ended = Job::new("-np 1 --min-np 1")
        .script("echo localhost:1; echo localhost:2")
        .run();
    ended.expect(5, &["localhost"]);
}

#[test]
fn a_script_that_fails_later_is_tolerated() {
    let body =
        r#"[ -e "$PROCESS_TEST_DIR/broken" ] && { echo oh dear >&2; exit 1; }; echo localhost:2"#;
    let mut job = Job::new("-np 2 --min-np 1").script(body).start();
    let before = job.wait_training(2, 3);
    job.touch("broken");
    job.wait_said("oh dear");
    job.wait_training(2, before[0].step + 20);
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    assert_eq!(ended.sizes(), [2]);
}

#[test]
fn a_script_that_hangs_ends_with_the_elastic_time_out() {
    let ended = Job::new("-np 1 --min-np 1 --elastic-timeout 1s")
        .script("sleep 1000")
        .run();
    ended.expect(3, &["--elastic-timeout"]);
}

#[test]
fn a_script_that_hangs_later_holds_up_nobody() {
    let body = r#"[ -e "$PROCESS_TEST_DIR/broken" ] && sleep 1000; echo localhost:2"#;
    let mut job = Job::new("-np 2 --min-np 1").script(body).start();
    let before = job.wait_training(2, 3);
    job.touch("broken");
    job.wait_training(2, before[0].step + 100);
    job.finish();
    job.end().expect(0, &["succeeded"]);
}

#[test]
fn a_script_that_prints_nothing_waits_for_hosts_and_ends_in_time() {
    let ended = Job::new("-np 1 --min-np 1 --elastic-timeout 1s")
        .script("exit 0")
        .run();
    ended.expect(3, &["0 usable slots, 1 needed"]);
}

#[test]
fn line_ends_of_windows_and_empty_lines_are_understood() {
    let job =
        Job::new("-np 2 --min-np 1").script(r"printf '\r\nlocalhost:1\r\n\r\n127.0.0.1:1\r\n'");
    let ended = job.plan(|plan| plan.steps = Some(5)).run();
    ended.expect(0, &["succeeded"]);
    assert_eq!(ended.sizes().last(), Some(&2));
}

#[test]
fn a_script_that_prints_ten_megabytes_is_refused() {
    let ended = Job::new("-np 1 --min-np 1")
        .script("yes localhost:1 | head -c 10000000")
        .run();
    ended.expect(5, &["script"]);
}

#[test]
fn a_host_that_cannot_be_reached_is_a_failed_host() {
    let flags = "-np 1 --min-np 1 --max-np 2 --blacklist forever --ssh-option ConnectTimeout=1 \
                 --ssh-option Port=9 --ssh-option ProxyCommand=false";
    let mut job = Job::new(flags)
        .discovered("localhost:1\nnowhere.invalid:1\n")
        .start();
    job.wait_training(1, 3);
    job.wait_said("host nowhere.invalid failed");
    job.finish();
    job.end().expect(0, &["succeeded"]);
}

/// A job whose one host comes from the misbehaving plugin with this behaviour.
fn of_plugin(flags: &str, behaviour: &str) -> Job {
    let job = Job::new("-np 2 --min-np 1 --slots-per-host 2 --discovery-interval 50ms");
    let file = |name: &str| job.directory().join(name).display().to_string();
    std::fs::write(file("host"), "localhost").expect("a file can be written");
    let spec = format!(
        "misbehaving:watched={},gate={},{behaviour}",
        file("host"),
        file("gate")
    );
    let job = job.flag(["--plugin-dir", &binaries::plugins().display().to_string()]);
    let job = (flags.split_whitespace()).fold(job, |job, flag| job.flag([flag]));
    job.flag(["--discovery", &spec])
}

#[test]
fn a_plugin_that_crashes_holds_up_nobody_and_is_started_again() {
    let mut job = of_plugin("", "poll=segfault_once").start();
    let before = job.wait_training(2, 3);
    job.touch("gate");
    job.wait_said("misbehaving: the plugin was killed by signal 11 (SIGSEGV)");
    job.wait_training(2, before[0].step + 20);
    // The plugin runs again: the driver reports the next crash, too.
    let gate = job.path("gate");
    job.wait_for("the plugin is started again", |_| {
        (!gate.exists()).then_some(())
    });
    job.touch("gate");
    job.wait_for("the plugin crashes again", |_| {
        (!gate.exists()).then_some(())
    });
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    assert_eq!(ended.sizes(), [2]);
}

#[test]
fn what_a_plugin_prints_is_in_the_log_and_not_in_the_output() {
    let ended = of_plugin("", "poll=print")
        .plan(|plan| plan.steps = Some(5))
        .run();
    ended.expect(0, &["succeeded"]);
    let line = "printed to standard output: hosts are on their way";
    assert!(ended.stderr.contains(line), "{}", ended.stderr);
    assert!(!ended.stdout.contains("on their way"), "{}", ended.stdout);
}

/// A job of two workers beside a plugin whose poll behaves like this, once the plugin has started a program.
fn with_child(poll: &str) -> Running {
    let flags = "-H localhost:2 --launcher local --orphan-timeout 1s";
    let mut job = of_plugin(flags, &format!("poll={poll}")).start();
    job.wait_training(2, 3);
    let gate = job.path("gate");
    job.wait_for("the plugin starts a program", |_| {
        gate.exists().then_some(())
    });
    job
}

#[test]
fn what_a_plugin_started_ends_with_the_job() {
    for poll in ["keep_child", "child_and_hang"] {
        let job = with_child(poll);
        job.finish();
        // It fails if a process of the job is left.
        job.end().expect(0, &["succeeded"]);
    }
}

#[test]
fn what_a_plugin_started_ends_with_a_driver_that_is_killed() {
    for poll in ["keep_child", "child_and_hang"] {
        with_child(poll).kill_driver();
    }
}

#[test]
fn a_plugin_that_is_not_allowed_ends_the_job_before_it_begins() {
    let hash = format!("misbehaving=sha256:{}", "0".repeat(64));
    let ended = of_plugin(&format!("--plugin-allow {hash}"), "poll=fine").run();
    ended.expect(2, &["not allowed", "--plugin-allow", "misbehaving=sha256:"]);
}
