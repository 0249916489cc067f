//! The sources of hosts that a configuration names.

use elasticrun_plugin_loader::Spec;
use serde_json::Map;

use super::{error::Error, table::Config};

/// The sources that a configuration names by their own flags.
pub(super) fn specs(config: &Config) -> impl Iterator<Item = Spec> {
    let aws = config
        .aws_asg
        .value
        .iter()
        .map(|group| group.spec("aws-asg", "name"));
    let gcp = config
        .gcp_mig
        .value
        .iter()
        .map(|group| group.spec("gcp-mig", "group"));
    let pods = config.k8s.value.iter();
    let pods = pods.map(|group| group.spec("kubernetes", "selector"));
    let slurm = config.slurm.value.then(|| Spec {
        name: "slurm".to_owned(),
        options: Map::new(),
    });
    aws.chain(gcp).chain(pods).chain(slurm)
}

/// Checks that `--spark` is the only source of hosts.
///
/// # Errors
/// There is another source.
pub(super) fn check_spark_is_alone(config: &Config) -> Result<(), Error> {
    if config.spark.value.is_none() {
        return Ok(());
    }
    let Config {
        hosts,
        hostfile,
        host_discovery_script: script,
        discovery,
        ..
    } = config;
    let others = [
        (hosts.value.is_some(), &hosts.origin, "hosts"),
        (hostfile.value.is_some(), &hostfile.origin, "hostfile"),
        (
            script.value.is_some(),
            &script.origin,
            "host-discovery-script",
        ),
        (!discovery.value.is_empty(), &discovery.origin, "discovery"),
    ];
    let named = others.iter().find(|(given, ..)| *given);
    let named = named.map(|(_, origin, key)| origin.name(key));
    let group = || {
        specs(config)
            .next()
            .map(|spec| format!("hosts of {}", spec.name))
    };
    match named.or_else(group) {
        None => Ok(()),
        Some(other) => {
            let why = format!("not together with {other}: Spark's executors are the hosts");
            Err(config.spark.contradicts("spark", why))
        }
    }
}
