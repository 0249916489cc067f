//! examples/slurm/train.sbatch, submitted to a real Slurm cluster: agents by srun, a driver with the plugin, workers that train.

#![allow(clippy::unwrap_used)]

mod common;

use std::{
    collections::BTreeSet,
    env, fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use common::Cluster;
use elasticrun_process_tests::{DIRECTORY, Kind, Log, Plan, Tag, binaries};
use tempfile::TempDir;

/// Slurm may start a job late, and the plugin polls every ten seconds.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The program of the user, which the example starts as `python train.py`.
const TRAIN: &str = "import os\nos.execv(os.environ['TRAINER'], [os.environ['TRAINER']])\n";

/// Installs programs in the PATH of the user.
fn install(bin: &Path) {
    fs::create_dir(bin).unwrap();
    symlink(binaries::elasticrun(), bin.join("elasticrun")).unwrap();
    let python = bin.join("python");
    fs::write(&python, "#!/bin/sh\nexec python3 \"$@\"\n").unwrap();
    fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
}

/// The example as a job of a cluster, with workers of the harness.
struct Submitted {
    cluster: Cluster,
    home: TempDir,
    job: String,
    log: Log,
    tag: Tag,
}

impl Submitted {
    /// `None` if a cluster is impossible. Prints why `test` is skipped.
    fn start_for(test: &str) -> Option<Self> {
        let cluster = Cluster::start_for(test)?;
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path();
        let bin = home.join("bin");
        install(&bin);
        fs::write(home.join("train.py"), TRAIN).unwrap();
        let plan = serde_json::to_vec(&Plan::default()).unwrap();
        fs::write(home.join("plan.json"), plan).unwrap();
        let log = Log::open(&home.join("events"));
        let tag = Tag::new();
        let program = env::current_exe().unwrap();
        let path = format!("{}:{}", bin.display(), env::var("PATH").unwrap());
        let text = |path: &Path| path.display().to_string();
        for (name, value) in [
            ("PATH", path),
            ("TRAINER", text(&binaries::worker())),
            ("ELASTICRUN_PLUGIN_PATH", text(program.parent().unwrap())),
            (DIRECTORY, text(home)),
            (tag.variable().0, tag.variable().1.to_owned()),
        ] {
            // SAFETY: nextest runs each test in its own process, and there is no other thread yet.
            unsafe { env::set_var(name, value) };
        }
        let example = "../../examples/slurm/train.sbatch";
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join(example);
        let words = format!(
            "sbatch --parsable --nodes=3 --chdir={0} --output={0}/output {1}",
            home.display(),
            example.canonicalize().unwrap().display()
        );
        let job = cluster.run_in(home, &words).trim().to_owned();
        Some(Self {
            cluster,
            home: directory,
            job,
            log,
            tag,
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn said(&self) -> String {
        fs::read_to_string(self.path("output")).unwrap_or_default()
    }

    #[track_caller]
    fn wait_for(&mut self, what: &str, mut condition: impl FnMut(&mut Self) -> bool) {
        let began = Instant::now();
        while !condition(self) {
            let said = self.said();
            assert!(began.elapsed() < TIMEOUT, "{what} does not happen\n{said}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until all of a round of this size have committed a step in it, and no later round has begun.
    #[track_caller]
    fn wait_training(&mut self, size: u32) {
        self.wait_for(&format!("a round of {size}"), |job| {
            let steps = job
                .log
                .events()
                .iter()
                .filter(|event| event.kind == Kind::Step);
            let newest = steps.clone().map(|event| event.round).max();
            let of_round = steps.filter(|event| Some(event.round) == newest && event.size == size);
            let ranks: BTreeSet<_> = of_round.map(|event| event.rank).collect();
            ranks.len() == size as usize
        });
    }

    #[track_caller]
    fn ends(mut self, state: &str) {
        let show = format!("scontrol show job {}", self.job);
        let state = format!("JobState={state}");
        self.wait_for(&state, |job| job.cluster.run(&show).contains(&state));
        self.wait_for("the end of its processes", |job| {
            job.tag.processes().is_empty()
        });
        let token = self.path(&format!("join-token.{}", self.job));
        assert!(!token.exists(), "the token is removed");
    }
}

#[test]
fn the_example_trains_and_leaves_a_node_that_is_drained() {
    let test = "the_example_trains_and_leaves_a_node_that_is_drained";
    let Some(mut job) = Submitted::start_for(test) else {
        return;
    };
    job.wait_training(3);
    let hosts: BTreeSet<_> = (job.log.events().iter())
        .map(|event| event.host.clone())
        .collect();
    assert!(hosts.iter().eq(["n1", "n2", "n3"]), "{hosts:?}");
    job.cluster
        .run("scontrol update NodeName=n3 State=DRAIN Reason=test");
    job.wait_training(2);
    fs::write(job.path("finish"), "").unwrap();
    job.wait_for("its success", |job| job.said().contains("succeeded"));
    assert!(job.said().contains("host n3 is drained"), "{}", job.said());
    job.ends("COMPLETED");
}

/// The signal of `--signal=USR1@120`, two minutes before the end of the allocation.
#[test]
fn the_signal_before_the_end_reaches_the_agents() {
    let Some(mut job) = Submitted::start_for("the_signal_before_the_end_reaches_the_agents") else {
        return;
    };
    job.wait_training(3);
    let signal = format!("scancel --signal=USR1 {}", job.job);
    job.cluster.run(&signal);
    for host in ["n1", "n2", "n3"] {
        let line = format!("host {host} will go away (its agent got a signal): draining");
        job.wait_for(&line, |job| job.said().contains(&line));
    }
    let cancel = format!("scancel {}", job.job);
    job.cluster.run(&cancel);
    job.ends("CANCELLED");
}
