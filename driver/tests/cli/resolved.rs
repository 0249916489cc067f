//! The meaning of valid command lines.

use std::{fs, os::unix::fs::PermissionsExt};

use elasticrun::{
    cli::{AgentStart, Endpoint, Invocation, JoinRequest},
    config::{
        HostList, Interfaces, Journal, Launcher, LogFormat, LogLevel, Mode, Prefix, Preload,
        RestartMode, Setting, SlotsPerHost, Source,
    },
    signals::StopSignals,
};

use super::{job, with};

/// np, min_np, max_np of a command line.
fn workers(words: &[&str]) -> (u32, u32, Option<u32>) {
    let workers = job(words).settings.workers;
    (
        workers.np.get(),
        workers.min_np.get(),
        workers.max_np.map(u32::from),
    )
}

fn hosts(text: &str) -> Source {
    Source::Fixed(HostList::read(&[text.to_owned()]).expect("hosts").0)
}

#[test]
fn a_job_has_a_journal_only_on_request() {
    let journal = |words: &[&str]| job(words).settings.journal;
    assert_eq!(journal(&["-np", "1", "x"]), Journal::None);
    assert_eq!(
        journal(&["-np", "1", "--journal", "none", "x"]),
        Journal::None
    );
    assert_eq!(
        journal(&["-np", "1", "--journal", "auto", "x"]),
        Journal::InStateDirectory
    );
    let place = std::env::current_dir().expect("a directory").join("j");
    assert_eq!(
        journal(&["-np", "1", "--journal", "j", "x"]),
        Journal::File(place)
    );
}

#[test]
fn durable_commits_have_an_absolute_place() {
    let durable = |words: &[&str]| job(words).settings.durable;
    assert_eq!(durable(&["-np", "1", "x"]), None);
    let given = durable(&["-np", "1", "--durable-commits", "d", "x"]).unwrap();
    let here = std::env::current_dir().unwrap().join("d");
    assert_eq!(given.place, here.to_str().unwrap());
    assert_eq!(given.interval.as_secs(), 60);
    let often = [
        "-np",
        "1",
        "--durable-commits",
        "/d",
        "--durable-interval",
        "5s",
        "x",
    ];
    let often = durable(&often).unwrap();
    assert_eq!((often.place.as_str(), often.interval.as_secs()), ("/d", 5));
}

#[test]
fn a_journal_does_not_change_the_orphan_timeout() {
    let orphan = |words: &[&str]| job(words).settings.timeouts.orphan.as_secs();
    for journal in ["none", "auto", "j"] {
        assert_eq!(orphan(&["-np", "1", "--journal", journal, "x"]), 5);
    }
    let given = ["-np", "1", "--journal", "j", "--orphan-timeout", "7s", "x"];
    assert_eq!(orphan(&given), 7);
}

#[test]
fn counts_complete_each_other() {
    assert_eq!(workers(&["-np", "3", "x"]), (3, 3, Some(3)));
    assert_eq!(workers(&["-H", "a:4,b:2", "x"]), (6, 6, Some(6)));
    assert_eq!(
        workers(&["-H", "a:4,b", "--slots", "1", "x"]),
        (5, 5, Some(5))
    );
    assert_eq!(
        workers(&["-H", "a:4,b:2", "--min-np", "2", "x"]),
        (6, 2, Some(6))
    );
    assert_eq!(
        workers(&["-H", "a:4,b:4", "-np", "2", "--max-np", "4", "x"]),
        (2, 2, Some(4))
    );
    assert_eq!(
        workers(&["-H", "a:4,b:4", "--max-np", "4", "x"]),
        (4, 4, Some(4))
    );
    assert_eq!(workers(&["--min-np", "2", "x"]), (2, 2, Some(2)));
    assert_eq!(
        workers(&["-np", "2", "--discovery", "p", "x"]),
        (2, 2, None)
    );
    assert_eq!(
        workers(&["-np", "8", "-H", "a:2", "--discovery", "p", "x"]),
        (8, 8, None)
    );
    assert_eq!(
        workers(&["--min-np", "2", "--max-np", "8", "--discovery", "p", "x"]),
        (2, 2, Some(8))
    );
}

#[test]
fn a_job_is_elastic_when_the_contract_says_so() {
    for words in [
        &["-np", "2", "x"][..],
        &["-H", "a:2,b:2", "x"],
        &["-np", "2", "--max-restarts", "0", "x"],
        &["-np", "2", "--launcher", "local", "x"],
    ] {
        assert_eq!(job(words).settings.mode, Mode::Standard, "{words:?}");
    }
    for words in [
        &["-np", "2", "--min-np", "2", "x"][..],
        &["-np", "2", "--max-np", "2", "x"],
        &["-np", "2", "--discovery", "p", "x"],
        &["-np", "2", "--max-restarts", "3", "x"],
        &["-np", "2", "--restart-mode", "auto", "x"],
        &["-np", "1", "-H", "a:2", "--spares", "1", "x"],
        &["-np", "2", "--launcher", "agent", "--print-join-token", "x"],
    ] {
        assert_eq!(job(words).settings.mode, Mode::Elastic, "{words:?}");
    }
}

#[test]
fn restarts_alone_mean_what_they_mean_to_torchrun() {
    let failures = |words: &[&str]| {
        let failures = job(words).settings.failures;
        let cooldown = failures.cooldown.map(|range| range.lo().as_secs());
        (
            failures.restart_mode,
            cooldown,
            failures.max_host_failures.map(u32::from),
        )
    };
    use RestartMode::{Auto, InProcess, Process};
    for (words, expected) in [
        (
            &["-np", "2", "--max-restarts", "3", "x"][..],
            (Process, Some(0), None),
        ),
        (
            &[
                "-np",
                "2",
                "--max-restarts",
                "3",
                "--restart-mode",
                "process",
                "x",
            ],
            (Process, Some(0), None),
        ),
        (
            &[
                "-np",
                "2",
                "--max-restarts",
                "3",
                "--restart-mode",
                "in-process",
                "x",
            ],
            (InProcess, Some(10), Some(5)),
        ),
        (
            &["-np", "2", "--max-restarts", "3", "--min-np", "1", "x"],
            (Auto, Some(10), Some(5)),
        ),
        (
            &[
                "-np",
                "2",
                "--max-restarts",
                "3",
                "--blacklist",
                "forever",
                "x",
            ],
            (Process, None, None),
        ),
        (
            &[
                "-np",
                "2",
                "--max-restarts",
                "3",
                "--blacklist-cooldown-range",
                "1",
                "2",
                "x",
            ],
            (Process, Some(1), None),
        ),
    ] {
        assert_eq!(failures(words), expected, "{words:?}");
    }
}

#[test]
fn hosts_come_from_where_the_flags_say() {
    let sources = |words: &[&str]| job(words).settings.hosts.sources;
    assert_eq!(sources(&["-np", "3", "x"]), [hosts("localhost:3")]);
    assert_eq!(sources(&["-H", "b:1,a:2", "x"]), [hosts("b:1,a:2")]);
    assert_eq!(
        sources(&["-np", "1", "--launcher", "agent", "--print-join-token", "x"]),
        [Source::Registration]
    );
    assert_eq!(
        sources(&[
            "-np",
            "1",
            "-H",
            "a:1",
            "--launcher",
            "agent",
            "--print-join-token",
            "x"
        ]),
        [hosts("a:1")]
    );
    let both = sources(&["-np", "1", "--discovery", "p:a=1", "--discovery", "q", "x"]);
    assert!(
        matches!(&both[..], [Source::Plugin(p), Source::Plugin(q)] if p.name == "p" && q.name == "q")
    );
}

#[test]
fn a_cloud_has_a_flag_of_its_own() {
    for (flags, source) in [
        (&["--aws-asg", "a,b"][..], r"aws-asg:name=a\,b"),
        (
            &["--aws-asg", "a:region=r,slots=8"],
            "aws-asg:region=r,slots=8,name=a",
        ),
        (&["--gcp-mig", "p/z/n"], "gcp-mig:group=p/z/n"),
        (
            &["--k8s", "app=a,tier!=b"],
            r"kubernetes:selector=app=a\,tier!=b",
        ),
        (&["--slurm"], "slurm"),
    ] {
        let words: Vec<_> = ["-np", "1"]
            .iter()
            .chain(flags)
            .chain(&["x"])
            .copied()
            .collect();
        let spec = source.parse().expect("a source");
        assert_eq!(
            job(&words).settings.hosts.sources,
            [Source::Plugin(spec)],
            "{flags:?}"
        );
    }
}

#[test]
fn a_host_file_and_a_script() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("hosts");
    fs::write(&file, "# two\r\na slots=2\r\nb slots=3\r\n").expect("a file");
    let path = file.to_str().expect("UTF-8");
    for flag in ["-hostfile", "--hostfile"] {
        let settings = job(&[flag, path, "x"]).settings;
        assert_eq!(settings.hosts.sources, [hosts("a:2,b:3")]);
        assert_eq!(settings.workers.np.get(), 5);
    }
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("permissions");
    let settings = job(&["-np", "2", "--host-discovery-script", path, "x"]).settings;
    assert_eq!(settings.hosts.sources, [Source::Script(file)]);
    assert_eq!(
        (settings.mode, settings.workers.max_np),
        (Mode::Elastic, None)
    );
}

#[test]
fn horovods_command_line_is_understood() {
    let request = job(&[
        "-np",
        "4",
        "--min-num-proc",
        "2",
        "--max-num-proc=8",
        "-p",
        "2222",
        "-i",
        "/dev/null",
        "--slots-per-host",
        "4",
        "--max-resets",
        "3",
        "--network-interfaces",
        "lo,eth0",
        "-prefix-timestamp",
        "--blacklist-cooldown-range",
        "60",
        "300",
        "--gloo",
        "--fusion-threshold-mb",
        "32",
        "--cycle-time-ms=3.5",
        "--mpi-args=--map-by node",
        "--verbose",
        "--disable-cache",
        "python",
        "train.py",
    ]);
    let settings = &request.settings;
    assert_eq!(
        (settings.workers.np.get(), settings.workers.min_np.get()),
        (4, 2)
    );
    assert_eq!(settings.workers.max_np.map(u32::from), Some(8));
    assert_eq!(settings.launch.ssh.port.map(u16::from), Some(2222));
    assert_eq!(settings.hosts.slots_per_host, SlotsPerHost::Fixed(4));
    assert_eq!(settings.failures.reset_limit, Some(3));
    assert_eq!(settings.launch.network_interfaces, ["lo", "eth0"]);
    assert_eq!(settings.output.prefix, Prefix::TimeAndRank);
    assert_eq!(settings.output.log_level, LogLevel::Debug);
    assert_eq!(settings.command, ["python", "train.py"]);
    assert_eq!(
        request.notes,
        [
            "accepted for Horovod's sake, without effect here: --cycle-time-ms --disable-cache --fusion-threshold-mb \
          --gloo --mpi-args"
        ]
    );
}

#[test]
fn the_last_of_a_repeated_flag_wins_and_lists_grow() {
    let settings = job(&[
        "-np",
        "4",
        "--num-proc=2",
        "--ssh-option",
        "A=1",
        "--ssh-option",
        "B=2",
        "--blacklist-cooldown-range",
        "1",
        "2",
        "--blacklist-cooldown-range",
        "3",
        "4",
        "--quiet",
        "--quiet",
        "x",
    ])
    .settings;
    assert_eq!(settings.workers.np.get(), 2);
    assert_eq!(
        settings.failures.cooldown.map(|range| range.lo().as_secs()),
        Some(3)
    );
    let options: Vec<_> = settings
        .launch
        .ssh
        .options
        .iter()
        .map(|option| option.as_str())
        .collect();
    assert_eq!(options, ["A=1", "B=2"]);
}

#[test]
fn the_command_is_never_parsed() {
    for words in [
        &[
            "-np", "1", "python", "-np", "4", "--min-np", "--", "-v", "--help",
        ][..],
        &[
            "-np", "1", "--", "python", "-np", "4", "--min-np", "--", "-v", "--help",
        ],
        &[
            "run", "-np=1", "--", "python", "-np", "4", "--min-np", "--", "-v", "--help",
        ],
    ] {
        let command = job(words).settings.command;
        assert_eq!(
            command,
            ["python", "-np", "4", "--min-np", "--", "-v", "--help"],
            "{words:?}"
        );
    }
    assert_eq!(job(&["-np", "1", "--", "-odd"]).settings.command, ["-odd"]);
    assert_eq!(
        job(&["-np", "1", "agent", "--help"]).settings.command,
        ["agent", "--help"]
    );
    assert_eq!(job(&["-np", "1", "-", "x"]).settings.command, ["-", "x"]);
}

#[test]
fn what_workers_do_with_commits_and_collectives() {
    let launch = |words: &[&str]| {
        job(&[&["-np", "1"], words, &["x"]].concat())
            .settings
            .launch
    };
    assert!(!launch(&[]).encrypt_data);
    assert!(!launch(&["--encrypt", "none"]).encrypt_data);
    assert!(launch(&["--encrypt", "data"]).encrypt_data);
    assert_eq!(launch(&[]).commit_memory, None);
    let limited = launch(&["--commit-memory", "3GiB"]);
    assert_eq!(limited.commit_memory, Some(3 << 30));
    assert_eq!(launch(&[]).preload, Preload::None);
    assert_eq!(launch(&["--preload", "auto"]).preload, Preload::Auto);
}

#[test]
fn limits_and_policies() {
    let failures = |words: &[&str]| {
        job(&[&["-np", "1", "--min-np", "1"], words, &["x"]].concat())
            .settings
            .failures
    };
    assert_eq!(failures(&["--blacklist", "forever"]).cooldown, None);
    assert_eq!(
        failures(&["--max-host-failures", "0"]).max_host_failures,
        None
    );
    assert_eq!(failures(&[]).max_host_failures.map(u32::from), Some(5));
    assert_eq!(
        failures(&[])
            .cooldown
            .map(|range| (range.lo().as_secs(), range.hi().as_secs())),
        Some((10, 300))
    );
    assert_eq!(
        failures(&["--blacklist-cooldown-range", "0", "0"])
            .cooldown
            .map(|range| range.hi().is_zero()),
        Some(true)
    );
}

#[test]
fn a_log_level_that_is_given_is_the_one_that_holds() {
    let level = |words: &[&str]| {
        job(&[&["-np", "1"], words, &["x"]].concat())
            .settings
            .output
            .log_level
    };
    assert_eq!(level(&[]), LogLevel::Info);
    assert_eq!(level(&["--quiet"]), LogLevel::Warn);
    assert_eq!(level(&["--verbose"]), LogLevel::Debug);
    assert_eq!(
        level(&["--verbose", "--log-level", "trace"]),
        LogLevel::Trace
    );
}

#[test]
fn quiet_of_a_variable_yields_to_verbose_of_a_flag() {
    let Ok(Invocation::Run(request)) = with(
        &["-np", "1", "--verbose", "x"],
        &[("ELASTICRUN_QUIET", "1")],
    ) else {
        panic!("no job");
    };
    assert!(!request.settings.output.quiet);
    assert_eq!(request.settings.output.log_level, LogLevel::Debug);
}

#[test]
fn flags_that_mean_nothing_to_a_standard_job_are_named() {
    let notes = job(&[
        "-np",
        "1",
        "--reset-limit",
        "3",
        "--blacklist",
        "forever",
        "x",
    ])
    .notes;
    assert_eq!(
        notes,
        [
            "without effect in a job that is not elastic: --reset-limit --blacklist; --min-np N makes it elastic"
        ]
    );
    assert_eq!(
        job(&["-np", "1", "--min-np", "1", "--reset-limit", "3", "x"]).notes,
        Vec::<String>::new()
    );
}

#[test]
fn agents_are_launched_or_join() {
    let agent = |words: &[&str]| match with(words, &[]) {
        Ok(Invocation::Agent(start)) => start,
        other => panic!("{words:?}: {other:?}"),
    };
    assert_eq!(agent(&["agent"]), AgentStart::Launched);
    let join = [
        "agent",
        "--join",
        "[::1]:7070",
        "--join-token-file",
        "/t",
        "--slots",
        "2",
        "--host",
        "a",
        "--network-interface",
        "eth1,lo",
    ];
    assert_eq!(
        agent(&join),
        AgentStart::Join(Box::new(JoinRequest {
            driver: Endpoint {
                host: "::1".to_owned(),
                port: 7070
            },
            others: Vec::new(),
            driver_file: None,
            token_file: "/t".into(),
            one_run: false,
            stop_signals: StopSignals::of_agent(false),
            with_job_code: false,
            signal_notice: None,
            log_level: LogLevel::Warn,
            log_format: LogFormat::Text,
            slots: SlotsPerHost::Fixed(2),
            host: Some("a".into()),
            network_interfaces: Interfaces(vec!["eth1".into(), "lo".into()]),
        }))
    );
    let launch = job(&[
        "-np",
        "1",
        "--launcher",
        "agent",
        "--join-token-file",
        "/tmp/new",
        "x",
    ])
    .settings
    .launch;
    assert_eq!(launch.launcher, Some(Launcher::Agent));
    assert!(
        launch
            .join
            .is_some_and(|join| !join.print && join.token_file.is_some())
    );
}

#[test]
fn idle_slots_of_fixed_hosts_are_named() {
    let notes = |words: &[&str]| job(words).notes;
    let none = [""; 0];
    assert_eq!(
        notes(&["-np", "2", "--min-np", "2", "-H", "a:2,b:2", "x"]),
        ["2 of 4 slots stay idle (host b): --max-np 4 uses them"]
    );
    assert_eq!(
        notes(&[
            "-np", "1", "--min-np", "1", "-H", "a,b,c,d", "--slots", "1", "x"
        ]),
        ["3 of 4 slots stay idle (hosts b, c and 1 more): --max-np 4 uses them"]
    );
    assert_eq!(
        notes(&["-np", "3", "--min-np", "2", "-H", "a:2,b:2", "x"]),
        ["1 of 4 slots stays idle (host b): --max-np 4 uses them"]
    );
    let spares = "-np 4 --min-np 2 --spares 2 -H a:8 x";
    assert_eq!(
        notes(&spares.split(' ').collect::<Vec<_>>()),
        ["2 of 8 slots stay idle (host a): --max-np 6 uses them"]
    );
    for words in [
        &["-np", "2", "-H", "a:2,b:2", "x"][..],
        &["-np", "4", "--min-np", "2", "-H", "a:2,b:2", "x"],
        &["-np", "2", "--max-np", "3", "-H", "a:2,b:2", "x"],
        &["-np", "2", "--min-np", "2", "-H", "a,b", "x"],
        &["-np", "2", "--min-np", "2", "--discovery", "p", "x"],
    ] {
        assert_eq!(notes(words), none, "{words:?}");
    }
    let plan = with(
        &[
            "-np",
            "2",
            "--min-np",
            "2",
            "-H",
            "a:2,b:2",
            "--dry-run",
            "x",
        ],
        &[],
    );
    let Ok(Invocation::Print(plan)) = plan else {
        panic!("{plan:?}");
    };
    assert!(plan.contains("2 of 4 slots stay idle"), "{plan}");
}

#[test]
fn a_variable_that_is_no_setting_is_named() {
    let Ok(Invocation::Run(request)) = with(
        &["-np", "2", "x"],
        &[
            ("ELASTICRUN_MINNP", "1"),
            ("ELASTICRUN_RUN_ID", "r"),
            ("HOME", "/"),
        ],
    ) else {
        panic!("a job");
    };
    assert_eq!(
        request.notes,
        ["ELASTICRUN_MINNP is no setting; did you mean ELASTICRUN_MIN_NP?"]
    );
}
