//! examples/kubernetes: jobs of schedulers that start torchrun. Kubernetes knows the fields of their pods, and the commands run a job
//! with the variables that the scheduler sets.

#![allow(clippy::unwrap_used)]

mod support;

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use elasticrun_process_tests::{Tag, binaries};
use k8s_openapi::api::{
    batch::v1::JobTemplateSpec,
    core::v1::{Container, EnvVar, PodSpec, PodTemplateSpec},
};
use serde_json::Value;
use tempfile::TempDir;

use self::support::{assert_within, manifests, understood};

/// A script that waits for its peers, so that all pods are in one group.
const SCRIPT: &str = "import os, time
rank, size = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])
here = os.path.dirname(os.path.abspath(__file__))
open(f'{here}/up-{rank}-of-{size}', 'w').close()
while not all(os.path.exists(f'{here}/up-{other}-of-{size}') for other in range(size)):
    time.sleep(0.01)
";

/// The only item of an example.
fn example(name: &str) -> Value {
    let mut all = manifests(name);
    assert_eq!(all.len(), 1, "{name}");
    all.remove(0)
}

/// What a scheduler adds to the environment of a pod.
fn variables(given: &[EnvVar], added: &[(&str, String)]) -> Vec<(String, String)> {
    let given = given.iter();
    // A value that comes from the pod is among those that are added.
    let given = given.filter_map(|variable| Some((variable.name.clone(), variable.value.clone()?)));
    let added = added
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.clone()));
    given.chain(added).collect()
}

/// Pods that run as processes of this machine.
struct Pods {
    directory: TempDir,
    port: u16,
    tag: Tag,
    running: Vec<Child>,
}

impl Pods {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("train.py"), SCRIPT).unwrap();
        let made = Command::new(binaries::elasticrun()).arg("token").output();
        let token = directory.path().join("token");
        fs::write(&token, made.unwrap().stdout).unwrap();
        fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Self {
            port: listener.local_addr().unwrap().port(),
            directory,
            tag: Tag::new(),
            running: Vec::new(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Starts a pod with this command. `first` is the name of the first pod, which no name server of this machine knows.
    fn start(&mut self, words: &[String], environment: &[(String, String)], first: &str) {
        assert_eq!(words[0], "elasticrun");
        let programs = binaries::elasticrun();
        let programs = programs.parent().unwrap().display().to_string();
        let search = format!("{programs}:{}", std::env::var("PATH").unwrap());
        let here = |(name, value): &(String, String)| {
            let value = match (name.as_str(), value.as_str()) {
                (_, "/etc/join/token") => self.path("token").display().to_string(),
                ("PET_MASTER_PORT", _) => self.port.to_string(),
                (_, value) if value.starts_with(first) => match value.contains(':') {
                    true => format!("127.0.0.1:{}", self.port),
                    false => "127.0.0.1".to_owned(),
                },
                (_, value) => value.to_owned(),
            };
            (name.clone(), value)
        };
        let (tag, value) = self.tag.variable();
        let pod = Command::new(&words[0])
            .args(&words[1..])
            .current_dir(self.directory.path())
            .envs(environment.iter().map(here))
            .env("PATH", search)
            .env("HOME", self.directory.path())
            .env(tag, value)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        self.running.push(pod.unwrap());
    }

    /// Waits for the end of all pods, whose workers were one group of this size.
    #[track_caller]
    fn assert_end(mut self, size: u32) {
        for mut pod in std::mem::take(&mut self.running) {
            assert!(pod.wait().unwrap().success());
        }
        for rank in 0..size {
            assert!(
                self.path(&format!("up-{rank}-of-{size}")).exists(),
                "rank {rank}"
            );
        }
    }
}

impl Drop for Pods {
    fn drop(&mut self) {
        self.tag.kill_all();
    }
}

#[test]
fn a_pytorch_job_has_pods_that_join_each_other() {
    let job = example("pytorchjob.yaml");
    assert_eq!(
        (&job["apiVersion"], &job["kind"]),
        (&"kubeflow.org/v1".into(), &"PyTorchJob".into())
    );
    let template = &job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"];
    assert_within(
        template,
        &understood::<PodTemplateSpec>(template),
        "template",
    );
    let template: PodTemplateSpec = serde_json::from_value(template.clone()).unwrap();
    let container = template.spec.unwrap().containers.remove(0);
    // The operator looks for this name.
    assert_eq!(container.name, "pytorch");
    let policy = &job["spec"]["elasticPolicy"];
    let mut pods = Pods::new();
    for pod in 0..2 {
        let added = [
            (
                "PET_RDZV_BACKEND",
                policy["rdzvBackend"].as_str().unwrap().to_owned(),
            ),
            ("PET_RDZV_ENDPOINT", "train-worker-0:23456".to_owned()),
            (
                "PET_NNODES",
                format!("{}:{}", policy["minReplicas"], policy["maxReplicas"]),
            ),
            ("PET_MAX_RESTARTS", policy["maxRestarts"].to_string()),
            (
                "PET_NPROC_PER_NODE",
                job["spec"]["nprocPerNode"].as_str().unwrap().to_owned(),
            ),
            ("PYTHONUNBUFFERED", "1".to_owned()),
            // Those that the operator sets for scripts without torchrun.
            ("WORLD_SIZE", "2".to_owned()),
            ("RANK", pod.to_string()),
            ("MASTER_ADDR", "train-worker-0".to_owned()),
            ("MASTER_PORT", "23456".to_owned()),
        ];
        let environment = variables(container.env.as_deref().unwrap(), &added);
        let words = container.command.as_deref().unwrap();
        pods.start(words, &environment, "train-worker-0");
    }
    pods.assert_end(2);
}

#[test]
fn a_train_job_has_numbered_nodes() {
    let job = example("trainjob.yaml");
    let versions = ("trainer.kubeflow.org/v1alpha1".into(), "TrainJob".into());
    assert_eq!(
        (&job["apiVersion"], &job["kind"]),
        (&versions.0, &versions.1)
    );
    let pod = &job["spec"]["podTemplateOverrides"][0]["spec"];
    assert_within(pod, &understood::<PodSpec>(pod), "spec");
    let trainer = &job["spec"]["trainer"];
    let as_container: Container = serde_json::from_value(serde_json::json!({
        "name": "node", "env": trainer["env"], "command": trainer["command"],
    }))
    .unwrap();
    let nodes = trainer["numNodes"].as_u64().unwrap();
    let mut pods = Pods::new();
    for node in 0..nodes {
        let added = numbered(nodes, &trainer["numProcPerNode"].to_string(), node);
        let environment = variables(as_container.env.as_deref().unwrap(), &added);
        let words = as_container.command.as_deref().unwrap();
        pods.start(words, &environment, "train-node-0-0.train");
    }
    pods.assert_end(2);
}

#[test]
fn a_job_set_has_numbered_nodes() {
    let set = example("jobset.yaml");
    let versions = ("jobset.x-k8s.io/v1alpha2".into(), "JobSet".into());
    assert_eq!(
        (&set["apiVersion"], &set["kind"]),
        (&versions.0, &versions.1)
    );
    let template = &set["spec"]["replicatedJobs"][0]["template"];
    assert_within(
        template,
        &understood::<JobTemplateSpec>(template),
        "template",
    );
    let template: JobTemplateSpec = serde_json::from_value(template.clone()).unwrap();
    let job = template.spec.unwrap();
    assert_eq!(job.completions, job.parallelism);
    let container = job.template.spec.unwrap().containers.remove(0);
    let env = container.env.as_deref().unwrap();
    let rank = env.iter().find(|variable| variable.name == "PET_NODE_RANK");
    let rank = rank.unwrap().value_from.clone().unwrap().field_ref.unwrap();
    let index = "metadata.annotations['batch.kubernetes.io/job-completion-index']";
    assert_eq!(rank.field_path, index);
    let mut pods = Pods::new();
    for node in 0..2 {
        let environment = variables(env, &[("PET_NODE_RANK", node.to_string())]);
        let words = container.command.as_deref().unwrap();
        pods.start(words, &environment, "train-node-0-0.train");
    }
    pods.assert_end(2);
}

/// The variables of a node of Kubeflow Trainer.
fn numbered(nodes: u64, processes: &str, rank: u64) -> [(&'static str, String); 5] {
    [
        ("PET_NNODES", nodes.to_string()),
        ("PET_NPROC_PER_NODE", processes.to_owned()),
        ("PET_NODE_RANK", rank.to_string()),
        ("PET_MASTER_ADDR", "train-node-0-0.train".to_owned()),
        ("PET_MASTER_PORT", "29500".to_owned()),
    ]
}
