//! Test servers for clouds: each is a program that serves the cloud's interface on a port and takes orders from a test.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde_json::{Value, json};

/// A test server in its own process, which ends when this is dropped.
#[derive(Debug)]
pub struct StandIn {
    process: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// Its port on 127.0.0.1.
    pub port: u16,
}

impl StandIn {
    /// AWS: moto with additions.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn aws() -> Self {
        Self::start(&python(), "aws_stand_in.py")
    }

    /// Compute Engine: the part for managed instance groups.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn gce() -> Self {
        Self::start(&python(), "gce_stand_in.py")
    }

    /// A Kubernetes API server: list and watch of pods.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn kubernetes() -> Self {
        Self::start("python3", "kubernetes_stand_in.py")
    }

    /// A configuration of kubectl for a Kubernetes test server. (JSON is YAML.)
    pub fn kubeconfig(&self) -> String {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": self.endpoint()}}],
            "users": [{"name": "test", "user": {}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": "lab"}}],
        })
        .to_string()
    }

    fn start(python: &str, script: &str) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(script);
        let mut process = Command::new(python)
            // Without compiled files beside its imports.
            .arg("-B")
            .arg(script)
            .arg("0")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the stand-in can be started");
        let answers = process.stdout.take().expect("its output is a pipe");
        let mut stand_in = Self {
            orders: process.stdin.take(),
            port: 0,
            process,
            answers: BufReader::new(answers),
        };
        let port = stand_in.answer()["port"].as_u64();
        stand_in.port = port
            .and_then(|port| port.try_into().ok())
            .expect("its port");
        stand_in
    }

    /// Sends an order and returns the answer.
    ///
    /// # Panics
    /// The order fails.
    pub fn order(&mut self, order: Value) -> Value {
        let orders = self.orders.as_mut().expect("open until the end");
        writeln!(orders, "{order}").expect("the stand-in reads");
        let mut answer = self.answer();
        assert!(answer["error"].is_null(), "{order}: {}", answer["error"]);
        answer["ok"].take()
    }

    fn answer(&mut self) -> Value {
        let mut line = String::new();
        self.answers
            .read_line(&mut line)
            .expect("the stand-in writes");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
    }

    /// The operations that were called since the last call.
    pub fn calls(&mut self) -> Vec<String> {
        let calls = self.order(json!({"do": "calls"}));
        let calls = calls.as_array().into_iter().flatten();
        calls
            .filter_map(|call| Some(call["action"].as_str()?.to_owned()))
            .collect()
    }

    /// Its address for clients.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

/// The python of the virtual environment.
fn python() -> String {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let venv = Command::new(tests.join("venv.sh"))
        .stderr(Stdio::inherit())
        .output()
        .expect("tests/venv.sh can be run");
    assert!(venv.status.success(), "tests/venv.sh failed");
    let python = String::from_utf8(venv.stdout).expect("a path");
    python.trim().to_owned()
}

impl Drop for StandIn {
    fn drop(&mut self) {
        drop(self.orders.take());
        // It ends at the end of its input.
        let _ = self.process.wait();
    }
}

/// The ids in an answer.
///
/// # Panics
/// The answer is no list of ids.
pub fn ids(value: Value) -> Vec<String> {
    serde_json::from_value(value).expect("a list of ids")
}
