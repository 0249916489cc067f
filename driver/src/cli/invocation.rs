//! A parsed command line, with what each command needs.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use super::{AgentStart, DrainRequest, NodeRequest, PluginRequest};
use crate::{
    config::{Config, Hosts, Settings, Workers},
    resume::ResumeRequest,
    signals::StopSignals,
};

/// A parsed command line.
#[derive(Clone, Debug)]
pub enum Invocation {
    /// Print this to stdout and exit with success.
    Print(String),
    /// Run a job.
    Run(Box<RunRequest>),
    /// Run a job on the executors of Spark.
    Spark(Box<SparkRequest>),
    /// Run the agent of a host.
    Agent(AgentStart),
    /// Answer a question about a data set. The Python package parses the words after `data`.
    Data(Vec<OsString>),
    /// Run an agent under a task of a cluster. Only a bridge starts it.
    TaskService,
    /// Request a running job to drain a host.
    Drain(DrainRequest),
    /// Show the outcome of a run.
    Resume(ResumeRequest),
    /// Print a join token that is valid for this time.
    Token(Duration),
    /// Run what a node of several runs for torchrun's command line.
    Torchrun(NodeRequest),
    /// List, inspect, test or create plugins.
    Plugin(PluginRequest),
    /// Poll sources for their hosts.
    Hosts(HostsRequest),
    /// Run the plugin in this file. Only a driver starts it.
    PluginHost(PathBuf),
    /// Run the scheduler of parameter servers. Only a driver starts it.
    Scheduler,
}

/// The command `hosts`.
#[derive(Clone, Debug)]
pub struct HostsRequest {
    /// The sources.
    pub hosts: Hosts,
    /// Poll until the process is ended, not only once.
    pub watch: bool,
    /// Print JSON, one line for each answer of a source.
    pub json: bool,
}

/// A job on the executors of Spark, with valid settings.
#[derive(Clone, Debug)]
pub struct SparkRequest {
    /// The master URL of the cluster.
    pub master: String,
    /// Numbers of workers. Without a maximum, Spark's configuration sets the maximum.
    pub workers: Workers,
    /// Names of the variables to pass to workers, whose values are in the environment of this process.
    pub passed: Vec<String>,
    /// The other options, as given.
    pub options: Vec<String>,
    /// The command of each worker.
    pub command: Vec<String>,
}

/// The command `run`, with valid settings.
#[derive(Clone, Debug)]
pub struct RunRequest {
    /// The settings of the driver.
    pub settings: Settings,
    /// The settings with their origins.
    pub config: Config,
    /// Lines for stderr before the start of the job, about options without effect.
    pub notes: Vec<String>,
    /// The id of the run. `None`: a random one.
    pub run_id: Option<String>,
    /// The signals that end the job in order.
    pub stop_signals: StopSignals,
}
