//! examples/kubernetes/train.yaml: Kubernetes knows each field, and the commands run a job.

#![allow(clippy::unwrap_used)]

mod support;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use elasticrun_cloud_tests::StandIn;
use elasticrun_process_tests::{Job, binaries};
use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::Job as BatchJob,
    core::v1::{Container, Service, ServiceAccount},
    rbac::v1::{Role, RoleBinding},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use self::support::{assert_within, manifests, understood};

fn manifest() -> Vec<Value> {
    manifests("train.yaml")
}

fn with_kind<T: DeserializeOwned>(kind: &str) -> T {
    let found = manifest().into_iter().find(|item| item["kind"] == kind);
    serde_json::from_value(found.unwrap()).unwrap()
}

#[test]
fn every_field_is_one_of_kubernetes() {
    let mut kinds = Vec::new();
    for item in manifest() {
        let kind = item["kind"].as_str().unwrap().to_owned();
        let known = match kind.as_str() {
            "ServiceAccount" => understood::<ServiceAccount>(&item),
            "Role" => understood::<Role>(&item),
            "RoleBinding" => understood::<RoleBinding>(&item),
            "Service" => understood::<Service>(&item),
            "Job" => understood::<BatchJob>(&item),
            "Deployment" => understood::<Deployment>(&item),
            other => panic!("{other} is not looked at here"),
        };
        assert_within(&item, &known, &kind);
        kinds.push(kind);
    }
    let all = [
        "ServiceAccount",
        "Role",
        "RoleBinding",
        "Service",
        "Job",
        "Deployment",
    ];
    assert_eq!(kinds, all);
}

/// The command line of a container of the manifest.
fn words(container: &Container) -> Vec<String> {
    container.command.clone().unwrap()
}

fn driver() -> Container {
    let job: BatchJob = with_kind("Job");
    job.spec
        .unwrap()
        .template
        .spec
        .unwrap()
        .containers
        .remove(0)
}

fn agent() -> Container {
    let deployment: Deployment = with_kind("Deployment");
    let mut spec = deployment.spec.template.spec.unwrap();
    spec.containers.remove(0)
}

/// Starts an agent as the container of a pod does.
fn start(host: &str, port: u16, token: &Path, job: &elasticrun_process_tests::Tag) -> Child {
    let line = words(&agent()).join("\n");
    let here = line
        .replace("train-driver:7070", &format!("127.0.0.1:{port}"))
        .replace("/etc/join/token", token.to_str().unwrap());
    let names: Vec<_> = agent()
        .env
        .unwrap()
        .into_iter()
        .map(|env| env.name)
        .collect();
    assert_eq!(names, ["POD_NAME", "POD_UID"], "what its line needs");
    let (name, uid) = host.split_once(".uid-").unwrap();
    let mut line = here.split('\n');
    let (variable, value) = job.variable();
    let program = binaries::elasticrun();
    let path = format!(
        "{}:{}",
        program.parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    Command::new(line.next().unwrap())
        .args(line)
        .env("PATH", path)
        .env("POD_NAME", name)
        .env("POD_UID", format!("{uid}-0000-4000-8000-000000000000"))
        .env(variable, value)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn its_commands_make_a_job_that_grows_with_its_pods() {
    let mut cluster = StandIn::kubernetes();
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| -> PathBuf { directory.path().join(name) };
    fs::write(file("config"), cluster.kubeconfig()).unwrap();
    let made = Command::new(binaries::elasticrun()).arg("token").output();
    fs::write(file("token"), made.unwrap().stdout).unwrap();
    fs::set_permissions(
        file("token"),
        std::os::unix::fs::PermissionsExt::from_mode(0o600),
    )
    .unwrap();
    // SAFETY: nextest runs each test in its own process, and there is no other thread yet.
    unsafe { std::env::set_var("KUBECONFIG", file("config")) };
    let mut pod = |name: &str| {
        let order = json!({"do": "pod", "name": name, "namespace": "lab", "labels": {"app": "train-agent"},
            "limits": {"nvidia.com/gpu": "1"}});
        cluster.order(order).as_str().unwrap().to_owned()
    };

    let words = words(&driver());
    let flags: Vec<_> = words[1..words.len() - 2].to_vec();
    assert_eq!(words[0], "elasticrun");
    assert_eq!(words[words.len() - 2..], ["python", "train.py"]);
    let token = file("token");
    let here = |flag: &String| {
        flag.replace("0.0.0.0:7070", "127.0.0.1:0")
            .replace("/etc/join/token", token.to_str().unwrap())
    };
    let program = std::env::current_exe().unwrap();
    let plugins = program.ancestors().nth(2).unwrap().display().to_string();
    let job = Job::new("").flag(["--plugin-dir", &plugins, "--log-level", "debug"]);
    let job = flags
        .iter()
        .map(here)
        .fold(job, |job, flag| job.flag([&flag]));
    let first = pod("train-agent-0");
    let mut job = job.start();
    job.wait_said("the driver listens");
    let said = job.said();
    let after = said
        .split("address=127.0.0.1:")
        .nth(1)
        .expect("the log names the port");
    let digits = after.split(|letter: char| !letter.is_ascii_digit()).next();
    let port = digits.unwrap().parse().unwrap();

    let tag = job.tag().clone();
    let mut agents = vec![start(&first, port, &token, &tag)];
    let one = job.wait_training(1, 3);
    assert_eq!(one[0].host, first);
    let second = pod("train-agent-1");
    agents.push(start(&second, port, &token, &tag));
    job.wait_training(2, one[0].step);
    job.finish();
    for mut agent in agents {
        assert!(agent.wait().unwrap().success(), "agents end with their job");
    }
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    assert_eq!(ended.sizes(), [1, 2]);
}
