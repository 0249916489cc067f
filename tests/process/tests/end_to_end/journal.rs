//! The journal of real drivers, and `elasticrun resume`.

use std::{
    fs::{self, File},
    io::Read,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, SystemTime},
};

use elasticrun_process_tests::{Job, Running, STATE, What, agents::port, binaries, send_signal};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::at_step;

/// A job on this machine whose workers train until they are told to finish.
const TRAINS: &str = "-np 2 --min-np 1 --blacklist forever --journal auto";

/// The directory of the only run whose journal is under this state directory, and the id of the run.
fn only_run(state: &Path) -> (PathBuf, String) {
    let runs = fs::read_dir(state.join("elasticrun")).expect("a driver has made it");
    let runs: Vec<_> = runs.map(|run| run.unwrap().path()).collect();
    let [run] = runs.as_slice() else {
        panic!("not one run: {runs:?}");
    };
    let id = run.file_name().unwrap().to_str().unwrap().to_owned();
    (run.clone(), id)
}

/// Runs `elasticrun resume`. Gives its exit code and its standard error.
fn resume(state: &Path, words: &[&str]) -> (i32, String) {
    let output = Command::new(binaries::elasticrun())
        .arg("resume")
        .args(words)
        .env("XDG_STATE_HOME", state)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    (output.status.code().unwrap_or(-1), said)
}

/// Checks that a run is refused in one line with these words.
#[track_caller]
fn expect_refused(state: &Path, words: &[&str], expected: &[&str]) {
    let (code, said) = resume(state, words);
    assert_eq!(code, 7, "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    for words in expected {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
}

/// A job whose driver was killed, and the id of its run.
fn killed(job: Job) -> (Running, String) {
    let mut job = job.start();
    job.wait_training(2, 2);
    let (_, id) = only_run(&job.path(STATE));
    job.kill_only_driver();
    (job, id)
}

#[test]
fn a_run_that_has_ended_shows_its_outcome_and_repeats_its_exit_code() {
    let ended = Job::new(TRAINS).plan(|plan| plan.steps = Some(3)).run();
    ended.expect(0, &["succeeded"]);
    let state = ended.path(STATE);
    let (_, id) = only_run(&state);
    let named = format!("if this driver dies, elasticrun resume {id} continues the run within 5s");
    assert!(ended.stderr.contains(&named), "{}", ended.stderr);
    let (code, said) = resume(&state, &[&id]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(
        said,
        format!("elasticrun: run {id} has ended\nelasticrun: succeeded\n")
    );

    let job = Job::new("-np 2 --journal auto").fault(at_step(1, 2, What::Exit(9)));
    let ended = job.run();
    ended.expect(1, &["a worker failed", "exit code 9"]);
    let state = ended.path(STATE);
    let (_, id) = only_run(&state);
    for _ in 0..2 {
        let (code, said) = resume(&state, &[&id]);
        assert_eq!(code, 1, "{said}");
        assert_eq!(said.trim_end().lines().last(), Some(ended.last_line()));
    }
}

#[test]
fn a_run_that_was_stopped_repeats_the_code_of_the_signal() {
    let mut job = Job::new(TRAINS).start();
    job.wait_training(2, 2);
    send_signal(job.driver(), Signal::SIGTERM);
    let ended = job.end();
    ended.expect(143, &["stopped by signal 15 (SIGTERM)"]);
    let state = ended.path(STATE);
    let (code, said) = resume(&state, &[&only_run(&state).1]);
    assert_eq!(code, 143, "{said}");
    assert!(
        said.ends_with("elasticrun: stopped by signal 15 (SIGTERM)\n"),
        "{said}"
    );
}

#[test]
fn a_run_whose_driver_lives_is_refused_with_its_process() {
    let mut job = Job::new(TRAINS).start();
    job.wait_training(2, 2);
    let state = job.path(STATE);
    let (_, id) = only_run(&state);
    let holder = format!("run {id} has a driver (process {})", job.driver());
    expect_refused(&state, &[&id], &[&holder]);
    job.finish();
    job.end().expect(0, &["succeeded"]);
}

#[test]
fn journals_that_cannot_be_read_are_refused() {
    let (job, id) = killed(Job::new(TRAINS));
    let state = &job.path(STATE);
    expect_refused(
        state,
        &["0badcafe"],
        &["run 0badcafe is unknown", "0badcafe/journal.redb"],
    );
    assert!(!state.join("elasticrun/0badcafe").exists());
    let run = state.join("elasticrun").join(&id);
    let (journal, key) = (run.join("journal.redb"), run.join("journal.redb.key"));
    let other = job.path("other.redb");
    for (from, to) in [(&journal, "other.redb"), (&key, "other.redb.key")] {
        fs::copy(from, job.path(to)).unwrap();
    }
    let other = other.display().to_string();
    let of_other = ["0badcafe", "--journal", &other];
    expect_refused(
        state,
        &of_other,
        &[&format!("of run {id}, not of run 0badcafe")],
    );
    let bytes = fs::read(&journal).unwrap();
    fs::write(&journal, &bytes[..bytes.len() / 2]).unwrap();
    expect_refused(state, &[&id], &["is damaged"]);
    fs::write(&journal, "").unwrap();
    expect_refused(state, &[&id], &["is damaged"]);
    fs::write(&journal, bytes).unwrap();
    let right = fs::read(&key).unwrap();
    fs::write(&key, [0; 32]).unwrap();
    expect_refused(state, &[&id], &["is not the key of the journal"]);
    fs::remove_file(&key).unwrap();
    expect_refused(state, &[&id], &["cannot be read without its key"]);
    fs::write(&key, right).unwrap();
    // The umask of the test may leave it open.
    expect_refused(state, &[&id], &["others may read it"]);
}

#[test]
fn an_id_that_is_none_is_a_mistake_of_usage() {
    let state = tempfile::tempdir().unwrap();
    for words in [&["../x"][..], &[], &["a", "b"]] {
        let (code, said) = resume(state.path(), words);
        assert_eq!(code, 2, "{said}");
        assert!(said.contains("[E201]"), "{said}");
    }
}

#[test]
fn a_job_without_a_place_for_its_journal_runs() {
    let blocked = tempfile::tempdir().unwrap();
    let file = blocked.path().join("file");
    fs::write(&file, "").unwrap();
    let state = format!("XDG_STATE_HOME={}", file.display());
    let ended = Job::new(TRAINS)
        .before(["env", &state])
        .plan(|plan| plan.steps = Some(3))
        .run();
    ended.expect(0, &["succeeded"]);
    let line = ended
        .stderr
        .lines()
        .find(|line| line.contains("the journal cannot be written"));
    assert!(
        line.is_some_and(|line| line.contains("Not a directory")),
        "{}",
        ended.stderr
    );
    assert!(!ended.path(STATE).exists());
}

#[test]
fn only_a_job_with_a_journal_removes_old_ones() {
    for (flags, stays) in [("", true), ("--journal auto", false)] {
        let job = Job::new(&format!("-np 2 --min-np 1 {flags}"));
        let left = job.directory().join(STATE).join("elasticrun/1a2b3c4d");
        fs::create_dir_all(&left).unwrap();
        let long_ago = SystemTime::now() - Duration::from_secs(2 * 24 * 3600);
        File::open(&left).unwrap().set_modified(long_ago).unwrap();
        let mut job = job.start();
        job.wait_training(2, 2);
        if !stays {
            job.wait_for("the old journal is gone", |_| {
                (!left.exists()).then_some(())
            });
        }
        job.finish();
        let ended = job.end();
        assert_eq!(ended.code, 0);
        assert_eq!(left.exists(), stays, "{flags}");
    }
}

#[test]
fn a_user_without_a_home_gets_one_warning() {
    let without = ["env", "-u", "XDG_STATE_HOME", "-u", "HOME"];
    let ended = Job::new("-np 1")
        .before(without)
        .plan(|plan| plan.steps = Some(2))
        .flag(["--journal", "auto"])
        .run();
    ended.expect(0, &["succeeded"]);
    let warnings = ended
        .stderr
        .matches("the journal cannot be written")
        .count();
    assert_eq!(warnings, 1, "{}", ended.stderr);
    assert!(
        ended.stderr.contains("neither XDG_STATE_HOME nor HOME"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_journal_that_the_user_names_must_be_usable() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    fs::write(path("notes"), "of a person").unwrap();
    fs::create_dir(path("folder")).unwrap();
    for (journal, why) in [
        (path("missing/journal"), "no such directory [E205]"),
        (path("folder"), "is a directory, expected a file [E205]"),
        (path("notes"), "choose another path"),
        (
            "etcd://a:0".to_owned(),
            "expected a path, etcd://HOST:PORT[,HOST:PORT...][/PREFIX], auto or none [E202]",
        ),
    ] {
        let job = Job::new("-np 1").flag(["--journal", &journal]);
        let ended = job.run();
        ended.expect(2, &[&journal, why]);
        assert!(ended.events.is_empty());
    }
    let names = fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(names, 2, "nothing is left behind");
    assert_eq!(fs::read(path("notes")).unwrap(), b"of a person");
}

#[test]
fn a_named_journal_is_used_again_once_its_run_has_ended() {
    let directory = tempfile::tempdir().unwrap();
    let journal = directory.path().join("journal").display().to_string();
    let job = || {
        let job = Job::new("-np 1").flag(["--journal", &journal]);
        job.plan(|plan| plan.steps = Some(2))
    };
    for _ in 0..2 {
        let ended = job().run();
        ended.expect(0, &["succeeded"]);
        assert!(!ended.path(STATE).exists(), "only where the user wants it");
        assert!(!ended.stderr.contains("is replaced"), "{}", ended.stderr);
        // The outcome may be read in between.
        let run = run_of(&journal);
        let (code, said) = resume(directory.path(), &[&run, "--journal", &journal]);
        assert_eq!(code, 0, "{said}");
    }
    let mut names: Vec<_> = fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["journal", "journal.key", "journal.lock"]);
    let mut lives = Job::new("-np 1").flag(["--journal", &journal]).start();
    lives.wait_training(1, 1);
    job().run().expect(2, &["has a driver"]);
    lives.kill_driver();
    let run = run_of(&journal);
    let ended = job().run();
    ended.expect(0, &["succeeded"]);
    let replaced = format!("was the journal of run {run}, which has no outcome; it is replaced");
    assert!(ended.stderr.contains(&replaced), "{}", ended.stderr);
}

/// The run of a journal that no driver has, as the refusal of another one names it.
fn run_of(journal: &str) -> String {
    let (_, said) = resume(Path::new("/"), &["0badcafe", "--journal", journal]);
    let found = said
        .split("is of run ")
        .nth(1)
        .and_then(|rest| rest.split(',').next());
    found.unwrap_or_else(|| panic!("{said}")).to_owned()
}

#[test]
fn a_start_that_fails_leaves_no_journal() {
    let directory = tempfile::tempdir().unwrap();
    let journal = directory.path().join("journal").display().to_string();
    let job = Job::new("-np 1 --call-fd 99").flag(["--journal", &journal]);
    let ended = job.run();
    ended.expect(2, &["--call-fd 99"]);
    assert!(!ended.stderr.contains("resume"), "{}", ended.stderr);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_job_has_no_journal_unless_its_user_asks_for_one() {
    let job = Job::new("-np 1").plan(|plan| plan.steps = Some(2));
    let ended = job.run();
    ended.expect(0, &["succeeded"]);
    assert!(!ended.path(STATE).exists());
}

#[test]
fn a_disk_that_is_full_does_not_stop_the_job() {
    let (mut read, write) = std::io::pipe().unwrap();
    let mut job = Job::new(TRAINS)
        .flag(["--log-format", "json"])
        .stderr(File::from(OwnedFd::from(write)))
        .start();
    job.wait_training(2, 2);
    // No file of the driver may have more than one byte: a write elsewhere fails as on a full disk.
    let limited = Command::new("prlimit")
        .args(["--fsize=1", "--pid", &job.driver().to_string()])
        .status()
        .unwrap();
    assert!(limited.success());
    job.finish();
    let ended = job.end();
    assert_eq!(ended.code, 0);
    let mut log = String::new();
    read.read_to_string(&mut log).unwrap();
    let events: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let failed = |event: &&Value| event["event"] == "journal_failed";
    let failed: Vec<_> = events.iter().filter(failed).collect();
    assert_eq!(failed.len(), 1, "{log}");
    assert!(
        failed[0]["reason"]
            .as_str()
            .unwrap()
            .contains("File too large"),
        "{log}"
    );
}

#[test]
fn the_files_of_a_journal_show_no_secret() {
    let mut job = Job::new(TRAINS)
        .flag(["--env", "TOKEN=plumes-of-the-heron", "--print-join-token"])
        .start();
    job.wait_training(2, 2);
    let said = job.said();
    let token = said
        .split("join token: ")
        .nth(1)
        .unwrap()
        .lines()
        .next()
        .unwrap();
    let (run, id) = only_run(&job.path(STATE));
    let files = fs::read_dir(&run).unwrap();
    let bytes = files.map(|file| fs::read(file.unwrap().path()).unwrap());
    let bytes = bytes.collect::<Vec<_>>().concat();
    let shows = |text: &str| {
        bytes
            .windows(text.len())
            .any(|part| part == text.as_bytes())
    };
    assert!(shows(&id), "the plain part of the journal is read");
    assert!(!shows("plumes-of-the-heron") && !shows(token));
    job.finish();
    job.end().expect(0, &["succeeded"]);
}

#[test]
fn a_later_driver_could_have_the_port_of_a_job_with_a_journal() {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
    let range: Vec<u16> = range
        .split_whitespace()
        .map(|port| port.parse().unwrap())
        .collect();
    let from_kernel = |port: u16| (range[0]..=range[1]).contains(&port);
    for (journal, expected) in [("journal", false), ("none", true)] {
        let directory = tempfile::tempdir().unwrap();
        let journal = match journal {
            "none" => journal.to_owned(),
            name => directory.path().join(name).display().to_string(),
        };
        let mut job = Job::new("-np 1 --launcher agent --print-join-token")
            .flag(["--journal", &journal])
            .start();
        let port = port(&mut job);
        assert_eq!(from_kernel(port), expected, "{port} of {range:?}");
        send_signal(job.driver(), Signal::SIGTERM);
        job.end().expect(143, &["stopped"]);
    }
}

#[test]
fn the_outcome_is_in_the_journal_before_agents_are_told_to_end() {
    // One worker fails the job. The other one reports that it was told to end, and does not.
    let script = r#"
        cd "$PROCESS_TEST_DIR"
        if [ "$LOCAL_RANK" = 1 ]; then
            until [ -e ready ]; do sleep 0.01; done
            exit 9
        fi
        trap 'touch told' TERM
        touch ready
        while :; do sleep 0.01; done"#;
    let mut job = Job::new("-np 2 --journal auto")
        .command(["sh", "-c", script])
        .start();
    let told = job.path("told");
    job.wait_for("a worker is told to end", |_| told.exists().then_some(()));
    let (_, id) = only_run(&job.path(STATE));
    job.kill_only_driver();
    let (code, said) = resume(&job.path(STATE), &[&id]);
    assert_eq!(code, 1, "{said}");
    let mut lines = said.lines();
    let first = lines.next().unwrap();
    assert!(
        first.contains("its driver was killed before all agents had ended"),
        "{said}"
    );
    let last = lines.next_back().unwrap();
    assert!(
        last.contains("a worker failed") && last.contains("local rank 1"),
        "{said}"
    );
}
