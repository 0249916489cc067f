//! Workers that come of standby interpreters. They need python3.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use std::{fs, path::Path};

use common::{Agent, Control, Driver, Lines, eventually, kill, processes_of_run};
use elasticrun_protocol::{
    AgentCommand, AgentReport,
    control::{Exit, Preload},
};

/// A driver of a job of groups, with standby interpreters that import these modules, and all that the script imports
/// without a name.
async fn driver(command: &[&str], modules: &[&str], directory: &Path) -> Driver {
    let command = command.iter().map(|word| (*word).to_owned());
    let mut driver = Driver::new(command.collect()).await;
    driver.setup.groups = true;
    driver.setup.directory = Some(directory.display().to_string());
    driver.setup.preload = Some(match modules {
        [] => Preload::Auto,
        names => Preload::Modules(names.iter().map(|name| (*name).to_owned()).collect()),
    });
    driver
}

/// The arguments of a process.
fn arguments(pid: u32) -> String {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&words).into_owned()
}

/// The process ids of the fork server and its interpreters, also of those that have become workers.
fn standbys(driver: &Driver) -> Vec<u32> {
    let all = processes_of_run(&driver.run_id).into_iter();
    all.filter(|pid| arguments(*pid).contains("/fork_server.py\0"))
        .collect()
}

/// Waits until the server has forked an interpreter that waits. There must be no worker that has come of one.
async fn interpreter_waits(driver: &Driver) {
    eventually("an interpreter waits", || {
        let waits = |pid: &u32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let (_, fields) = stat.rsplit_once(')').unwrap_or_default();
            // A leader of its session, which sleeps.
            let fields: Vec<_> = fields.split_whitespace().collect();
            fields.first() == Some(&"S") && fields.get(3) == Some(&pid.to_string().as_str())
        };
        standbys(driver).iter().filter(|pid| waits(pid)).count() == 2
    })
    .await;
}

/// The exit of the next process that ends, and its last lines.
async fn exited(control: &mut Control) -> (Exit, Vec<String>) {
    loop {
        match control.report().await.expect("the agent lives") {
            AgentReport::Exited { exit, tail, .. } => return (exit, tail),
            AgentReport::FreePort { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

async fn end(driver: &Driver, agent: Agent, mut control: Control, mut lines: Lines) -> String {
    control.command(AgentCommand::Shutdown).await;
    let (last, _) = tokio::join!(control.report(), lines.rest());
    assert_eq!(last, None);
    let (status, log) = agent.end().await;
    assert!(status.success(), "{log}");
    assert_eq!(processes_of_run(&driver.run_id), [0; 0], "{log}");
    log
}

/// A worker sees no difference between a standby interpreter and a fresh one.
async fn sees_no_difference(command: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let package = directory.path().join("package");
    fs::create_dir(&package).unwrap();
    fs::write(package.join("__init__.py"), "").unwrap();
    let probe = include_str!("fixtures/probe.py");
    for file in [directory.path().join("probe.py"), package.join("probe.py")] {
        fs::write(file, probe).unwrap();
    }
    let driver = driver(command, &[], directory.path()).await;
    let (agent, mut control, lines) = driver.with_agent().await;
    control.spawn_in_group(1).await;
    let fresh = exited(&mut control).await;
    interpreter_waits(&driver).await;
    control.spawn_in_group(2).await;
    let forked = exited(&mut control).await;
    let log = end(&driver, agent, control, lines).await;
    assert_eq!(fresh.0, Exit::Code(1));
    assert_eq!(fresh, forked, "{log}");
    let state = |way: &str| {
        let state = fs::read_to_string(directory.path().join(way));
        state.unwrap_or_else(|error| panic!("{way}: {error}: {fresh:?} {forked:?} {log}"))
    };
    let (fresh, forked) = (state("fresh"), state("forked"));
    let pairs = fresh.lines().zip(forked.lines());
    let differences: Vec<_> = pairs.filter(|(fresh, forked)| fresh != forked).collect();
    assert!(fresh == forked, "{differences:?}");
    let by_standby = "a standby interpreter becomes the worker";
    assert!(log.contains(by_standby), "{log}");
}

#[tokio::test]
async fn a_script_sees_no_difference() {
    sees_no_difference(&["python3", "-u", "-X", "dev", "probe.py", "--lr", "1"]).await;
}

#[tokio::test]
async fn a_module_sees_no_difference() {
    sees_no_difference(&["python3", "-OO", "-m", "package.probe", "--lr", "1"]).await;
}

#[tokio::test]
async fn code_sees_no_difference() {
    let code = include_str!("fixtures/probe.py");
    sees_no_difference(&["python3", "-c", code, "-m", "1"]).await;
}

#[tokio::test]
async fn a_module_that_starts_a_thread_is_left_out() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    write(
        "starts_thread.py",
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n",
    );
    write(
        "opens_device.py",
        "import os\nos.open('/dev/zero', os.O_RDWR)\n",
    );
    write("fails.py", "raise RuntimeError('not now')\n");
    write("is_kept.py", "");
    write(
        "main.py",
        "import sys\nprint(*sorted({'starts_thread', 'opens_device', 'fails', 'is_kept'} & set(sys.modules)))\n",
    );
    let modules = ["starts_thread", "is_kept", "opens_device", "fails"];
    let driver = driver(&["python3", "main.py"], &modules, directory.path()).await;
    let (agent, mut control, lines) = driver.with_agent().await;
    control.spawn_in_group(1).await;
    assert_eq!(
        exited(&mut control).await,
        (Exit::Code(0), vec![String::new()])
    );
    interpreter_waits(&driver).await;
    control.spawn_in_group(2).await;
    let kept = vec!["is_kept".to_owned()];
    assert_eq!(exited(&mut control).await, (Exit::Code(0), kept));
    let log = end(&driver, agent, control, lines).await;
    for reason in [
        "its import starts a thread",
        "its import keeps /dev/zero open",
        "its import fails: RuntimeError: not now",
    ] {
        assert_eq!(log.matches(reason).count(), 1, "{reason}: {log}");
    }
}

#[tokio::test]
async fn modules_of_the_user_are_read_and_not_executed() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("package")).unwrap();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    let executed = "open('executed', 'a').write('x')\n";
    write(
        "helper.py",
        &format!("{executed}import wave\nfrom package import part\n"),
    );
    write("package/__init__.py", executed);
    write(
        "package/part.py",
        &format!("{executed}from . import other\n"),
    );
    write(
        "package/other.py",
        &format!(
            "{executed}try:\n    from email import mime\n    import no_such_module\nexcept ImportError:\n    pass\n"
        ),
    );
    write(
        "main.py",
        "import sys\nprint(*sorted({'wave', 'email.mime', 'helper', 'package'} & set(sys.modules)))\nimport helper\n",
    );
    let driver = driver(&["python3", "main.py"], &[], directory.path()).await;
    let (agent, mut control, lines) = driver.with_agent().await;
    control.spawn_in_group(1).await;
    assert_eq!(
        exited(&mut control).await,
        (Exit::Code(0), vec![String::new()])
    );
    interpreter_waits(&driver).await;
    control.spawn_in_group(2).await;
    let imported = vec!["email.mime wave".to_owned()];
    assert_eq!(exited(&mut control).await, (Exit::Code(0), imported));
    // Four modules, once by each of the two workers.
    let executed = fs::read_to_string(directory.path().join("executed")).unwrap();
    assert_eq!(executed.len(), 8);
    end(&driver, agent, control, lines).await;
}

#[tokio::test]
async fn a_killed_server_fails_no_worker_and_is_started_again() {
    let directory = tempfile::tempdir().unwrap();
    let code = "print(open('/proc/self/cmdline').read().count('/fork_server.py\\0'))";
    let driver = driver(&["python3", "-c", code], &[], directory.path()).await;
    let (agent, mut control, lines) = driver.with_agent().await;
    control.spawn_in_group(1).await;
    assert_eq!(exited(&mut control).await.1, ["0"]);
    interpreter_waits(&driver).await;
    for pid in standbys(&driver) {
        kill(pid, libc::SIGKILL);
    }
    // Another server may be ready already.
    control.spawn_in_group(2).await;
    let (exit, way) = exited(&mut control).await;
    assert_eq!(exit, Exit::Code(0), "{way:?}");
    interpreter_waits(&driver).await;
    control.spawn_in_group(3).await;
    assert_eq!(exited(&mut control).await.1, ["1"]);
    end(&driver, agent, control, lines).await;
}

#[tokio::test]
async fn nothing_outlives_a_killed_agent() {
    let directory = tempfile::tempdir().unwrap();
    let code = "import time\nif '/fork_server.py\\0' in open('/proc/self/cmdline').read(): print('up', flush=True), time.sleep(1000)";
    let driver = driver(&["python3", "-c", code], &[], directory.path()).await;
    let (agent, mut control, mut lines) = driver.with_agent().await;
    control.spawn_in_group(1).await;
    assert_eq!(exited(&mut control).await.0, Exit::Code(0));
    interpreter_waits(&driver).await;
    control.spawn_in_group(2).await;
    lines.until("up").await;
    // The worker, the server, and an interpreter for the next one.
    eventually("an interpreter waits again", || {
        standbys(&driver).len() == 3
    })
    .await;
    agent.signal(libc::SIGKILL);
    eventually("all are gone", || {
        processes_of_run(&driver.run_id).is_empty()
    })
    .await;
}
