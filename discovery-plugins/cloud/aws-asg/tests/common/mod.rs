//! The stand-in for AWS, and a plugin that talks to it.

#![allow(clippy::unwrap_used, dead_code)]

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use elasticrun_plugin_aws_asg::AwsAsg;
use elasticrun_plugin_sdk::{Host, HostState, Plugin, PluginError, from_options};
use serde_json::{Value, json};

pub(crate) const PLENTY: Duration = Duration::from_secs(30);

/// moto in a process of its own, which ends with this.
pub(crate) struct StandIn {
    process: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    pub(crate) port: u16,
}

impl StandIn {
    pub(crate) fn start() -> Self {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests");
        let venv = Command::new(tests.join("venv.sh"))
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        assert!(venv.status.success(), "tests/venv.sh failed");
        let python = String::from_utf8(venv.stdout).unwrap();
        let mut process = Command::new(python.trim())
            .arg(tests.join("aws_stand_in.py"))
            .arg("0")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut answers = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
        let hello: Value = serde_json::from_str(&line).expect("the stand-in says its port");
        Self {
            orders: process.stdin.take(),
            port: hello["port"].as_u64().unwrap().try_into().unwrap(),
            process,
            answers,
        }
    }

    /// Gives an order of tests/aws_stand_in.py.
    pub(crate) fn order(&mut self, order: Value) -> Value {
        let orders = self.orders.as_mut().unwrap();
        writeln!(orders, "{order}").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        let mut answer: Value = serde_json::from_str(&line).unwrap();
        assert!(answer["error"].is_null(), "{order}: {}", answer["error"]);
        answer["ok"].take()
    }

    /// A group; gives the ids of its instances.
    pub(crate) fn group(&mut self, name: &str, desired: u32) -> Vec<String> {
        ids(&self.order(json!({"do": "group", "name": name, "desired": desired})))
    }

    /// A new size of a group; gives the ids of its instances.
    pub(crate) fn desired(&mut self, name: &str, count: u32) -> Vec<String> {
        ids(&self.order(json!({"do": "desired", "name": name, "count": count})))
    }

    /// Another lifecycle state of an instance.
    pub(crate) fn life(&mut self, id: &str, state: &str) {
        self.order(json!({"do": "life", "id": id, "state": state}));
    }

    /// The operations that were called since the last time.
    pub(crate) fn calls(&mut self) -> Vec<String> {
        let calls = self.order(json!({"do": "calls"}));
        let calls = calls.as_array().unwrap().iter();
        calls
            .map(|call| call["action"].as_str().unwrap().to_owned())
            .collect()
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// A plugin of this AWS with more options.
    pub(crate) fn plugin(&self, options: Value) -> AwsAsg {
        self.try_plugin(options).unwrap()
    }

    pub(crate) fn try_plugin(&self, mut options: Value) -> Result<AwsAsg, PluginError> {
        options["endpoint"] = self.endpoint().into();
        options["region"] = "eu-central-1".into();
        make(&options)
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        drop(self.orders.take());
        self.process.wait().unwrap();
    }
}

fn ids(value: &Value) -> Vec<String> {
    serde_json::from_value(value.clone()).unwrap()
}

/// A plugin from its options. It has credentials, which moto does not look at.
pub(crate) fn make(options: &Value) -> Result<AwsAsg, PluginError> {
    for (name, value) in [
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
    ] {
        // SAFETY: the tests of this crate are run by nextest, each in a process of its own, and nothing of this
        // one's reads the environment on another thread yet.
        unsafe { std::env::set_var(name, value) };
    }
    AwsAsg::create(from_options(options.to_string().as_bytes())?)
}

pub(crate) fn poll(plugin: &mut AwsAsg) -> Vec<Host> {
    plugin.poll(PLENTY).unwrap().hosts
}

/// Ids of the hosts in a state.
pub(crate) fn in_state(hosts: &[Host], state: HostState) -> Vec<&str> {
    let hosts = hosts.iter().filter(|host| host.state == state);
    hosts.map(|host| host.id.as_str()).collect()
}
