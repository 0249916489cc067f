//! Each invalid value and combination gives one line that names it, and exit code 2.

use std::{fmt::Write, fs};

use elasticrun::config::{Error, KEYS, Shape, variable};

use super::{elasticrun, refusal, with};

/// Invalid command lines, each for one reason. `\t` separates words.
const WRONG: &[&str] = &[
    // Unknown options, and options without their values.
    "",
    "run",
    "--",
    "-np\t2",
    "-np4\tx",
    "-np\t2\t--min_np\t2\tx",
    "-np\t2\t--mni-np\t2\tx",
    "-np\t2\t--nonsense\tx",
    "--nproc-per-node\t2\tx",
    "--nproc_per_node=2\tx",
    "--master-addr\ta\tx",
    "help\tme",
    "-np\t100000\tx",
    "--max-np\t100000\tx",
    "-np\t2\t--config\t/dev/zero\tx",
    "-np\t2\t--hostfile\t/dev/zero\tx",
    "-np\t2\t--host-discovery-script\t/bin/sh -c\tx",
    "-np\t2\t-q\tx",
    "-hosts\ta:1\tx",
    "-verbose\tx",
    "-np\t2\t--dry-run=yes\tx",
    "-np\t2\t--quiet=false\tx",
    "-np",
    "-np\t2\t--start-timeout",
    "-np\t2\t--blacklist-cooldown-range\t5",
    "-np\t2\t\t",
    "config",
    "config\tsave",
    "config\tshow\t-np\tmany",
    "agent\t--join\tnowhere\t--join-token-file\tf",
    "agent\t--join\ta:0\t--join-token-file\tf",
    "agent\t--join\ta:70000\t--join-token-file\tf",
    "agent\t--join\ta:7070",
    "agent\t--slots\t3",
    "agent\t--join\ta:7070\t--join-token-file\tf\t--slots\t0",
    "agent\t--join\ta:7070\t--join-token-file\tf\t--host\ta b",
    "agent\tpython",
    "agent\t--notice-file\tf",
    "plugin\tlist\t--discovery\tx",
    "completions",
    "completions\ttcsh",
    "completions\tbash\tx",
    "man\tpage",
    "hosts\t--dry-run",
    "config\tshow\t--check-build",
    "plugin",
    "plugin\tnew\tx",
    "plugin\tnew\tx\t--lang\tperl",
    // Values.
    "-np\t0\tx",
    "-np\t-1\tx",
    "-np\t1.5\tx",
    "-np\t4294967296\tx",
    "-np=\tx",
    "-np\t2\t--min-np\t0\tx",
    "-np\t2\t--max-np\tall\tx",
    "-np\t2\t--spares\t-1\tx",
    "-np\t2\t--slots-per-host\t0\tx",
    "-np\t2\t--slots\t1025\tx",
    "-H\t\tx",
    "-H\ta:0\tx",
    "-H\ta:2,a:2\tx",
    "-H\ta:2,,b:2\tx",
    "-H\ta:1025\tx",
    "-H\t::1:4\tx",
    "-H\t[::1:4\tx",
    "-H\ta b:4\tx",
    "-H\t-oProxyCommand=x:4\tx",
    "-H\t$(id):4\tx",
    "-np\t2\t--discovery\t:x=1\tx",
    "-np\t2\t--discovery\tasg:name\tx",
    "-np\t2\t--discovery\tasg:a=1,a=2\tx",
    "-np\t2\t--aws-asg\t:region=eu-central-1\tx",
    "-np\t2\t--aws-asg\tgpus:region\tx",
    "-np\t2\t--gcp-mig\t\tx",
    "-np\t2\t--k8s\tapp=train:slots\tx",
    "-np\t2\t--discovery-interval\t0\tx",
    "-np\t2\t--plugin-isolation\tno\tx",
    "-np\t2\t--encrypt\tall\tx",
    "-np\t2\t--commit-memory\t4GB\tx",
    "-np\t2\t--commit-memory\t512\tx",
    "-np\t2\t--preload\ttorch,2\tx",
    "-np\t2\t--plugin-allow\ta=md5:00\tx",
    "-np\t2\t--elastic-timeout\t0s\tx",
    "-np\t2\t--signal-notice\t0\tx",
    "agent\t--join\ta:7070\t--join-token-file\tf\t--signal-notice\tsoon",
    "agent\t--join\ta:7070\t--join-token-file\tf\t--log-level\tloud",
    "agent\t--log-format\tjson",
    "-np\t2\t--start-timeout\tsoon\tx",
    "-np\t2\t--drain-timeout\tsoon\tx",
    "-np\t2\t--notice-file\tleave\tx",
    "drain",
    "drain\ta\t--in\tsoon",
    "resume",
    "resume\t../x",
    "-np\t2\t--journal\tetcd://a:0\tx",
    "-np\t2\t--journal\tetcd://a:2379\t--orphan-timeout\t3s\tx",
    "resume\t1a2b3c4d\t--standby",
    "resume\t1a2b3c4d\t--journal\tredis://a:1",
    "-np\t2\t--durable-commits\tftp://a/b\tx",
    "-np\t2\t--durable-commits\t/dev/null\tx",
    "-np\t2\t--durable-interval\t10s\tx",
    "-np\t2\t--replicate-commits\t1\tx",
    "-np\t2\t--size-multiple\t0\tx",
    "-np\t3\t--size-multiple\t2\tx",
    "-np\t4\t--min-np\t1\t--size-multiple\t2\tx",
    "-H\ta:3\t--size-multiple\t2\tx",
    "-np\t2\t--ps\tmany\tx",
    "-np\t2\t--ps\t2\t--ps-replicas\t2\tx",
    "-np\t2\t--ps-replicas\t1\tx",
    "-np\t2\t--ps\t2\t--ps-snapshots\t/tmp\tx",
    "-np\t2\t--ps-snapshots\t/tmp\tx",
    "-np\t2\t--ps\t2\t--ps-replicas\t1\t--ps-snapshots\tftp://a\tx",
    "-np\t2\t--ps\t2\t--ps-replicas\t1\t--ps-snapshot-interval\t1m\tx",
    "-np\t2\t--min-np\t1\t--ps\t2\tx",
    "-np\t2\t--replica-group-size\t3\tx",
    "-np\t2\t--replica-group-size\t0\tx",
    "-np\t8\t--min-np\t6\t--replica-group-size\t4\tx",
    "-np\t12\t--max-np\t18\t--replica-group-size\t4\t--size-multiple\t6\tx",
    "-H\ta:3\t--replica-group-size\t2\tx",
    "-np\t4\t--min-np\t2\t--replica-group-size\t2\t--replicate-commits\t1\tx",
    "-np\t2\t--min-np\t1\t--replica-group-size\tall\t--durable-commits\t/tmp\tx",
    "-np\t2\t--min-np\t1\t--replica-group-size\tall\t--restart-mode\tprocess\tx",
    "-np\t2\t--replicate-interval\t2s\tx",
    "-np\t2\t--replicate-bandwidth\t9GiB\tx",
    "-np\t2\t--resume-from\tlatest\tx",
    "-np\t2\t--durable-commits\t/d\t--resume-from\t../d\tx",
    "-np\t2\t--journal\t/nonexistent/journal\tx",
    "-np\t2\t--abort-timeout\t5 apples\tx",
    "-np\t2\t--interrupt-timeout\t1d\tx",
    "-np\t2\t--exit-timeout\t-5s\tx",
    "-np\t2\t--orphan-timeout\t9000h\tx",
    "-np\t2\t--last-call\t1e3\tx",
    "-np\t2\t--heartbeat-interval\t0ms\tx",
    "-np\t2\t--heartbeat-timeout\t\tx",
    "-np\t2\t--reset-limit\t-1\tx",
    "-np\t2\t--max-restarts\tmany\tx",
    "-np\t2\t--restart-mode\tsometimes\tx",
    "-np\t2\t--max-host-failures\t1.0\tx",
    "-np\t2\t--blacklist\tnever\tx",
    "-np\t2\t--blacklist-cooldown-range\t5s\t1s\tx",
    "-np\t2\t--blacklist-cooldown-range\tlo\thi\tx",
    "-np\t2\t--failure-domain\track\tx",
    "-np\t2\t--launcher\tmpi\tx",
    "-np\t2\t--listen\t7070\tx",
    "-np\t2\t--parent-fd\t0\tx",
    "-np\t2\t--call-fd\t0\tx",
    "-np\t2\t--env\tA-B=1\tx",
    "-np\t2\t--env\tELASTICRUN_NP=3\tx",
    "-np\t2\t--env\tNO_SUCH_VARIABLE_HERE\tx",
    "-np\t2\t--spark\tlocalhost:7077\tx",
    "-np\t2\t-p\t0\tx",
    "-np\t2\t-p\t65536\tx",
    "-np\t2\t-p22x\tx",
    "-np\t2\t--ssh-option\tStrictHostKeyChecking\tx",
    "-np\t2\t--network-interface\teth0,,eth1\tx",
    "-np\t2\t--log-level\tloud\tx",
    "-np\t2\t--shutdown-timeout\tsoon\tx",
    "-np\t2\t--worker-env\tmine\tx",
    "-np\t2\t--redirects\t4\tx",
    "-np\t2\t--redirects\t3\tx",
    "-np\t2\t--local-ranks-filter\tall\tx",
    "-np\t2\t--output-filename\td\t--duplicate-stdout-filters\t,\tx",
    "-np\t2\t--duplicate-stderr-filters\terror\tx",
    "-np\t2\t--line-prefix\t${pid}\tx",
    "-np\t2\t--line-prefix\t$rank\t--no-prefix\tx",
    "torchrun\t--nproc-per-node\t0\tx",
    "-np\t2\t--log-format\txml\tx",
    // Files.
    "-np\t2\t--config\t/nowhere/job.toml\tx",
    "-np\t2\t--config\t/\tx",
    "--hostfile\t/nowhere/hosts\tx",
    "--hostfile\t/\tx",
    "--hostfile\t/dev/null\tx",
    "-np\t2\t--host-discovery-script\t/nowhere/hosts.sh\tx",
    "-np\t2\t--host-discovery-script\t/dev/null\tx",
    "-np\t2\t--host-discovery-script\t/\tx",
    "-np\t2\t--plugin-dir\t/nowhere\tx",
    "-np\t2\t--plugin-dir\t/dev/null\tx",
    "-np\t2\t-i\t/nowhere/key\tx",
    "-np\t2\t--output-filename\t/dev/null\tx",
    "-np\t2\t--join-token-file\t/nowhere/token\tx",
    "-np\t2\t--join-token-file\t/\tx",
    // Combinations.
    "x",
    "-H\ta,b\tx",
    "-H\ta,b\t--slots\tauto\tx",
    "--discovery\tp\tx",
    "--launcher\tagent\t--print-join-token\tx",
    "-np\t2\t--launcher\tagent\tx",
    "-np\t2\t--launcher\tagent\t--print-join-token\t--network-interface\teth0\tx",
    "-np\t2\t--spares\t1\t--spark\tyarn\tx",
    "-np\t2\t--max-np\t2\t--spark\tyarn\t-H\ta:2\tx",
    "-np\t2\t--max-np\t2\t--spark\tyarn\t--slurm\tx",
    "task-service\tnow",
    "-np\t2\t--min-np\t3\tx",
    "-np\t4\t--max-np\t3\tx",
    "-H\ta:2,b:2\t--min-np\t5\tx",
    "-H\ta:2,b:2\t-np\t5\tx",
    "-H\ta:2,b:2\t-np\t2\t--max-np\t1\tx",
    "-H\ta:2\t--hostfile\t/dev/null\tx",
    "-np\t2\t-H\ta:2\t--host-discovery-script\t/bin/true\tx",
    "-np\t2\t--hostfile\t/dev/null\t--host-discovery-script\t/bin/true\tx",
    "-np\t2\t--discovery\tp\t--spares\t1\tx",
    "-H\ta:2,b:2\t--spares\t1\tx",
    "-H\ta:2,b:2\t-np\t2\t--spares\t3\tx",
    "-np\t2\t--heartbeat-interval\t5s\tx",
    "-np\t2\t--heartbeat-timeout\t500ms\tx",
    "--num-proc\t2\t--min-num-proc=3\tx",
    "-np=0\tx",
    "-np\t2\t--blacklist\tforever\t--blacklist-cooldown-range\t1s\t4s\tx",
    "-np\t2\t--quiet\t--verbose\tx",
    "-np\t2\t--no-prefix\t--prefix-output-with-timestamp\tx",
];

fn words(line: &str) -> Vec<&str> {
    if line.is_empty() {
        Vec::new()
    } else {
        line.split('\t').collect()
    }
}

#[test]
fn each_is_refused_in_one_line() {
    let mut table = String::new();
    for line in WRONG {
        let error = refusal(&words(line));
        let message = error.to_string();
        assert!(!message.contains(char::is_control), "{message:?}");
        assert!(message.len() < 250, "{message}");
        writeln!(
            table,
            "$ elasticrun {}\n{message} [{}]\n",
            line.replace('\t', " "),
            error.code()
        )
        .expect("a string");
    }
    insta::assert_snapshot!(table);
}

#[test]
fn every_setting_that_takes_a_value_is_in_the_table() {
    for key in KEYS.iter().filter(|key| key.shape != Shape::Switch) {
        let short = |line: &&&str| match key.name {
            "np" => line.contains("-np\t"),
            "hosts" => line.contains("-H\t"),
            "ssh-port" => line.contains("-p\t"),
            "ssh-identity-file" => line.contains("-i\t"),
            name => line.contains(&format!("--{name}\t")),
        };
        assert!(
            WRONG.iter().any(|line| short(&line)),
            "{} is not tried",
            key.name
        );
    }
}

#[test]
fn the_binary_prints_it_to_stderr_and_exits_with_2() {
    for line in [
        "-np\t0\tx",
        "",
        "-np\t2\t--nonsense\tx",
        "-np\t2\t--hostfile\ta\nb\tx",
    ] {
        let output = elasticrun(&words(line));
        let stderr = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(2), "{line:?}: {stderr}");
        assert!(output.stdout.is_empty(), "{line:?}");
        assert!(
            stderr.starts_with("elasticrun: ") && stderr.lines().count() == 1,
            "{line:?}: {stderr}"
        );
    }
}

#[test]
fn a_wrong_value_reads_the_same_from_every_source() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("job.toml");
    let path = file.to_str().expect("UTF-8");
    for key in KEYS {
        let name = key.name;
        // No setting takes an empty word.
        fs::write(&file, format!("\n{name} = \"\"\n")).expect("a file");
        let in_file = refusal(&["--config", path, "x"]).to_string();
        let Some((_, allowed)) = in_file.split_once(": expected ") else {
            panic!("{name} takes an empty word: {in_file}");
        };
        assert_eq!(
            in_file,
            format!("{path}:2: {name} = \"\": expected {allowed}")
        );
        if key.shape == Shape::One || key.shape == Shape::Many {
            let spelled = format!("--{}", if name == "np" { "num-proc" } else { name });
            assert_eq!(
                refusal(&[&spelled, "", "x"]).to_string(),
                format!("{spelled} \"\": expected {allowed}")
            );
        }
    }
}

#[test]
fn a_named_pipe_is_no_file_of_settings() {
    let directory = tempfile::tempdir().expect("a directory");
    let pipe = directory.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    let path = pipe.to_str().expect("UTF-8");
    for flag in ["--config", "--hostfile"] {
        assert_eq!(
            refusal(&["-np", "2", flag, path, "x"]).to_string(),
            format!("{flag} {path}: is a named pipe, expected a file")
        );
    }
}

#[test]
fn an_interface_that_this_machine_lacks_is_refused_before_the_start() {
    let is_refused = |error: &Error, written: &str| {
        let text = error.to_string();
        let start = format!("{written}: expected an interface of this machine with an address: ");
        let listed = text
            .strip_prefix(&start)
            .map(|rest| rest.replace(" or ", ", "));
        let listed = listed.unwrap_or_else(|| panic!("{text}"));
        assert!(listed.split(", ").any(|name| name == "lo"), "{text}");
        assert_eq!(error.code(), "E202");
    };
    for (flag, line) in [
        ("--network-interface", "-np 1 FLAG eth8x,eth9x x"),
        (
            "--network-interfaces",
            "-H localhost:1,192.0.2.1:1 FLAG eth8x,eth9x x",
        ),
        (
            "--network-interface",
            "agent --join a:7070 --join-token-file t FLAG eth8x,eth9x",
        ),
    ] {
        let line = line.replace("FLAG", flag);
        let words: Vec<_> = line.split(' ').collect();
        is_refused(&refusal(&words), &format!("{flag} eth8x,eth9x"));
    }
    let variable = [("ELASTICRUN_NETWORK_INTERFACE", "no-such0")];
    let error = with(&["-np", "1", "x"], &variable).unwrap_err();
    is_refused(&error, "ELASTICRUN_NETWORK_INTERFACE=no-such0");
    // One that is there suffices, and other hosts have others.
    for line in [
        "-np 1 --network-interface no-such0,lo x",
        "-H 192.0.2.1:1 --network-interface no-such0 x",
        "-np 1 --host-discovery-script /bin/true --network-interface no-such0 x",
    ] {
        let words: Vec<_> = line.split(' ').collect();
        assert!(with(&words, &[]).is_ok(), "{line}");
    }
}

#[test]
fn a_variable_is_named_with_its_value() {
    let error = |name: &str, value: &str| {
        with(&["-np", "2", "x"], &[(name, value)])
            .expect_err("wrong")
            .to_string()
    };
    assert_eq!(
        error("ELASTICRUN_MIN_NP", "3"),
        "ELASTICRUN_MIN_NP=3: expected at most 2, the workers needed to start (-np)"
    );
    assert_eq!(
        error("ELASTICRUN_QUIET", "maybe"),
        "ELASTICRUN_QUIET=maybe: expected true or false"
    );
    assert_eq!(
        error("ELASTICRUN_CONFIG", "/nowhere"),
        "ELASTICRUN_CONFIG=/nowhere: no such file"
    );
    assert_eq!(
        variable("blacklist-cooldown-range"),
        "ELASTICRUN_BLACKLIST_COOLDOWN_RANGE"
    );
}

#[test]
fn mistakes_of_a_file_name_its_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("job.toml");
    let path = file.to_str().expect("UTF-8");
    for (text, message) in [
        (
            "np = 2\n\nmax-host-failure = 3\n",
            "3: max-host-failure: no such setting; did you mean max-host-failures?",
        ),
        (
            "np = 2\nmin-np = 3\n",
            "2: min-np = 3: expected at most 2, the workers needed to start (-np)",
        ),
        (
            "np = [1, 2]\n",
            "1: np = 1 2: expected a whole number from 1 to 4294967295",
        ),
        (
            "np = -1\n",
            "1: np = -1: expected a whole number from 1 to 4294967295",
        ),
        (
            "start-timeout = 0.0\n",
            "1: start-timeout = 0.0: expected a duration such as 50ms, 5s, 10m or 1h, at most 8760h (a bare number is seconds), longer than 0",
        ),
        (
            "hostfile = \"/nowhere\"\n",
            "1: hostfile = /nowhere: no such file",
        ),
    ] {
        fs::write(&file, text).expect("a file");
        assert_eq!(
            refusal(&["--config", path, "x"]).to_string(),
            format!("{path}:{message}")
        );
    }
}

#[cfg(unix)]
#[test]
fn what_is_not_utf8_is_refused() {
    use std::{ffi::OsString, os::unix::ffi::OsStringExt};

    let odd = || OsString::from_vec(vec![b'a', 0xff]);
    for words in [
        vec![odd()],
        vec!["-np".into(), "1".into(), "x".into(), odd()],
        vec!["-np".into(), odd(), "x".into()],
        vec!["agent".into(), odd()],
    ] {
        let error = elasticrun::cli::parse(words, [])
            .expect_err("not UTF-8")
            .to_string();
        assert!(error.contains("not UTF-8"), "{error}");
    }
}

#[test]
fn every_code_has_its_section() {
    let page = include_str!("../../../docs/errors.md");
    for line in WRONG {
        let code = refusal(&words(line)).code();
        assert!(
            page.contains(&format!("### {code} ")),
            "{code} is not in docs/errors.md"
        );
    }
    for code in [
        elasticrun::exit::SUCCESS,
        elasticrun::exit::WORKER_FAILED,
        elasticrun::exit::USAGE,
        elasticrun::exit::TOO_FEW_WORKERS,
        elasticrun::exit::RESET_LIMIT,
        elasticrun::exit::DISCOVERY_FAILED,
        elasticrun::exit::STATE_LOST,
        elasticrun::exit::TASK_ABANDONED,
    ] {
        assert!(
            page.contains(&format!("## Exit code {code}:")),
            "{code} is not in docs/errors.md"
        );
    }
}
