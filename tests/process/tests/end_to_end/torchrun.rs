//! `elasticrun torchrun`: scripts of torchrun's users on one node and on several.

use std::{collections::BTreeSet, fs, net::TcpListener, path::PathBuf};

use elasticrun_process_tests::{Beside, Ended, Job, Running, send_signal};
use nix::sys::signal::Signal;

/// A line of a worker with what torchrun's users read.
const SAY: &str = "echo worker $RANK/$WORLD_SIZE local $LOCAL_RANK/$LOCAL_WORLD_SIZE group $GROUP_RANK/$GROUP_WORLD_SIZE \
                   role $ROLE_NAME $ROLE_RANK/$ROLE_WORLD_SIZE run $TORCHELASTIC_RUN_ID restart $TORCHELASTIC_RESTART_COUNT";

/// A job that runs a shell script as torchrun runs a program. The script has the path of the run's directory.
fn shell(options: &str, script: &str) -> Job {
    let job = Job::new(&format!("torchrun {options} --no-python"));
    let path = job.directory().join("script");
    fs::write(&path, script).expect("a script can be written");
    let path = path.display().to_string();
    job.command(["sh", &path])
}

fn lines(ended: &Ended) -> Vec<&str> {
    let mut lines: Vec<_> = ended.stdout.lines().collect();
    lines.sort_unstable();
    lines
}

/// A port that nothing listens at.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
    listener.local_addr().expect("it has an address").port()
}

/// A job of several nodes on this machine. The first one is started.
struct Nodes {
    job: Running,
    options: String,
    script: PathBuf,
}

impl Nodes {
    fn start(options: &str, script: &str) -> Self {
        let first = shell(options, script);
        let script = first.directory().join("script");
        Self {
            job: first.start(),
            options: options.to_owned(),
            script,
        }
    }

    /// Two nodes with numbers and one worker each. Gives the second one.
    fn two(script: &str) -> (Self, Beside) {
        let port = free_port();
        let options = format!("--nnodes 2 --nproc-per-node 1 --master-port {port}");
        let mut nodes = Self::start(&options, script);
        let second = nodes.join("--node-rank 1");
        (nodes, second)
    }

    /// Two nodes whose workers wait.
    fn two_that_wait() -> (Self, Beside) {
        let (mut nodes, second) = Self::two("echo up >> $PROCESS_TEST_DIR/said; exec sleep 100");
        nodes.wait_lines("up", 2);
        (nodes, second)
    }

    /// Starts another node with more options.
    fn join(&mut self, more: &str) -> Beside {
        let (options, script) = (&self.options, self.script.display());
        let line = format!("torchrun {options} {more} --no-python sh {script}");
        self.job.start_beside(&line)
    }

    /// Waits until this number of workers has recorded a line that begins with `start`.
    fn wait_lines(&mut self, start: &str, count: usize) {
        let path = self.job.path("said");
        self.job.wait_for(&format!("{count} lines {start}"), |_| {
            let text = fs::read_to_string(&path).unwrap_or_default();
            let found = text.lines().filter(|line| line.starts_with(start)).count();
            (found >= count).then_some(())
        });
    }
}

#[test]
fn a_python_script_runs_with_the_environment_and_the_output_of_torchrun() {
    let job = Job::new("torchrun --standalone --nproc_per_node=2 --role trainer --rdzv_id 7");
    let path = job.directory().join("train.py");
    let script = "import os, sys\nprint('worker', os.environ['RANK'], os.environ['ROLE_NAME'], \
                  os.environ['TORCHELASTIC_RUN_ID'], *sys.argv[1:])\nprint('warned', file=sys.stderr)\n";
    fs::write(&path, script).expect("a script can be written");
    let path = path.display().to_string();
    let ended = job.command([path.as_str(), "--lr", "-1"]).run();
    ended.expect(0, &["succeeded"]);
    assert_eq!(
        lines(&ended),
        ["worker 0 trainer 7 --lr -1", "worker 1 trainer 7 --lr -1"]
    );
    assert_eq!(
        ended
            .stderr
            .lines()
            .filter(|line| *line == "warned")
            .count(),
        2
    );
}

#[test]
fn a_module_and_a_variable_of_torchrun() {
    let ended = Job::new("torchrun -m")
        .before(["env", "PET_NPROC_PER_NODE=2"])
        .command(["platform"])
        .run();
    ended.expect(0, &["succeeded"]);
    assert_eq!(lines(&ended).len(), 2, "{}", ended.stdout);
}

#[test]
fn a_failure_ends_the_job_with_code_1_and_restarts_all_workers_before() {
    let script = format!("{SAY}; [ $RANK = 1 ] && exit 7; sleep 100");
    let ended = shell("--nproc-per-node 2 --max_restarts 1", &script).run();
    ended.expect(1, &["exit code 7"]);
    let restarts = |count: u32| {
        let end = format!("restart {count}");
        ended
            .stdout
            .lines()
            .filter(|line| line.ends_with(&end))
            .count()
    };
    assert_eq!((restarts(0), restarts(1)), (2, 2), "{}", ended.stdout);
    let ended = shell("--nproc-per-node 2", &script).run();
    ended.expect(1, &["exit code 7"]);
}

#[test]
fn streams_are_redirected_copied_and_filtered() {
    let script = "echo out $RANK; echo err $RANK >&2";
    let logs = tempfile::tempdir().expect("a directory");
    let logs = logs.path();
    let options = "--nproc-per-node 2 -r 1:3 -t 0:3 --role r --log-dir";
    let job = shell(&format!("{options} {}", logs.display()), script);
    let ended = job.run();
    ended.expect(0, &["succeeded"]);
    assert_eq!(lines(&ended), ["[r0]:out 0"]);
    assert!(ended.stderr.contains("[r0]:err 0\n"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("err 1"), "{}", ended.stderr);
    for rank in 0..2 {
        for (stream, text) in [("stdout", "out"), ("stderr", "err")] {
            let file = logs.join(format!("rank.{rank:03}")).join(stream);
            let text = format!("{text} {rank}\n");
            assert_eq!(fs::read_to_string(file).expect("a file"), text);
        }
    }
    let ended = shell("--nproc-per-node 2 --local-ranks-filter 1", script).run();
    ended.expect(0, &["succeeded"]);
    assert_eq!(lines(&ended), ["out 1"]);
}

#[test]
fn lines_with_a_text_go_to_one_file() {
    let script = "echo loss $RANK; echo acc; echo a warning $RANK >&2; printf 'last loss'";
    let logs = tempfile::tempdir().expect("a directory");
    let options = "--nproc-per-node 2 -t 3 --role r --duplicate-stdout-filters loss,none \
                   --duplicate_stderr_filters warn --log-dir";
    let options = format!("{options} {}", logs.path().display());
    shell(&options, script).run().expect(0, &["succeeded"]);
    let read = |name: &str| {
        let text = fs::read_to_string(logs.path().join(name)).expect("a file");
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    let out = [
        "[r0]:last loss",
        "[r0]:loss 0",
        "[r1]:last loss",
        "[r1]:loss 1",
    ];
    assert_eq!(read("filtered_stdout.log"), out);
    let err = ["[r0]:a warning 0", "[r1]:a warning 1"];
    assert_eq!(read("filtered_stderr.log"), err);
}

#[test]
fn with_a_virtual_local_rank_each_worker_sees_one_device() {
    let script = "echo $RANK $LOCAL_RANK/$LOCAL_WORLD_SIZE $CUDA_VISIBLE_DEVICES; env | grep ^_ELASTICRUN || true";
    let options = "--nproc-per-node 2 --virtual-local-rank";
    let ended = shell(options, script)
        .before(["env", "CUDA_VISIBLE_DEVICES=5,7"])
        .run();
    assert_eq!(lines(&ended), ["0 0/2 5", "1 0/2 7"]);
    let ended = shell(options, script)
        .before(["env", "-u", "CUDA_VISIBLE_DEVICES"])
        .run();
    assert_eq!(lines(&ended), ["0 0/2 0", "1 0/2 1"]);
    let ended = shell(options, "sleep 100")
        .before(["env", "CUDA_VISIBLE_DEVICES=5"])
        .run();
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    let why = "--virtual-local-rank: no device for local rank 1 in CUDA_VISIBLE_DEVICES=5";
    assert!(ended.stderr.contains(why), "{}", ended.stderr);
}

/// The physical cores that this process may use, by their lowest CPU, if the kernel tells them and there is one NUMA node.
fn cores_of_one_node() -> Option<BTreeSet<String>> {
    let status = fs::read_to_string("/proc/self/status").expect("Linux has it");
    let nodes = fs::read_dir("/sys/devices/system/node")
        .into_iter()
        .flatten();
    let is_node = |name: &str| {
        let number = name.strip_prefix("node");
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let nodes = nodes.flatten();
    let nodes = nodes.filter(|entry| entry.file_name().to_str().is_some_and(is_node));
    if nodes.count() > 1 {
        return None;
    }
    let allowed = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.parse::<u32>().expect("a number");
        number(first)..=number(last)
    };
    let cpus = allowed.trim().split(',').flat_map(range);
    let core = |cpu: u32| {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        Some(fs::read_to_string(path).ok()?.trim().to_owned())
    };
    cpus.map(core).collect()
}

#[test]
fn workers_are_bound_to_cpus_from_their_first_instruction() {
    let script = "echo $(grep Cpus_allowed_list /proc/self/status)";
    let ended = shell("--nproc-per-node 2 --numa-binding exclusive", script).run();
    ended.expect(0, &["succeeded"]);
    let lines = lines(&ended);
    assert_eq!(lines.len(), 2, "{}", ended.stdout);
    match cores_of_one_node() {
        Some(cores) if cores.len() >= 2 => {
            assert_ne!(lines[0], lines[1], "{}", ended.stderr);
            assert!(
                ended.stderr.contains("--numa-binding exclusive:"),
                "{}",
                ended.stderr
            );
            assert!(!ended.stderr.contains("unbound"), "{}", ended.stderr);
        }
        // This machine has no core for each worker, or several nodes, or does not tell.
        cores => assert!(
            lines[0] == lines[1] || cores.is_none(),
            "{cores:?} {}",
            ended.stderr
        ),
    }
}

#[test]
fn numbered_nodes_come_together_in_their_order() {
    let port = free_port();
    let options = format!("--nnodes 2 --nproc-per-node 2 --master-port {port}");
    let mut nodes = Nodes::start(&options, SAY);
    let second = nodes.join("--node-rank 1");
    let (code, said) = second.end();
    assert_eq!(code, 0, "{said}");
    let ended = nodes.job.end();
    ended.expect(0, &["succeeded"]);
    let run = lines(&ended)[0]
        .split(" run ")
        .nth(1)
        .expect("a run")
        .to_owned();
    let expected: Vec<_> = (0..4)
        .map(|rank| {
            let (node, local) = (rank / 2, rank % 2);
            format!(
                "worker {rank}/4 local {local}/2 group {node}/2 role default {rank}/4 run {run}"
            )
        })
        .collect();
    assert_eq!(lines(&ended), expected);
    // The token is kept for the next job with this end point, and only its owner may read it.
    let state = ended.path("state/elasticrun/torchrun");
    let token = state.join(format!("127.0.0.1_{port}_none.token"));
    let mode = fs::metadata(token).expect("a token").permissions();
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777,
        0o600
    );
}

#[test]
fn nodes_of_a_rendezvous_join_and_are_lost_without_a_restart_that_counts() {
    let port = free_port();
    let options = format!(
        "--nnodes 1:3 --nproc-per-node 1 --max-restarts 0 --rdzv-backend c10d --rdzv-endpoint localhost:{port} \
         --rdzv-conf last_call_timeout=1"
    );
    let script = "echo size $WORLD_SIZE restart $TORCHELASTIC_RESTART_COUNT rank $RANK >> $PROCESS_TEST_DIR/said; \
                  until [ -e $PROCESS_TEST_DIR/finish ]; do sleep 0.05; done";
    let mut nodes = Nodes::start(&options, script);
    nodes.wait_lines("size 1 restart 0", 1);
    let second = nodes.join("");
    nodes.wait_lines("size 2 restart 0", 2);
    let third = nodes.join("");
    nodes.wait_lines("size 3 restart 0", 3);
    send_signal(third.id(), Signal::SIGKILL);
    nodes.wait_lines("size 2 restart 0", 4);
    let _ = third.end();
    nodes.job.finish();
    let (code, said) = second.end();
    assert_eq!(code, 0, "{said}");
    let ended = nodes.job.end();
    ended.expect(0, &["succeeded"]);
}

#[test]
fn two_nodes_at_once_on_the_machine_of_the_end_point_agree_who_is_first() {
    let port = free_port();
    let options = format!(
        "--nnodes 4 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint localhost:{port}"
    );
    let mut nodes = Nodes::start(&options, SAY);
    let others: Vec<_> = (0..3).map(|_| nodes.join("")).collect();
    for other in others {
        let (code, said) = other.end();
        assert_eq!(code, 0, "{said}");
    }
    let ended = nodes.job.end();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

#[test]
fn a_worker_that_fails_ends_all_nodes() {
    let (nodes, second) = Nodes::two("[ $RANK = 1 ] && exit 3; sleep 100");
    let (code, said) = second.end();
    let ended = nodes.job.end();
    assert_eq!((ended.code, code), (1, 1), "{}{said}", ended.stderr);
    assert!(
        ended.last_line().contains("exit code 3"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_second_job_with_the_same_end_point_is_refused() {
    let port = free_port();
    let options = format!("--nnodes 2 --master-port {port}");
    let mut nodes = Nodes::start(&options, "true");
    nodes.job.wait_said("hosts join by");
    let (code, said) = nodes.join("").end();
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("another job runs at"), "{said}");
    let (code, said) = nodes.join("--node-rank 1").end();
    assert_eq!(code, 0, "{said}");
    nodes.job.end().expect(0, &["succeeded"]);
}

#[test]
fn ctrl_c_on_the_first_node_ends_all() {
    let (nodes, second) = Nodes::two_that_wait();
    send_signal(nodes.job.driver(), Signal::SIGINT);
    let (code, said) = second.end();
    let ended = nodes.job.end();
    assert_eq!((ended.code, code), (130, 130), "{}{said}", ended.stderr);
}

#[test]
fn a_signal_that_torchrun_handles_ends_another_node_in_order() {
    for signal in [Signal::SIGHUP, Signal::SIGQUIT] {
        let (mut nodes, second) = Nodes::two_that_wait();
        send_signal(second.id(), signal);
        nodes.job.wait_said("node1");
        send_signal(second.id(), signal);
        let (code, said) = second.end();
        assert_eq!(code, 0, "{said}");
        send_signal(nodes.job.driver(), Signal::SIGINT);
        assert_eq!(nodes.job.end().code, 130);
    }
}

#[test]
fn the_user_chooses_the_signals_that_end_a_node() {
    let script = "echo up >> $PROCESS_TEST_DIR/said; exec sleep 100";
    let mut nodes = Nodes::start("--signals-to-handle SIGUSR1,SIGINT", script);
    nodes.wait_lines("up", 1);
    send_signal(nodes.job.driver(), Signal::SIGUSR1);
    let ended = nodes.job.end();
    assert_eq!(ended.code, 128 + Signal::SIGUSR1 as i32, "{}", ended.stderr);
    // Another signal has its own action.
    let mut nodes = Nodes::start("--signals-to-handle SIGUSR1", script);
    nodes.wait_lines("up", 1);
    send_signal(nodes.job.driver(), Signal::SIGHUP);
    nodes.job.wait_end();
    assert_eq!(nodes.job.code(), None, "{}", nodes.job.said());
    nodes.job.wait_all_gone();
}

#[test]
fn a_node_with_another_number_of_workers_is_refused() {
    let port = free_port();
    let mut nodes = Nodes::start(&format!("--nnodes 2 --master-port {port}"), "true");
    nodes.job.wait_said("hosts join by");
    let (code, said) = nodes.join("--node-rank 1 --nproc-per-node 3").end();
    assert_eq!(code, 2, "{said}");
    let why = "this node has 3 workers, and the job has 1 on each node; give all nodes the same --nproc-per-node";
    assert!(said.contains(why), "{said}");
    nodes.job.wait_said(
        "host node1 is refused: it has 3 workers, and the job has 1 on each node (--nproc-per-node)",
    );
    let (code, said) = nodes.join("--node-rank 1").end();
    assert_eq!(code, 0, "{said}");
    nodes.job.end().expect(0, &["succeeded"]);
}

#[test]
fn all_nodes_end_when_the_first_one_is_killed() {
    let (mut nodes, second) = Nodes::two_that_wait();
    send_signal(nodes.job.driver(), Signal::SIGKILL);
    let (code, said) = second.end();
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("the driver of this job is gone"), "{said}");
    nodes.job.wait_all_gone();
}

#[test]
fn ctrl_c_twice_on_another_node_ends_it_at_once() {
    let (mut nodes, second) = Nodes::two_that_wait();
    send_signal(second.id(), Signal::SIGINT);
    nodes.job.wait_said("node1");
    send_signal(second.id(), Signal::SIGINT);
    let (code, said) = second.end();
    assert_eq!(code, 0, "{said}");
    send_signal(nodes.job.driver(), Signal::SIGINT);
    assert_eq!(nodes.job.end().code, 130);
}

#[test]
fn a_token_file_that_others_may_read_is_refused_at_once() {
    let port = free_port();
    let options = format!("--nnodes 2 --master-port {port}");
    let mut nodes = Nodes::start(&options, "true");
    nodes.job.wait_said("hosts join by");
    let token = nodes.job.path("copy");
    fs::write(&token, "").expect("a file");
    let join = format!("--node-rank 1 --join-token-file {}", token.display());
    let mode = |mode| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(&token, mode).expect("it is ours");
    };
    mode(0o644);
    let (code, said) = nodes.join(&join).end();
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("others may read it"), "{said}");
    let (code, said) = nodes.join("--node-rank 1").end();
    assert_eq!(code, 0, "{said}");
    nodes.job.end().expect(0, &["succeeded"]);
}

#[test]
fn workers_have_the_variables_of_their_node() {
    let port = free_port();
    let options = format!("--nnodes 2 --nproc-per-node 1 --master-port {port}");
    let script = "echo devices $RANK $CUDA_VISIBLE_DEVICES";
    let first = shell(&options, script).before(["env", "CUDA_VISIBLE_DEVICES=0"]);
    let path = first.directory().join("script").display().to_string();
    let tag = first.tag().variable();
    let (name, value) = (tag.0, tag.1.to_owned());
    let state = first.directory().join("state");
    let job = first.start();
    let second = std::process::Command::new(elasticrun_process_tests::binaries::elasticrun())
        .arg("torchrun")
        .args(options.split_whitespace())
        .args(["--node-rank", "1", "--no-python", "sh", &path])
        .env("CUDA_VISIBLE_DEVICES", "7")
        .env("XDG_STATE_HOME", state)
        .env(name, value)
        .output()
        .expect("the binary is built");
    assert!(second.status.success(), "{second:?}");
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    assert_eq!(lines(&ended), ["devices 0 0", "devices 1 7"]);
}
