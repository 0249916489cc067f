//! The environment variables of a worker: ours, Horovod's and those of torchrun.

use std::{collections::BTreeMap, net::IpAddr, path::Path};

use elasticrun_protocol::{
    HostId,
    control::{ParameterServers, Setup, Spawn},
};

use super::directives::VISIBLE_DEVICES;
use crate::interfaces::Interface;

/// The variable with the path of the agent's socket. It marks the processes that the agent has started.
pub(crate) const AGENT_SOCKET: &str = "ELASTICRUN_AGENT_SOCKET";

/// The variables of [`variables`] that differ between the workers of a host, or between one group and the next.
const OF_PROCESS: [&str; 21] = [
    "ELASTICRUN_LOCAL_RANK",
    "ELASTICRUN_GENERATION",
    "HOROVOD_RANK",
    "HOROVOD_SIZE",
    "HOROVOD_LOCAL_RANK",
    "HOROVOD_LOCAL_SIZE",
    "HOROVOD_CROSS_RANK",
    "HOROVOD_CROSS_SIZE",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "ROLE_RANK",
    "ROLE_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_MAX_RESTARTS",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_ERROR_FILE",
];

/// Whether a variable differs between the workers of a host, or between one group and the next. With `own_device`, each worker
/// sees another device.
pub(super) fn is_of_process(name: &str, own_device: bool) -> bool {
    OF_PROCESS.contains(&name) || own_device && name == VISIBLE_DEVICES
}

/// The agent's part of a worker's environment.
#[derive(Debug)]
pub(crate) struct SpawnContext<'a> {
    pub(crate) host: &'a HostId,
    pub(crate) setup: &'a Setup,
    /// The interface that the user has chosen for data between workers.
    pub(crate) interface: Option<&'a Interface>,
    pub(crate) socket: &'a Path,
    /// The file to which a torch worker writes its error.
    pub(crate) error_file: &'a Path,
    /// The addresses of a node of the parameter servers.
    pub(crate) node: NodeAddresses,
}

/// The variables to set in addition to those of the agent. `is_set` returns whether the agent has a variable.
pub(crate) fn variables(
    ctx: &SpawnContext<'_>,
    spawn: &Spawn,
    is_set: impl Fn(&str) -> bool,
) -> BTreeMap<String, String> {
    let SpawnContext {
        host,
        setup,
        interface,
        socket,
        error_file,
        node,
    } = ctx;
    let (place, process) = (spawn.place, spawn.process);
    let local_rank = place.local_rank(process);
    let mut all = setup.env.clone();
    // Defaults that the user may override.
    let mut default = |name: &str, value: &str| {
        if !is_set(name) {
            all.entry(name.to_owned())
                .or_insert_with(|| value.to_owned());
        }
    };
    if place.local_size > 1 {
        default("OMP_NUM_THREADS", "1");
    }
    // What a worker that is killed has printed is shown, as by horovodrun and torchrun.
    default("PYTHONUNBUFFERED", "1");
    default("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
    default("TORCHELASTIC_MAX_RESTARTS", "0");
    if let Some(Interface {
        name, is_prefix, ..
    }) = interface
    {
        // For NCCL a name is a prefix, unless it follows `=`.
        let exact = if *is_prefix { "=" } else { "" };
        default("NCCL_SOCKET_IFNAME", &format!("{exact}{name}"));
        default("GLOO_SOCKET_IFNAME", name);
    }

    // torchrun's options set these two for a job.
    let mut unless_given = |name: &str, value: &str| {
        all.entry(name.to_owned())
            .or_insert_with(|| value.to_owned());
    };
    unless_given("ROLE_NAME", "default");
    unless_given("TORCHELASTIC_RUN_ID", &setup.run_id);

    let mut set = |name: &str, value: String| all.insert(name.to_owned(), value);
    set("ELASTICRUN_RUN_ID", setup.run_id.clone());
    set("ELASTICRUN_HOST", host.to_string());
    set(AGENT_SOCKET, socket.display().to_string());
    set("ELASTICRUN_LOCAL_RANK", process.local_rank.to_string());
    set("ELASTICRUN_GENERATION", process.generation.to_string());

    set("HOROVOD_HOSTNAME", host.to_string());
    set("HOROVOD_RANK", place.rank.to_string());
    set("HOROVOD_SIZE", place.size.to_string());
    set("HOROVOD_LOCAL_RANK", local_rank.to_string());
    set("HOROVOD_LOCAL_SIZE", place.local_size.to_string());
    set("HOROVOD_CROSS_RANK", place.cross_rank.to_string());
    set("HOROVOD_CROSS_SIZE", place.cross_size.to_string());
    set("HOROVOD_ELASTIC", "1".into());

    set("RANK", place.rank.to_string());
    set("WORLD_SIZE", place.size.to_string());
    set("LOCAL_RANK", local_rank.to_string());
    set("LOCAL_WORLD_SIZE", place.local_size.to_string());
    set("GROUP_RANK", place.cross_rank.to_string());
    set("GROUP_WORLD_SIZE", place.cross_size.to_string());
    set("ROLE_RANK", place.rank.to_string());
    set("ROLE_WORLD_SIZE", place.size.to_string());
    set("MASTER_ADDR", spawn.coordinator.ip().to_string());
    set("MASTER_PORT", spawn.coordinator.port().to_string());
    let mut restarted = process.generation.0.saturating_sub(1);
    if let Some(restarts) = spawn.restarts {
        restarted = restarts.used;
        set("TORCHELASTIC_MAX_RESTARTS", restarts.allowed.to_string());
    }
    set("TORCHELASTIC_RESTART_COUNT", restarted.to_string());
    set("TORCHELASTIC_USE_AGENT_STORE", "False".into());
    set("TORCHELASTIC_ERROR_FILE", error_file.display().to_string());
    if let Some(servers) = &setup.parameter_servers {
        all.extend(node_variables(servers, "worker", *node));
        // Those of this round, which may be more or less than the nodes of the job have waited for.
        all.insert("DMLC_RANK".into(), place.rank.to_string());
        all.insert("DMLC_NUM_WORKER".into(), place.size.to_string());
    }
    all
}

/// Where a node of the parameter servers is, and where its scheduler is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeAddresses {
    /// The address at which other hosts reach this one.
    pub(crate) host: IpAddr,
    /// The address of the driver, beside which the scheduler runs.
    pub(crate) driver: IpAddr,
}

fn node_variables(
    servers: &ParameterServers,
    role: &str,
    node: NodeAddresses,
) -> impl Iterator<Item = (String, String)> {
    let own = [
        ("DMLC_ROLE", role.to_owned()),
        ("DMLC_PS_ROOT_URI", node.driver.to_string()),
        ("DMLC_NODE_HOST", node.host.to_string()),
    ];
    (servers.variables().chain(own)).map(|(name, value)| (name.to_owned(), value))
}

/// The variables of a parameter server, in addition to those of the agent. It has no rank and no device: the scheduler of the servers gives
/// it a number.
pub(crate) fn server_variables(
    setup: &Setup,
    host: &HostId,
    node: NodeAddresses,
    socket: &Path,
) -> BTreeMap<String, String> {
    let mut all = setup.env.clone();
    all.entry("PYTHONUNBUFFERED".into()).or_insert("1".into());
    let mut set = |name: &str, value: String| all.insert(name.to_owned(), value);
    set("ELASTICRUN_RUN_ID", setup.run_id.clone());
    set("ELASTICRUN_HOST", host.to_string());
    set(AGENT_SOCKET, socket.display().to_string());
    if let Some(servers) = &setup.parameter_servers {
        all.extend(node_variables(servers, "server", node));
    }
    all
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use elasticrun_protocol::{Generation, LocalRank, Process, Rank, control::Place};

    use super::*;

    fn variables_of_worker(
        local_size: u32,
        env: &[(&str, &str)],
        agent_env: &[&str],
    ) -> BTreeMap<String, String> {
        variables_with_interface(local_size, env, agent_env, None)
    }

    fn variables_with_interface(
        local_size: u32,
        env: &[(&str, &str)],
        agent_env: &[&str],
        interface: Option<&Interface>,
    ) -> BTreeMap<String, String> {
        let setup = Setup {
            run_id: "r".into(),
            command: vec!["true".into()],
            env: env
                .iter()
                .map(|(n, v)| ((*n).into(), (*v).into()))
                .collect(),
            directory: None,
            heartbeat_interval: Duration::from_secs(1),
            heartbeat_timeout: Duration::from_secs(5),
            orphan_timeout: Duration::from_secs(5),
            keep_timeout: Duration::ZERO,
            abort_timeout: Duration::from_secs(60),
            grace: Duration::from_secs(5),
            drain_timeout: Duration::ZERO,
            notice_file: None,
            signal_notice: None,
            instance: 1,
            groups: false,
            encrypt_data: false,
            commit_memory: None,
            adopted: false,
            durable: None,
            replication: None,
            preload: None,
            parameter_servers: None,
        };
        let spawn = Spawn {
            process: Process {
                local_rank: LocalRank(1),
                generation: Generation(3),
            },
            place: Place {
                rank: Rank(5),
                size: 8,
                local_size,
                cross_rank: 2,
                cross_size: 3,
                local_rank: None,
            },
            coordinator: "10.0.0.1:29500".parse().unwrap(),
            restarts: None,
        };
        let ctx = SpawnContext {
            host: &HostId::new("node2"),
            setup: &setup,
            interface,
            socket: Path::new("/run/s"),
            error_file: Path::new("/run/e"),
            node: NodeAddresses {
                host: [10, 0, 0, 2].into(),
                driver: [10, 0, 0, 9].into(),
            },
        };
        variables(&ctx, &spawn, |name| agent_env.contains(&name))
    }

    #[test]
    fn each_of_the_three_sets_is_there() {
        let all = variables_of_worker(2, &[("MINE", "1")], &[]);
        for (name, value) in [
            ("MINE", "1"),
            ("ELASTICRUN_RUN_ID", "r"),
            ("ELASTICRUN_HOST", "node2"),
            ("ELASTICRUN_AGENT_SOCKET", "/run/s"),
            ("ELASTICRUN_LOCAL_RANK", "1"),
            ("ELASTICRUN_GENERATION", "3"),
            ("HOROVOD_HOSTNAME", "node2"),
            ("HOROVOD_RANK", "5"),
            ("HOROVOD_SIZE", "8"),
            ("HOROVOD_LOCAL_RANK", "1"),
            ("HOROVOD_LOCAL_SIZE", "2"),
            ("HOROVOD_CROSS_RANK", "2"),
            ("HOROVOD_CROSS_SIZE", "3"),
            ("HOROVOD_ELASTIC", "1"),
            ("RANK", "5"),
            ("WORLD_SIZE", "8"),
            ("LOCAL_RANK", "1"),
            ("LOCAL_WORLD_SIZE", "2"),
            ("GROUP_RANK", "2"),
            ("GROUP_WORLD_SIZE", "3"),
            ("ROLE_RANK", "5"),
            ("MASTER_ADDR", "10.0.0.1"),
            ("MASTER_PORT", "29500"),
            ("TORCHELASTIC_RESTART_COUNT", "2"),
            ("TORCHELASTIC_RUN_ID", "r"),
            ("OMP_NUM_THREADS", "1"),
        ] {
            assert_eq!(all.get(name).map(String::as_str), Some(value), "{name}");
        }
    }

    #[test]
    fn python_does_not_buffer_unless_the_user_wants_it() {
        const NAME: &str = "PYTHONUNBUFFERED";
        assert_eq!(variables_of_worker(1, &[], &[])[NAME], "1");
        assert!(!variables_of_worker(1, &[], &[NAME]).contains_key(NAME));
        assert_eq!(variables_of_worker(1, &[(NAME, "")], &[])[NAME], "");
    }

    #[test]
    fn libraries_use_the_interface_that_the_user_has_chosen() {
        const NCCL: &str = "NCCL_SOCKET_IFNAME";
        const GLOO: &str = "GLOO_SOCKET_IFNAME";
        let mut interface = Interface {
            name: "eth1".to_owned(),
            address: "10.1.0.1".parse().unwrap(),
            is_prefix: false,
        };
        let all = variables_with_interface(1, &[], &[], Some(&interface));
        assert_eq!((&*all[NCCL], &*all[GLOO]), ("eth1", "eth1"));
        interface.is_prefix = true;
        let all = variables_with_interface(1, &[], &[], Some(&interface));
        assert_eq!((&*all[NCCL], &*all[GLOO]), ("=eth1", "eth1"));
        // The variables of the user win, in the environment of the job and in that of the agent.
        let all = variables_with_interface(1, &[(NCCL, "ib")], &[GLOO], Some(&interface));
        assert_eq!((&*all[NCCL], all.get(GLOO)), ("ib", None));
        let all = variables_of_worker(1, &[], &[]);
        assert_eq!((all.get(NCCL), all.get(GLOO)), (None, None));
    }

    #[test]
    fn omp_num_threads_is_set_only_for_a_shared_host_and_never_overridden() {
        const NAME: &str = "OMP_NUM_THREADS";
        assert!(!variables_of_worker(1, &[], &[]).contains_key(NAME));
        assert!(!variables_of_worker(2, &[], &[NAME]).contains_key(NAME));
        assert_eq!(variables_of_worker(2, &[(NAME, "4")], &[])[NAME], "4");
    }
}
