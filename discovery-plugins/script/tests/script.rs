//! The script plugin with real programs, well-behaved and misbehaving ones.

#![allow(clippy::unwrap_used)]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use elasticrun_plugin_script::{Options, Script};
use elasticrun_plugin_sdk::{ErrorKind, HostState, Plugin, PluginError, SlotsFrom};
use tempfile::TempDir;

const PLENTY: Duration = Duration::from_secs(20);

struct Fixture {
    dir: TempDir,
    path: PathBuf,
}

impl Fixture {
    fn new(content: impl AsRef<[u8]>) -> Self {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("hosts.sh");
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        Self { dir, path }
    }

    fn rewrite(&self, content: &str) {
        fs::write(&self.path, content).unwrap();
    }

    fn plugin(&self) -> Script {
        Script::create(Options {
            path: self.path.clone(),
        })
        .unwrap()
    }

    fn poll(&self) -> Result<Vec<(String, Option<u32>)>, PluginError> {
        poll(&mut self.plugin(), PLENTY)
    }

    fn refused(&self) -> (ErrorKind, String) {
        let error = self.poll().unwrap_err();
        let prefix = format!("{} ", self.path.display());
        (
            error.kind,
            error.message.strip_prefix(&prefix).unwrap().to_owned(),
        )
    }
}

fn poll(
    plugin: &mut Script,
    deadline: Duration,
) -> Result<Vec<(String, Option<u32>)>, PluginError> {
    let snapshot = plugin.poll(deadline)?;
    Ok(snapshot
        .hosts
        .into_iter()
        .map(|host| (host.id, host.slots))
        .collect())
}

fn wait_until(mut condition: impl FnMut() -> bool, what: &str) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < PLENTY, "{what}");
        std::thread::yield_now();
    }
}

fn alive(pid_file: &Path) -> bool {
    let pid = fs::read_to_string(pid_file).unwrap();
    // A zombie that is not reaped in this container has ended.
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit(") ")
        .next()
        .is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

#[test]
fn lines_become_hosts_in_their_order() {
    let script = Fixture::new(
        "#!/bin/sh\nprintf 'b:4\\r\\n# comment\\r\\n\\r\\na\\nme@[::1]:2 # v6\\n127.0.0.1'\n",
    );
    let hosts = script.plugin().poll(PLENTY).unwrap().hosts;
    let seen: Vec<_> = hosts
        .iter()
        .map(|host| (host.id.as_str(), host.slots, host.user.as_deref()))
        .collect();
    let expected = [
        ("b", Some(4), None),
        ("a", None, None),
        ("::1", Some(2), Some("me")),
        ("127.0.0.1", None, None),
    ];
    assert_eq!(seen, expected);
    assert_eq!(hosts[0].slots_from, Some(SlotsFrom::Explicit));
    assert_eq!(hosts[1].slots_from, None);
}

#[test]
fn a_host_with_0_slots_is_refused_alone() {
    let script = Fixture::new("#!/bin/sh\nprintf 'a:0\\nb.example.org.:4\\n'\n");
    let hosts = script.plugin().poll(PLENTY).unwrap().hosts;
    let seen: Vec<_> = hosts.iter().map(|host| (&*host.id, host.state)).collect();
    let expected = [
        ("a", HostState::Pending),
        ("b.example.org", HostState::Ready),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn nothing_printed_is_an_empty_list() {
    assert_eq!(Fixture::new("#!/bin/sh\n").poll().unwrap(), []);
    assert_eq!(
        Fixture::new("#!/bin/sh\necho; echo '# none today'")
            .poll()
            .unwrap(),
        []
    );
}

#[test]
fn a_script_without_a_first_line_is_read_by_a_shell() {
    assert_eq!(
        Fixture::new("echo a:2\n").poll().unwrap(),
        [("a".into(), Some(2))]
    );
}

#[test]
fn a_poll_sees_what_the_program_says_now() {
    let script = Fixture::new("#!/bin/sh\necho a");
    let mut plugin = script.plugin();
    assert_eq!(poll(&mut plugin, PLENTY).unwrap(), [("a".into(), None)]);
    script.rewrite("#!/bin/sh\necho a\necho b:3");
    assert_eq!(
        poll(&mut plugin, PLENTY).unwrap(),
        [("a".into(), None), ("b".into(), Some(3))]
    );
}

#[test]
fn a_failing_program_shows_its_first_lines() {
    let script =
        Fixture::new("#!/bin/sh\necho a; echo oh no >&2; echo; echo >&2; echo more >&2; exit 3");
    assert_eq!(
        script.refused(),
        (
            ErrorKind::BadConfig,
            "ended with exit code 3: oh no | more".into()
        )
    );
    assert_eq!(
        Fixture::new("#!/bin/sh\nexit 1").refused().1,
        "ended with exit code 1"
    );
    assert_eq!(
        Fixture::new("#!/bin/sh\nkill -9 $$").refused().1,
        "was killed by signal 9"
    );
    let flood = Fixture::new("#!/bin/sh\nseq 1 200000 >&2; printf '\\033[31m'>&2; exit 1")
        .refused()
        .1;
    assert_eq!(flood, "ended with exit code 1: 1 | 2 | 3 | 4 | 5 | ...");
}

#[test]
fn a_failure_is_bad_configuration_until_it_has_worked_once() {
    let script = Fixture::new("#!/bin/sh\nexit 1");
    let mut plugin = script.plugin();
    let kind = |plugin: &mut Script| poll(plugin, PLENTY).unwrap_err().kind;
    assert_eq!(kind(&mut plugin), ErrorKind::BadConfig);
    script.rewrite("#!/bin/sh\necho a");
    poll(&mut plugin, PLENTY).unwrap();
    script.rewrite("#!/bin/sh\nexit 1");
    assert_eq!(kind(&mut plugin), ErrorKind::Retryable);
    script.rewrite("#!/bin/sh\necho a:x");
    assert_eq!(kind(&mut plugin), ErrorKind::Retryable);
    fs::remove_file(&script.path).unwrap();
    assert_eq!(kind(&mut plugin), ErrorKind::Retryable);
}

#[test]
fn garbage_is_refused_with_its_line() {
    let printed = |script: &str| {
        let (kind, message) = Fixture::new(format!("#!/bin/sh\n{script}")).refused();
        assert_eq!(kind, ErrorKind::BadConfig);
        message.strip_prefix("printed: ").unwrap().to_owned()
    };
    assert_eq!(
        printed("echo a:1; echo; echo b:1025"),
        r#"line 3, "b:1025": slots must be a number from 1 to 1024"#
    );
    assert!(printed("echo a:many").ends_with("slots must be a number from 1 to 1024"));
    assert_eq!(
        printed("printf 'a\\nb\\377\\n'"),
        "line 2, \"b\u{fffd}\": not UTF-8 text"
    );
    assert!(
        printed("printf 'a\\0\\n'").ends_with("holds a control character; allowed is plain text")
    );
    assert!(
        printed("echo a; echo b; echo a")
            .contains("line 3, \"a\": the host is named before, in line 1")
    );
    assert!(printed("echo Traceback most recent call").starts_with("line 1, \"Traceback most"));
}

#[test]
fn too_much_output_is_one_error() {
    for script in ["head -c 10000000 /dev/zero", "yes host"] {
        let started = Instant::now();
        let (kind, message) = Fixture::new(format!("#!/bin/sh\n{script}")).refused();
        assert_eq!(kind, ErrorKind::BadConfig);
        assert_eq!(
            message,
            "printed more than 4 MiB and was killed; it should print one host a line"
        );
        assert!(started.elapsed() < PLENTY);
    }
    // Just within the limit.
    let script = "#!/bin/sh\nyes '# a comment of no importance' | head -c 4194304";
    assert_eq!(Fixture::new(script).poll().unwrap(), []);
}

#[test]
fn a_program_that_hangs_is_killed_with_what_it_started() {
    let script = Fixture::new(
        "#!/bin/sh\ncd \"$(dirname \"$0\")\"\nsleep 1000 & echo $! >child\necho $$ >self\nyes >&2\n",
    );
    let mut plugin = script.plugin();
    let started = Instant::now();
    let deadline = Duration::from_millis(500);
    let error = poll(&mut plugin, deadline).unwrap_err();
    assert!(started.elapsed() >= deadline && started.elapsed() < PLENTY);
    assert_eq!(error.kind, ErrorKind::Retryable);
    assert!(
        error
            .message
            .ends_with("did not end within 500ms and was killed"),
        "{error}"
    );
    for (process, why) in [
        ("self", "it lives on"),
        ("child", "what it started lives on"),
    ] {
        wait_until(|| !alive(&script.dir.path().join(process)), why);
    }
}

#[test]
fn a_program_that_leaves_a_child_behind_is_not_waited_for() {
    let script = Fixture::new(
        "#!/bin/sh\ncd \"$(dirname \"$0\")\"\nsleep 1000 & echo $! >child\necho a:2\n",
    );
    let started = Instant::now();
    assert_eq!(script.poll().unwrap(), [("a".into(), Some(2))]);
    assert!(started.elapsed() < PLENTY);
    wait_until(
        || !alive(&script.dir.path().join("child")),
        "what it started lives on",
    );
}

#[test]
fn a_program_that_closes_its_output_is_waited_for() {
    let script = Fixture::new("#!/bin/sh\necho a\nexec >&- 2>&-\nsleep 0.2\nexit 4");
    assert_eq!(script.refused().1, "ended with exit code 4");
}

#[test]
fn what_cannot_be_run_is_refused_when_it_is_made() {
    let refused = |path: &Path| {
        let error = Script::create(Options {
            path: path.to_owned(),
        })
        .unwrap_err();
        assert_eq!(error.kind, ErrorKind::BadConfig);
        error.message
    };
    assert_eq!(
        refused(Path::new("/does/not/exist")),
        "/does/not/exist cannot be run: No such file or directory (os error 2)"
    );
    let script = Fixture::new("#!/bin/sh\n");
    assert!(refused(script.dir.path()).ends_with("is not a file; give the path of a program"));
    fs::set_permissions(&script.path, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(refused(&script.path).ends_with("is not executable (Permission denied); try chmod +x"));
}

#[test]
fn a_program_whose_interpreter_is_missing_is_refused() {
    let (kind, message) = Fixture::new("#!/does/not/exist\n").refused();
    assert_eq!(kind, ErrorKind::BadConfig);
    assert_eq!(
        message,
        "cannot be run: its first line names /does/not/exist, which is not there"
    );
    let (_, message) = Fixture::new("#!/bin/sh\r\necho a\r\n").refused();
    assert!(message.contains("a carriage return"), "{message}");
}

/// Runs a hanging program in its own process (a second run of this test) and kills that process.
#[test]
fn a_program_does_not_outlive_the_process_that_runs_it() {
    const PATH: &str = "ELASTICRUN_TEST_SCRIPT";
    if let Some(path) = std::env::var_os(PATH) {
        let mut plugin = Script::create(Options { path: path.into() }).unwrap();
        let _ = plugin.poll(PLENTY);
        return;
    }
    let script = Fixture::new(
        "#!/bin/sh\ncd \"$(dirname \"$0\")\"\nsleep 1000 &\necho $! >child\necho $$ >pid.new\nmv pid.new pid\nwait\n",
    );
    let (pid, child) = (
        script.dir.path().join("pid"),
        script.dir.path().join("child"),
    );
    let mut victim = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "a_program_does_not_outlive_the_process_that_runs_it",
        ])
        .env(PATH, &script.path)
        .spawn()
        .unwrap();
    wait_until(|| pid.exists(), "the program does not start");
    assert!(alive(&pid));
    victim.kill().unwrap();
    victim.wait().unwrap();
    wait_until(|| !alive(&pid), "the program lives on");
    wait_until(|| !alive(&child), "what the program started lives on");
}

#[test]
fn a_program_that_a_signal_ended_is_a_failure() {
    let script = Fixture::new("#!/bin/sh\nkill -9 $$\n");
    let (_, why) = script.refused();
    assert!(why.contains("signal"), "{why}");
}

#[test]
fn many_runs_leave_nothing_open() {
    let script = Fixture::new("#!/bin/sh\necho a");
    let mut plugin = script.plugin();
    let open = || fs::read_dir("/proc/self/fd").unwrap().count();
    poll(&mut plugin, PLENTY).unwrap();
    let before = open();
    for _ in 0..50 {
        poll(&mut plugin, PLENTY).unwrap();
    }
    assert_eq!(open(), before);
}
