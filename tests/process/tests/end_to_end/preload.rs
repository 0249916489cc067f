//! Standby interpreters: a group of scripts that restarts comes of interpreters that have imported its modules.

use std::{collections::BTreeSet, fs};

use elasticrun_process_tests::{Job, Running, binaries, send_signal};
use nix::sys::signal::Signal;

use crate::support::parent_of;

/// What a worker records at its start. `wave` is a module that nothing else imports.
const RECORD: &str = r#"
import sys
way = "forked" if "wave" in sys.modules else "fresh"
import wave
import os, signal, time
env = os.environ
group, rank = int(env["TORCHELASTIC_RESTART_COUNT"]), int(env["RANK"])
directory = env["PROCESS_TEST_DIR"]
with open(directory + "/said", "a") as said:
    print(group, rank, env["WORLD_SIZE"], env["MASTER_PORT"], way, os.getpid(), sys.argv[1:], os.getcwd(), __name__, file=said)
def wait(name):
    while not os.path.exists(directory + "/" + name):
        time.sleep(0.01)
"#;

/// A worker as recorded at its start.
#[derive(Clone, Debug)]
struct Member {
    rank: u32,
    port: u32,
    forked: bool,
    pid: u32,
    /// Its arguments, its directory and its `__name__`.
    rest: String,
}

/// A job whose workers record their start, then run this Python code.
fn job(flags: &str, code: &str) -> Job {
    let code = format!("{RECORD}{code}");
    Job::new(flags).command(["python3", "-c", &code, "first", "--second"])
}

/// The members of a group that have recorded their start, by rank.
fn members(job: &Running, group: u32) -> Vec<Member> {
    let said = fs::read_to_string(job.path("said")).unwrap_or_default();
    let all = said.lines().filter_map(|line| {
        let words: Vec<_> = line.splitn(7, ' ').collect();
        let number = |index: usize| words[index].parse::<u32>().ok();
        (number(0)? == group).then(|| Member {
            rank: number(1).unwrap(),
            port: number(3).unwrap(),
            forked: words[4] == "forked",
            pid: number(5).unwrap(),
            rest: words[6].to_owned(),
        })
    });
    let mut all: Vec<_> = all.collect();
    all.sort_by_key(|member| member.rank);
    all
}

fn wait_group(job: &mut Running, group: u32, size: usize) -> Vec<Member> {
    job.wait_until(&format!("group {group} of {size}"), |job| {
        let members = members(job, group);
        (members.len() == size).then_some(members)
    })
}

/// The fork servers of a run and their interpreters, without those that have become workers.
fn standbys(job: &Running) -> BTreeSet<u32> {
    let workers: BTreeSet<_> = (0..10)
        .flat_map(|group| members(job, group))
        .collect::<Vec<_>>()
        .into_iter()
        .map(|member| member.pid)
        .collect();
    let all = job.tag().processes().into_iter();
    all.filter(|(pid, command)| command.contains("/fork_server.py ") && !workers.contains(pid))
        .map(|(pid, _)| pid)
        .collect()
}

/// Waits until so many interpreters wait: they and their server are leaders of their sessions, and sleep.
fn wait_standbys(job: &mut Running, count: usize) {
    job.wait_until(&format!("{count} interpreters wait"), |job| {
        let waits = |pid: &u32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let (_, fields) = stat.rsplit_once(')').unwrap_or_default();
            let fields: Vec<_> = fields.split_whitespace().collect();
            fields.first() == Some(&"S") && fields.get(3) == Some(&pid.to_string().as_str())
        };
        let waiting = standbys(job).iter().filter(|pid| waits(pid)).count();
        (waiting == count + 1).then_some(())
    });
}

#[test]
fn a_standby_interpreter_gets_the_device_and_the_cpus_of_its_worker() {
    let code = "\
with open(f'{directory}/seen.{group}', 'a') as seen:
    print(rank, env['LOCAL_RANK'], env['CUDA_VISIBLE_DEVICES'], sorted(os.sched_getaffinity(0)), file=seen)
wait('finish')
";
    let flags = "torchrun --nproc-per-node 2 --max-restarts 1 --virtual-local-rank --numa-binding exclusive --no-python";
    let mut job = job(flags, code)
        .before(["env", "CUDA_VISIBLE_DEVICES=5,7", "ELASTICRUN_PRELOAD=auto"])
        .start();
    let first = wait_group(&mut job, 0, 2);
    wait_standbys(&mut job, 2);
    send_signal(first[0].pid, Signal::SIGKILL);
    let next = wait_group(&mut job, 1, 2);
    assert!(next.iter().all(|member| member.forked), "{next:?}");
    let mut seen = |group: u32| {
        job.wait_until("both have said what they see", |job| {
            let path = job.path(&format!("seen.{group}"));
            let text = fs::read_to_string(path).unwrap_or_default();
            let lines: BTreeSet<_> = text.lines().map(str::to_owned).collect();
            (text.ends_with('\n') && lines.len() == 2).then_some(lines)
        })
    };
    let (before, after) = (seen(0), seen(1));
    // On a machine with two cores these are different CPUs.
    assert_eq!(before, after);
    for (line, start) in before.iter().zip(["0 0 5 [", "1 0 7 ["]) {
        assert!(line.starts_with(start), "{line}");
    }
    job.finish();
    job.end().expect(0, &["succeeded"]);
}

#[test]
fn a_group_restarts_by_standby_interpreters() {
    let mut job = job(
        "-np 3 --max-restarts 2 --preload auto --verbose",
        "wait('finish')",
    )
    .start();
    let first = wait_group(&mut job, 0, 3);
    let agent = parent_of(first[0].pid);
    assert!(first.iter().all(|member| !member.forked), "{first:?}");
    for group in 1..3 {
        wait_standbys(&mut job, 3);
        let before = members(&job, group - 1);
        send_signal(before[1].pid, Signal::SIGKILL);
        let next = wait_group(&mut job, group, 3);
        assert!(next.iter().all(|member| member.forked), "{next:?}");
        assert!(next.iter().all(|member| parent_of(member.pid) == agent));
        let rest: BTreeSet<_> = next.iter().map(|member| &member.rest).collect();
        assert_eq!(rest, BTreeSet::from([&first[0].rest]));
        let ports: BTreeSet<_> = next.iter().map(|member| member.port).collect();
        assert!(ports.len() == 1 && !ports.contains(&before[0].port));
    }
    assert!(
        first[0].rest.starts_with("['first', '--second'] /"),
        "{first:?}"
    );
    assert!(first[0].rest.ends_with(" __main__"), "{first:?}");
    job.touch("finish");
    let ended = job.end();
    ended.expect(0, &["succeeded through 2 failures"]);
    let by_standby = "a standby interpreter becomes the worker";
    assert_eq!(
        ended.stderr.matches(by_standby).count(),
        6,
        "{}",
        ended.stderr
    );
}

#[test]
fn exits_signals_and_output_are_those_of_an_ordinary_worker() {
    let code = r#"
def told(number, frame):
    print("told", number)
    sys.exit(0)
if group == 0:
    wait("fail" if rank else "never")
    sys.exit(3)
if group == 1 and rank == 0:
    signal.signal(signal.SIGTERM, told)
    open(directory + "/ready", "w")
    time.sleep(1000)
if group == 1:
    wait("ready")
    sys.exit("a message")
wait("end")
print("out", rank)
sys.stdout.flush()
os.kill(os.getpid(), signal.SIGSEGV)
"#;
    let mut job = job("-np 2 --max-restarts 2 --preload auto", code).start();
    wait_group(&mut job, 0, 2);
    wait_standbys(&mut job, 2);
    job.touch("fail");
    let second = wait_group(&mut job, 1, 2);
    assert!(second.iter().all(|member| member.forked), "{second:?}");
    wait_group(&mut job, 2, 2);
    job.touch("end");
    let ended = job.end();
    ended.expect(1, &["no restart is left", "exit code 3"]);
    for (text, output) in [
        ("[0]<stdout>:told 15", &ended.stdout),
        ("[1]<stderr>:a message", &ended.stderr),
        ("<stdout>:out ", &ended.stdout),
        ("exit code 1", &ended.stderr),
        ("signal 11 (SIGSEGV)", &ended.stderr),
    ] {
        assert!(
            output.contains(text),
            "{text}: {} {}",
            ended.stdout,
            ended.stderr
        );
    }
}

#[test]
fn a_module_that_starts_a_thread_is_named_and_left_out() {
    let job = job(
        "-np 1 --max-restarts 1 --preload starts_thread --verbose",
        "wait('finish')",
    );
    let module =
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n";
    let directory = job.directory().to_owned();
    fs::write(directory.join("starts_thread.py"), module).unwrap();
    let path = format!("PYTHONPATH={}", directory.display());
    let mut job = job.before(["env", &path]).start();
    job.wait_said("its import starts a thread");
    wait_standbys(&mut job, 1);
    job.touch("finish");
    job.end().expect(0, &["succeeded"]);
}

#[test]
fn a_resumed_job_restarts_by_standby_interpreters() {
    let flags = "-np 2 --max-restarts 1 --preload auto --orphan-timeout 30s --journal auto";
    let mut job = job(flags, "wait('finish')").start();
    job.wait_said("elasticrun resume ");
    let said = job.said();
    let id = said.split("elasticrun resume ").nth(1).unwrap();
    let id = id.split_whitespace().next().unwrap();
    let first = wait_group(&mut job, 0, 2);
    wait_standbys(&mut job, 2);
    let before = standbys(&job);
    job.kill_only_driver();
    let mut job = job.resume(&format!("resume {id}"));
    job.wait_said("goes on");
    assert_eq!(standbys(&job), before);
    send_signal(first[0].pid, Signal::SIGKILL);
    let next = wait_group(&mut job, 1, 2);
    assert!(
        next.iter().all(|member| before.contains(&member.pid)),
        "{next:?}"
    );
    job.touch("finish");
    job.end().expect(0, &["succeeded"]);
}

#[test]
fn no_interpreter_outlives_a_driver_that_is_killed() {
    let mut job = job("-np 2 --max-restarts 1 --preload auto", "wait('finish')").start();
    let first = wait_group(&mut job, 0, 2);
    wait_standbys(&mut job, 2);
    send_signal(first[0].pid, Signal::SIGKILL);
    wait_group(&mut job, 1, 2);
    job.kill_driver();
}

#[test]
fn interpreters_end_once_a_worker_has_attached() {
    let worker = binaries::worker().display().to_string();
    let code = format!("wait('attach')\nos.execv('{worker}', ['{worker}'])");
    let flags = "-np 2 --min-np 1 --preload auto";
    let mut job = job(flags, &code).start();
    wait_group(&mut job, 0, 2);
    wait_standbys(&mut job, 2);
    job.touch("attach");
    job.wait_training(2, 2);
    job.wait_until("the interpreters end", |job| {
        standbys(job).is_empty().then_some(())
    });
    job.finish();
    job.end().expect(0, &["succeeded"]);
}
