//! `elasticrun torchrun`: what torchrun's command lines mean.

use std::{path::Path, time::Duration};

use elasticrun::{
    cli::{ElectedRequest, Invocation, JoinRequest, NodeRequest, RunRequest},
    config::{Journal, Launcher, Mode, Prefix, RestartMode, SlotsPerHost, Source, WorkerEnv},
    signals::StopSignals,
};
use elasticrun_agent::{NODE_SLOTS, NUMA_BINDING, VIRTUAL_LOCAL_RANK};

use super::with;

/// A script that is there, as torchrun expects it.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");

/// Variables of a user without settings.
const HOME: [(&str, &str); 2] = [("HOME", "/home/me"), ("PYTHON_EXEC", "py")];

fn invocation(options: &str, environment: &[(&str, &str)]) -> Invocation {
    let mut words = vec!["torchrun"];
    words.extend(options.split_whitespace());
    words.extend([SCRIPT, "--lr", "1"]);
    let environment: Vec<_> = HOME.iter().chain(environment).copied().collect();
    with(&words, &environment).unwrap_or_else(|error| panic!("{options}: {error}"))
}

/// A job of one node.
fn job(options: &str, environment: &[(&str, &str)]) -> RunRequest {
    match invocation(options, environment) {
        Invocation::Run(request) => *request,
        other => panic!("{options}: {other:?}"),
    }
}

fn node(options: &str) -> NodeRequest {
    match invocation(options, &[]) {
        Invocation::Torchrun(node) => node,
        other => panic!("{options}: {other:?}"),
    }
}

fn first(options: &str) -> (RunRequest, JoinRequest, bool) {
    match node(options) {
        NodeRequest::First {
            run,
            agent,
            unless_another,
        } => (*run, agent, unless_another),
        other => panic!("{options}: {other:?}"),
    }
}

fn other(options: &str) -> JoinRequest {
    match node(options) {
        NodeRequest::Other(agent) => agent,
        other => panic!("{options}: {other:?}"),
    }
}

fn elected(options: &str) -> ElectedRequest {
    match node(options) {
        NodeRequest::Elected(node) => node,
        other => panic!("{options}: {other:?}"),
    }
}

fn np(request: &RunRequest) -> (u32, Option<u32>) {
    let workers = request.settings.workers;
    (workers.np.get(), workers.max_np.map(u32::from))
}

fn refused(options: &str, environment: &[(&str, &str)]) -> String {
    let words: Vec<_> = ["torchrun"]
        .into_iter()
        .chain(options.split_whitespace())
        .collect();
    match with(&words, environment) {
        Err(error) => error.to_string(),
        Ok(other) => panic!("{options} is accepted: {other:?}"),
    }
}

#[test]
fn a_script_runs_by_python_with_its_arguments() {
    let command = |options: &str| job(options, &[]).settings.command;
    assert_eq!(command(""), ["py", "-u", SCRIPT, "--lr", "1"]);
    assert_eq!(command("--module"), ["py", "-u", "-m", SCRIPT, "--lr", "1"]);
    assert_eq!(command("--no_python"), [SCRIPT, "--lr", "1"]);
    let by_path = command("--run-path --no-python");
    assert_eq!(&by_path[..3], ["py", "-u", "-c"]);
    assert_eq!(&by_path[4..], [SCRIPT, "--lr", "1"]);
}

#[test]
fn one_node_has_as_many_workers_as_it_has_processes() {
    let request = job("--standalone --nproc_per_node=4", &[]);
    assert_eq!(np(&request), (4, Some(4)));
    assert_eq!(request.settings.mode, Mode::Standard);
    assert_eq!(request.settings.output.prefix, Prefix::None);
    assert_eq!(request.settings.timeouts.shutdown, Duration::from_secs(30));
    assert_eq!(np(&job("--nnodes 1:1 --nproc 2", &[])), (2, Some(2)));
    let rdzv = "--rdzv-backend c10d --rdzv-endpoint elsewhere:1 --rdzv-conf join_timeout=5";
    assert_eq!(np(&job(rdzv, &[])), (1, Some(1)));
    let cpus = std::thread::available_parallelism()
        .expect("a number")
        .get();
    assert_eq!(np(&job("--nproc-per-node cpu", &[])).0 as usize, cpus);
}

#[test]
fn restarts_are_those_of_the_whole_group() {
    let settings = job("--max_restarts 3", &[]).settings;
    assert_eq!(settings.mode, Mode::Elastic);
    assert_eq!(settings.failures.max_restarts, 3);
    assert_eq!(settings.failures.restart_mode, RestartMode::Process);
}

#[test]
fn variables_set_options_that_are_not_given() {
    let environment = [
        ("PET_NPROC_PER_NODE", "3"),
        ("PET_MAX_RESTARTS", "2"),
        ("PET_NO_PYTHON", "1"),
        ("PET_MODULE", "0"),
        ("ELASTICRUN_ELASTIC_TIMEOUT", "7"),
    ];
    let request = job("--max-restarts 4", &environment);
    assert_eq!(np(&request), (3, Some(3)));
    assert_eq!(request.settings.failures.max_restarts, 4);
    assert_eq!(request.settings.command[0], SCRIPT);
    assert_eq!(request.settings.timeouts.elastic, Duration::from_secs(7));
}

#[test]
fn variables_of_elasticrun_replace_habits_of_torchrun_and_no_options() {
    let environment = [
        ("ELASTICRUN_SHUTDOWN_TIMEOUT", "5"),
        ("ELASTICRUN_LINE_PREFIX", "$rank:"),
        ("ELASTICRUN_NP", "3"),
        ("ELASTICRUN_MAX_RESTARTS", "9"),
    ];
    let request = job("--max-restarts 1", &environment);
    assert_eq!(np(&request), (3, Some(3)));
    let settings = &request.settings;
    assert_eq!(settings.timeouts.shutdown, Duration::from_secs(5));
    assert!(matches!(settings.output.prefix, Prefix::Template(_)));
    assert_eq!(settings.failures.max_restarts, 1);
    let request = job("--nproc-per-node 2 --shutdown-timeout 7", &environment);
    assert_eq!(np(&request), (2, Some(2)));
    assert_eq!(request.settings.timeouts.shutdown, Duration::from_secs(7));
}

#[test]
fn role_and_id_are_variables_of_the_workers() {
    let request = job(
        "--role trainer --rdzv-id 42",
        &[("ELASTICRUN_ENV", "MINE=1;PATH")],
    );
    let words: Vec<_> = (request.settings.launch.env.iter())
        .map(|variable| (variable.name.as_str(), variable.value.as_deref()))
        .collect();
    assert_eq!(
        words,
        [
            ("MINE", Some("1")),
            ("PATH", None),
            ("ROLE_NAME", Some("trainer")),
            ("TORCHELASTIC_RUN_ID", Some("42")),
        ]
    );
}

#[test]
fn agents_learn_how_to_start_workers() {
    let told = |options: &str, environment: &[(&str, &str)]| {
        let told = job(options, environment).settings.launch.env;
        let told = told.into_iter();
        let told = told.map(|variable| (variable.name, variable.value.unwrap_or_default()));
        told.collect::<Vec<_>>()
    };
    let own_device = (VIRTUAL_LOCAL_RANK.to_owned(), "1".to_owned());
    let bound = (NUMA_BINDING.to_owned(), "core-complex".to_owned());
    let options = "--virtual_local_rank --numa-binding core-complex";
    assert_eq!(told(options, &[]), [own_device.clone(), bound]);
    let variables = [("PET_VIRTUAL_LOCAL_RANK", "1")];
    assert_eq!(told("", &variables), [own_device]);
    assert_eq!(told("--standalone", &[]), []);
    let (first, ..) = first("--nnodes 2 --nproc-per-node 4");
    let [slots] = first.settings.launch.env.as_slice() else {
        panic!("{:?}", first.settings.launch.env);
    };
    assert_eq!(
        (slots.name.as_str(), slots.value.as_deref()),
        (NODE_SLOTS, Some("4"))
    );
}

#[test]
fn each_node_handles_the_signals_of_the_user() {
    let two = "--signals-to-handle SIGTERM,SIGUSR1";
    let expected = StopSignals::parse("SIGTERM,SIGUSR1").expect("two signals");
    assert_eq!(job(two, &[]).stop_signals, expected);
    let nodes = format!("--nnodes 2 --master-addr 10.0.0.1 {two}");
    assert_eq!(first(&nodes).0.stop_signals, expected);
    let other = other(&format!("{nodes} --node-rank 1"));
    assert_eq!(other.stop_signals, expected);
    assert!(other.with_job_code);
    let rdzv = format!("--nnodes 2 --rdzv etcd://e --rdzv-id j {two}");
    assert_eq!(elected(&rdzv).stop_signals, expected);
    // Its node passes signals on to this driver.
    let driver = job(&format!("--as-driver 1 --join-token-file t {rdzv}"), &[]);
    assert_eq!(driver.stop_signals, StopSignals::default());
    assert_eq!(job("", &[]).stop_signals, StopSignals::default());
}

#[test]
fn filtered_lines_have_a_file_of_their_own() {
    let request = job("--duplicate_stdout_filters loss,acc --log-dir d", &[]);
    assert!(request.notes.is_empty(), "{:?}", request.notes);
    let output = request.settings.output;
    assert_eq!(output.directory.as_deref(), Some(Path::new("d")));
    let filters = output.stdout_filters.expect("two texts");
    assert!(filters.pass(b"the acc") && !filters.pass(b"other"));
    assert_eq!(output.stderr_filters, None);
}

#[test]
fn streams_go_to_files_and_those_of_tee_to_the_console_as_well() {
    let output = |options: &str| job(options, &[]).settings.output;
    let files = |options: &str| output(options).directory;
    assert_eq!(files("--log-dir d"), None);
    assert_eq!(files("--log-dir d -t 3").as_deref(), Some(Path::new("d")));
    let both = output("--log-dir d -r 3 --tee 0:1 --local-ranks-filter 0");
    let hidden = |rank, stderr| both.redirects.has(rank, stderr);
    assert!(!hidden(0, false) && hidden(0, true) && hidden(1, false));
    assert!(
        both.shown
            .is_some_and(|shown| shown.contains(0) && !shown.contains(1))
    );
    assert!(matches!(both.prefix, Prefix::Template(_)));
    let Prefix::Template(template) = output("--tee 3 --log-line-prefix-template ${rank}:").prefix
    else {
        panic!("no template");
    };
    assert_eq!(template.to_string(), "${rank}:");
}

#[test]
fn options_that_tune_torchrun_itself_are_listed() {
    let notes = job("--monitor_interval 5 --start-method fork --log-dir d", &[]).notes;
    assert_eq!(
        notes,
        ["without effect in elasticrun: --monitor_interval, --start-method, --log-dir"]
    );
    assert!(job("--standalone --nproc-per-node 2", &[]).notes.is_empty());
}

#[test]
fn nodes_with_numbers_are_fixed_hosts_in_their_order() {
    let options = "--nnodes 2 --nproc-per-node 4 --master-addr 10.0.0.1 --master-port 1234";
    let (run, agent, unless_another) = first(options);
    assert!(!unless_another);
    let [Source::Fixed(hosts)] = run.settings.hosts.sources.as_slice() else {
        panic!("{:?}", run.settings.hosts.sources);
    };
    let names: Vec<_> = hosts.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["node0:4", "node1:4"]);
    assert_eq!(np(&run), (8, Some(8)));
    assert_eq!(run.settings.failures.restart_mode, RestartMode::Process);
    assert_eq!(run.settings.launch.worker_env, WorkerEnv::Host);
    let launch = &run.settings.launch;
    assert_eq!(launch.launcher, Some(Launcher::Agent));
    assert_eq!(launch.listen, "0.0.0.0:1234".parse().ok());
    let token = launch
        .join
        .as_ref()
        .and_then(|join| join.token_file.clone());
    assert_eq!(token.as_ref(), Some(&agent.token_file));
    assert_eq!(
        agent.token_file,
        Path::new("/home/me/.local/state/elasticrun/torchrun/10.0.0.1_1234_none.token")
    );
    assert_eq!(agent.driver.to_string(), "10.0.0.1:1234");
    assert_eq!(agent.slots, SlotsPerHost::Fixed(4));
    let second = other(&format!("{options} --node-rank 1"));
    assert_eq!(
        second.host.map(|host| host.to_string()).as_deref(),
        Some("node1")
    );
    assert_eq!(second.token_file, agent.token_file);
}

#[test]
fn nodes_of_a_rendezvous_join_and_leave() {
    let options = "--nnodes 2:4 --nproc-per-node 2 --max-restarts 3 --rdzv-backend c10d --rdzv-id a/b \
                   --rdzv-conf last_call_timeout=3,keep_alive_interval=2,keep_alive_max_attempt=4,timeout=9";
    let (run, agent, unless_another) = first(&format!("{options} --rdzv-endpoint localhost"));
    assert!(unless_another);
    assert_eq!(np(&run), (4, Some(8)));
    let settings = &run.settings;
    assert_eq!(settings.hosts.sources, [Source::Registration]);
    assert_eq!(settings.launch.listen, "127.0.0.1:29400".parse().ok());
    assert_eq!(settings.timeouts.last_call, Duration::from_secs(3));
    assert_eq!(settings.timeouts.heartbeat_interval, Duration::from_secs(2));
    assert_eq!(settings.timeouts.heartbeat, Duration::from_secs(8));
    assert_eq!(settings.failures.max_host_failures, None);
    assert_eq!(
        run.notes,
        ["without effect in elasticrun: --rdzv-conf timeout"]
    );
    assert!(
        agent
            .token_file
            .ends_with("torchrun/localhost_29400_a_b.token")
    );
    assert_eq!(agent.host, None);
    let elsewhere = other(&format!("{options} --rdzv-endpoint 192.0.2.1:77"));
    assert_eq!(elsewhere.driver.to_string(), "192.0.2.1:77");
    let told = ",is_host=true --rdzv-endpoint 192.0.2.1:77 --join-token-file t";
    let (_, agent, unless_another) = first(&format!("{options}{told}"));
    assert!(!unless_another);
    assert_eq!(agent.token_file, Path::new("t"));
}

#[test]
fn nodes_that_meet_in_etcd_elect_the_one_with_the_driver() {
    let options =
        "--nnodes 2:4 --nproc-per-node 2 --rdzv-id a/b --rdzv-conf close_timeout=5,join_timeout=60";
    let by_url = format!("{options} --rdzv etcd://e1,e2:77/jobs");
    let by_names = format!("{options} --rdzv-backend etcd-v2 --rdzv-endpoint e1,e2:77");
    for (options, etcd) in [
        (by_url, "etcd://e1,e2:77/jobs"),
        (by_names, "etcd://e1,e2:77"),
    ] {
        let node = elected(&options);
        assert_eq!(
            (node.etcd.to_string().as_str(), node.id.as_str()),
            (etcd, "a/b")
        );
        assert_eq!(node.slots.get(), 2);
        assert_eq!(node.close_timeout, Duration::from_secs(5));
        assert!(node.notes.is_empty(), "{:?}", node.notes);
        // By these words the node starts its driver.
        let words: Vec<_> = node
            .words
            .iter()
            .map(|word| word.to_str().expect("text"))
            .collect();
        let words = words[..words.len() - 3].join(" ");
        let run = job(
            &format!("--as-driver 1a2b3c4d --join-token-file t {words}"),
            &[],
        );
        assert_eq!(run.run_id.as_deref(), Some("1a2b3c4d"));
        assert_eq!(np(&run), (4, Some(8)));
        let settings = &run.settings;
        assert_eq!(settings.hosts.sources, [Source::Registration]);
        assert_eq!(settings.failures.restart_mode, RestartMode::Process);
        assert_eq!(settings.timeouts.orphan, Duration::from_secs(12));
        assert_eq!(settings.timeouts.elastic, Duration::from_secs(60));
        assert_eq!(settings.launch.listen, None);
        let Journal::Etcd(place) = &settings.journal else {
            panic!("{:?}", settings.journal);
        };
        assert_eq!(place.to_string(), etcd);
    }
}

#[test]
fn an_agent_with_rdzv_is_such_a_node() {
    let words = "agent --rdzv etcd://e --rdzv-id j --nnodes 2:8 --nproc-per-node 4 -- python train.py --lr 1";
    let words: Vec<_> = words.split_whitespace().collect();
    let Ok(Invocation::Torchrun(NodeRequest::Elected(node))) = with(&words, &HOME) else {
        panic!("it is a node");
    };
    assert_eq!((node.id.as_str(), node.slots.get()), ("j", 4));
    let words = ["torchrun", "--as-driver", "1"].map(Into::into);
    let words: Vec<_> = words.into_iter().chain(node.words).collect();
    let words: Vec<_> = words
        .iter()
        .map(|word| word.to_str().expect("text"))
        .collect();
    match with(&words, &HOME) {
        Ok(Invocation::Run(run)) => {
            assert_eq!(run.settings.command, ["python", "train.py", "--lr", "1"]);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn wrong_values_name_the_option_that_was_written() {
    let mut lines = String::new();
    let with_script = |options: &str| format!("{options} {SCRIPT}");
    for options in [
        "",
        "no/such/train.py",
        &with_script("--nnodes 0"),
        &with_script("--nnodes 4:2"),
        &with_script("--nnodes=1:2:3"),
        &with_script("--nnodes 2:3"),
        &with_script("--nproc-per-node -1"),
        &with_script("--nproc_per_node many"),
        &with_script("--nproc-per-node 4096"),
        &with_script("--max_restarts x"),
        &with_script("--node-rank 1"),
        &with_script("--nnodes 2 --node_rank 2"),
        &with_script("--nnodes 2 --master-port 0"),
        &with_script("--nnodes 2 --master-addr a:b"),
        &with_script("--nnodes 2 --rdzv-backend etcd"),
        &with_script("--nnodes 2 --rdzv-backend c10d"),
        &with_script("--nnodes 2 --rdzv-backend c10d --rdzv-endpoint a:0"),
        &with_script("--nnodes 2 --standalone"),
        &with_script("--rdzv-conf join_timeout"),
        &with_script("--nnodes 2 --rdzv-conf join_timeout=soon"),
        &with_script("--nnodes 2 --rdzv-conf keep_alive_max_attempt=1"),
        &with_script("--nnodes 2"),
        &with_script("-r 4 --log-dir d"),
        &with_script("-r 3"),
        &with_script("-t x"),
        &with_script("--duplicate_stdout_filters loss"),
        &with_script("--duplicate-stderr-filters , --log-dir d"),
        &with_script("--numa-binding cpu"),
        &with_script("--signals-to-handle SIGTERM,SIGKILL"),
        &with_script("--local_ranks_filter a"),
        &with_script("--tee 3 --log-line-prefix-template ${pid}"),
        &with_script("--shutdown-timeout never"),
        &with_script("-m --no-python"),
        &with_script("--rdzv x --rdzv-id j"),
        &with_script("--rdzv etcd://a"),
        &with_script("--rdzv etcd://a:0 --rdzv-id j"),
        &with_script("--rdzv etcd://a --rdzv-id j --rdzv-endpoint b"),
        &with_script("--rdzv etcd://a --rdzv-id j --rdzv-backend c10d"),
        &with_script("--rdzv etcd://a --rdzv-id j --join-token-file t"),
        &with_script("--rdzv etcd://a --rdzv-id j --rdzv-conf close_timeout=soon"),
        &with_script("--nnodes 2 --rdzv-backend etcd --rdzv-endpoint a:b --rdzv-id j"),
        &with_script("--nnodes 2 --rdzv-backend zk"),
        &with_script("--min-np 2"),
        "--nproc-per-node",
    ] {
        let environment: &[_] = match options.contains("rdzv-conf") {
            true => &HOME,
            false => &[],
        };
        let error = refused(options, environment).replace(SCRIPT, "SCRIPT");
        let options = options.replace(SCRIPT, "SCRIPT");
        lines += &format!("{options}\n    {error}\n");
    }
    for variable in [("PET_NNODES", "x"), ("PET_STANDALONE", "yes")] {
        let error = refused(SCRIPT, &[variable]);
        lines += &format!("{}={}\n    {error}\n", variable.0, variable.1);
    }
    insta::assert_snapshot!(lines);
}

#[test]
fn help() {
    match with(&["torchrun", "--help"], &[]) {
        Ok(Invocation::Print(text)) => insta::assert_snapshot!(text),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_dry_run_prints_the_plan_of_all_nodes() {
    let words = [
        "torchrun",
        "--nnodes",
        "2",
        "--node-rank",
        "1",
        "--dry-run",
        SCRIPT,
    ];
    match with(&words, &HOME) {
        Ok(Invocation::Print(text)) => {
            insta::assert_snapshot!(text.replace(SCRIPT, "SCRIPT"));
        }
        other => panic!("{other:?}"),
    }
}
