//! examples/slurm/train.sbatch, submitted to a real Slurm cluster: agents by srun, a driver with the plugin, workers that train.

#![allow(clippy::unwrap_used)]

mod common;

use std::{
    env, fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    time::{Duration, Instant},
};

use common::Cluster;
use elasticrun_process_tests::{Event, Kind, Log, Plan, Tag, binaries, worker};

/// Slurm starts jobs when it comes to it, and the plugin asks every ten seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// The user's program: whatever it is, the example starts it as `python train.py`.
const TRAIN: &str = "import os\nos.execv(os.environ['TRAINER'], [os.environ['TRAINER']])\n";

/// What a user has in PATH.
fn install(bin: &Path) {
    fs::create_dir(bin).unwrap();
    symlink(binaries::elasticrun(), bin.join("elasticrun")).unwrap();
    let python = bin.join("python");
    fs::write(&python, "#!/bin/sh\nexec python3 \"$@\"\n").unwrap();
    fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Whether all of a round of this size have committed a step in it, and no later round has begun.
fn trains(events: &[Event], size: u32) -> bool {
    let steps = events.iter().filter(|event| event.kind == Kind::Step);
    let newest = steps.clone().map(|event| event.round).max();
    let mut ranks: Vec<_> = steps
        .filter(|event| Some(event.round) == newest && event.size == size)
        .map(|event| event.rank)
        .collect();
    ranks.sort_unstable();
    ranks.dedup();
    ranks.len() == size as usize
}

#[track_caller]
fn wait_for(what: &str, directory: &Path, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        let said = fs::read_to_string(directory.join("output")).unwrap_or_default();
        assert!(began.elapsed() < PATIENCE, "{what} does not happen\n{said}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_example_trains_and_leaves_a_node_that_is_drained() {
    let Some(cluster) = Cluster::start_for("the_example_trains_and_leaves_a_node_that_is_drained")
    else {
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let bin = home.join("bin");
    install(&bin);
    fs::write(home.join("train.py"), TRAIN).unwrap();
    fs::write(
        home.join("plan.json"),
        serde_json::to_vec(&Plan::default()).unwrap(),
    )
    .unwrap();
    let mut log = Log::open(&home.join("events"));
    let tag = Tag::new();
    let own = env::current_exe().unwrap();
    let path = format!("{}:{}", bin.display(), env::var("PATH").unwrap());
    let text = |path: &Path| path.display().to_string();
    for (name, value) in [
        ("PATH", path),
        ("TRAINER", text(&binaries::worker())),
        ("ELASTICRUN_PLUGIN_PATH", text(own.parent().unwrap())),
        (worker::DIRECTORY, text(home)),
        (tag.variable().0, tag.variable().1.to_owned()),
    ] {
        // SAFETY: nextest runs each test in a process of its own, and no other thread is there yet.
        unsafe { env::set_var(name, value) };
    }
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/slurm/train.sbatch");
    let words = format!(
        "sbatch --parsable --nodes=3 --chdir={0} --output={0}/output {1}",
        home.display(),
        example.canonicalize().unwrap().display()
    );
    let job = cluster.run_in(home, &words).trim().to_owned();

    wait_for("a round of all three nodes", home, || {
        trains(log.events(), 3)
    });
    let mut hosts: Vec<_> = log
        .events()
        .iter()
        .map(|event| event.host.clone())
        .collect();
    hosts.sort();
    hosts.dedup();
    assert_eq!(hosts, ["n1", "n2", "n3"]);
    cluster.run("scontrol update NodeName=n3 State=DRAIN Reason=test");
    wait_for("a round without the drained node", home, || {
        trains(log.events(), 2)
    });
    fs::write(home.join("finish"), "").unwrap();
    let show = format!("scontrol show job {job}");
    wait_for("the end of the job", home, || {
        cluster.run(&show).contains("JobState=COMPLETED")
    });
    let said = fs::read_to_string(home.join("output")).unwrap();
    assert!(said.contains("host n3 is drained"), "{said}");
    assert!(said.contains("succeeded"), "{said}");
    assert!(
        !home.join(format!("join-token.{job}")).exists(),
        "the token is removed"
    );
    wait_for("the end of all its processes", home, || {
        tag.processes().is_empty()
    });
}
