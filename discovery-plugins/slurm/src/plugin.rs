//! The plugin.

use std::{collections::BTreeMap, env, time::Duration};

use elasticrun_plugin_sdk::{Host, HostState, Manifest, Plugin, PluginError, SlotsFrom, Snapshot};
use serde::Deserialize;

use crate::{
    command::after,
    hostlist::expand,
    nodes::{self, meaning},
    slots,
};

/// From a poll to the next. Each poll sends two requests to the controller of the cluster.
const INTERVAL: Duration = Duration::from_secs(10);

/// Options of the plugin.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The id of the job, else that of the job of the driver.
    #[serde(default)]
    pub job: Option<String>,
    /// Slots of each node. It overrides the request of the job.
    #[serde(default)]
    pub slots: Option<u32>,
}

/// The nodes of a Slurm job.
#[derive(Debug)]
pub struct Slurm {
    job: String,
    options: Options,
    /// Slots by node, from the environment of the job.
    known: BTreeMap<String, (u32, SlotsFrom)>,
}

impl Plugin for Slurm {
    const MANIFEST: Manifest = Manifest {
        name: "slurm",
        version: env!("CARGO_PKG_VERSION"),
        license: "Apache-2.0",
        description: "the nodes of the Slurm job that this runs in, or of job=NUMBER",
        config: include_str!("options.json"),
        environment: &[
            "SLURM_CONF",
            "SLURM_GPUS_ON_NODE",
            "SLURM_GPUS_PER_NODE",
            "SLURM_JOB_ID",
            "SLURM_JOB_NODELIST",
            "SLURM_NTASKS",
            "SLURM_NTASKS_PER_NODE",
            "SLURM_TASKS_PER_NODE",
        ],
        permissions: &["squeue and sinfo of the own job"],
    };

    type Config = Options;

    fn create(options: Options) -> Result<Self, PluginError> {
        Self::with_env(options, &|name| env::var(name).ok())
    }

    fn poll(&mut self, deadline: Duration) -> Result<Snapshot, PluginError> {
        let until = after(deadline);
        let job = nodes::job(&self.job, until)?;
        let states = if job.nodes.is_empty() {
            BTreeMap::new()
        } else {
            nodes::states(&job.nodes, until)?
        };
        let hosts: Vec<Host> = job
            .nodes
            .iter()
            .map(|node| self.host(node, &job.state, states.get(node)))
            .collect();
        Ok(Snapshot {
            next_poll: Some(INTERVAL),
            ..Snapshot::new(hosts)
        })
    }
}

impl Slurm {
    fn with_env(options: Options, env: slots::Env<'_>) -> Result<Self, PluginError> {
        elasticrun_plugin_sdk::slots::check_option(options.slots)?;
        let current = env("SLURM_JOB_ID");
        let Some(job) = options.job.clone().or_else(|| current.clone()) else {
            return Err(PluginError::bad_config(
                "this is not a Slurm job; start it by sbatch or salloc, or give job=NUMBER",
            ));
        };
        if job.is_empty()
            || !job
                .bytes()
                .all(|byte| byte.is_ascii_digit() || byte == b'_')
        {
            let why = format!("job: {job:?} is not a job's number, such as 1234 or 1234_5");
            return Err(PluginError::bad_config(why));
        }
        let mut known = BTreeMap::new();
        // This environment has only tasks and GPUs of the current job.
        if current.as_deref() == Some(job.as_str()) {
            let list = env("SLURM_JOB_NODELIST").unwrap_or_default();
            let nodes = expand(&list)
                .map_err(|error| PluginError::bad_config(format!("SLURM_JOB_NODELIST: {error}")))?;
            let slots = slots::slots(env, nodes.len());
            known = nodes
                .into_iter()
                .zip(slots)
                .filter_map(|(node, slots)| Some((node, slots?)))
                .collect();
        }
        Ok(Self {
            job,
            options,
            known,
        })
    }

    fn host(&self, node: &str, job: &str, state: Option<&String>) -> Host {
        let explicit = self.options.slots.map(|slots| (slots, SlotsFrom::Explicit));
        let slots = explicit.or_else(|| self.known.get(node).copied());
        let (state, reason) = match state {
            _ if job == "COMPLETING" => (HostState::Draining, Some("its job ends".into())),
            _ if job != "RUNNING" => (HostState::Pending, Some(format!("its job is {job}"))),
            Some(state) => meaning(state),
            None => (HostState::Ready, None),
        };
        Host {
            slots: slots.map(|(slots, _)| slots),
            slots_from: slots.map(|(_, from)| from),
            state,
            reason,
            ..Host::new(node)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use elasticrun_plugin_sdk::ErrorKind;

    fn made(options: Options, pairs: &[(&str, &str)]) -> Result<Slurm, PluginError> {
        Slurm::with_env(options, &|name| {
            let pair = pairs.iter().find(|(key, _)| *key == name);
            pair.map(|(_, value)| (*value).to_owned())
        })
    }

    const JOB: [(&str, &str); 4] = [
        ("SLURM_JOB_ID", "17"),
        ("SLURM_JOB_NODELIST", "gpu[1-3]"),
        ("SLURM_NTASKS", "12"),
        ("SLURM_TASKS_PER_NODE", "4(x3)"),
    ];

    #[test]
    fn slots_stay_with_their_nodes() {
        let plugin = made(Options::default(), &JOB).unwrap();
        let running = "allocated".to_owned();
        let host = plugin.host("gpu2", "RUNNING", Some(&running));
        assert_eq!(
            (host.slots, host.slots_from),
            (Some(4), Some(SlotsFrom::Explicit))
        );
        assert_eq!(host.state, HostState::Ready);
        let added = plugin.host("gpu9", "RUNNING", Some(&running));
        assert_eq!(added.slots, None);
        let explicit = Options {
            slots: Some(2),
            ..Options::default()
        };
        let plugin = made(explicit, &JOB).unwrap();
        assert_eq!(plugin.host("gpu9", "RUNNING", None).slots, Some(2));
        let other = Options {
            job: Some("18".into()),
            ..Options::default()
        };
        assert!(
            made(other, &JOB).unwrap().known.is_empty(),
            "another job's nodes"
        );
    }

    #[test]
    fn a_job_that_does_not_run_has_no_ready_hosts() {
        let plugin = made(Options::default(), &JOB).unwrap();
        let state = |job| plugin.host("gpu1", job, None).state;
        assert_eq!(state("PENDING"), HostState::Pending);
        assert_eq!(state("SUSPENDED"), HostState::Pending);
        assert_eq!(state("COMPLETING"), HostState::Draining);
    }

    #[test]
    fn mistakes_are_named() {
        let refused = |options, pairs: &[_]| {
            let error = made(options, pairs).unwrap_err();
            assert_eq!(error.kind, ErrorKind::BadConfig);
            error.message
        };
        assert_eq!(
            refused(Options::default(), &[]),
            "this is not a Slurm job; start it by sbatch or salloc, or give job=NUMBER"
        );
        let odd = Options {
            job: Some("--me".into()),
            ..Options::default()
        };
        assert_eq!(
            refused(odd, &[]),
            r#"job: "--me" is not a job's number, such as 1234 or 1234_5"#
        );
        let none = Options {
            slots: Some(0),
            ..Options::default()
        };
        assert_eq!(
            refused(none, &JOB),
            "slots: must be a number from 1 to 1024"
        );
        let broken = [JOB[0], ("SLURM_JOB_NODELIST", "gpu[1")];
        assert!(
            refused(Options::default(), &broken)
                .starts_with(r#"SLURM_JOB_NODELIST: "gpu[1" is no list"#)
        );
    }
}
