//! Which CPUs a worker may use, as a function of the machine.

use super::{
    cpu_set::CpuSet,
    topology::{Cpu, Gpu, Topology},
};

/// The modes of `--numa-binding`, with the meaning that they have in PyTorch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    /// All CPUs of the NUMA node.
    Node,
    /// All CPUs of the socket of the NUMA node.
    Socket,
    /// An equal part of the physical cores of the NUMA node. No other worker has it.
    Exclusive,
    /// The CPUs of the NUMA node that share one cache of the last level.
    CoreComplex,
}

/// The workers of a host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Workers<'a> {
    /// Their number.
    pub(super) count: u32,
    /// The GPUs that they may use, as `CUDA_VISIBLE_DEVICES` lists them. `None` for all.
    pub(super) visible: Option<&'a str>,
}

impl Mode {
    pub(super) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "node" => Self::Node,
            "socket" => Self::Socket,
            "exclusive" => Self::Exclusive,
            "core-complex" => Self::CoreComplex,
            _ => return None,
        })
    }

    /// The CPUs of a worker.
    ///
    /// # Errors
    /// The machine does not tell what the mode needs, or has too few cores for it.
    pub(super) fn cpus(
        self,
        machine: &Topology,
        workers: Workers<'_>,
        local_rank: u32,
    ) -> Result<CpuSet, String> {
        let homes = homes(machine, workers)?;
        let index = local_rank as usize % homes.len();
        let node = homes[index];
        let cpus = of_node(machine, node)?;
        let before = homes[..index].iter().filter(|home| **home == node).count();
        let sharing = homes.iter().filter(|home| **home == node).count();
        match self {
            Self::Node => Ok(cpus.clone()),
            Self::Socket => of_socket(machine, node),
            Self::Exclusive => part_of_cores(machine, node, before, sharing),
            Self::CoreComplex => {
                let mut groups = groups(machine, node, |cpu| cpu.complex, "caches")?;
                // Those with the most CPUs first.
                groups.sort_by_key(|group| std::cmp::Reverse(group.len()));
                Ok(groups[before % groups.len()].clone())
            }
        }
    }
}

/// The NUMA node of each local rank: that of its GPU. Without GPUs local ranks are spread over all nodes. It has an entry for
/// each visible GPU as well, since workers of `exclusive` share a node among its GPUs.
fn homes(machine: &Topology, workers: Workers<'_>) -> Result<Vec<u32>, String> {
    let count = workers.count.max(1) as usize;
    let gpus = visible_gpus(machine, workers.visible);
    let names_some = workers
        .visible
        .is_some_and(|visible| !visible.trim().is_empty());
    if gpus.is_empty() && names_some && !machine.gpus.is_empty() {
        return Err("CUDA_VISIBLE_DEVICES names no GPU that is known".to_owned());
    }
    if gpus.is_empty() {
        let nodes: Vec<u32> = machine.nodes.keys().copied().collect();
        if nodes.is_empty() {
            return Err("no NUMA node has a CPU that may be used".to_owned());
        }
        let spread = (0..count).map(|rank| nodes[rank * nodes.len() / count]);
        return Ok(spread.collect());
    }
    let all = gpus.iter().cycle().take(count.max(gpus.len()));
    Ok(all.map(|gpu| gpu.node).collect())
}

/// The GPUs as CUDA numbers them for a worker. As in CUDA, the list ends before an entry that names no GPU.
pub(super) fn visible_gpus<'a>(machine: &'a Topology, visible: Option<&str>) -> Vec<&'a Gpu> {
    let Some(visible) = visible else {
        return machine.gpus.iter().collect();
    };
    let find = |entry: &str| match entry.parse::<usize>() {
        Ok(number) => machine.gpus.get(number),
        Err(_) if entry.is_empty() => None,
        Err(_) => machine.gpus.iter().find(|gpu| {
            let uuid = gpu.uuid.as_deref();
            uuid.is_some_and(|uuid| uuid.starts_with(entry))
        }),
    };
    visible
        .split(',')
        .map_while(|entry| find(entry.trim()))
        .collect()
}

fn of_node(machine: &Topology, node: u32) -> Result<&CpuSet, String> {
    let cpus = machine.nodes.get(&node);
    cpus.ok_or_else(|| format!("no CPU of NUMA node {node} may be used"))
}

/// The CPUs of all nodes that are in the socket of this node.
fn of_socket(machine: &Topology, node: u32) -> Result<CpuSet, String> {
    let socket_of = |cpus: &CpuSet| machine.cpus.get(&cpus.first()?)?.socket;
    let socket = socket_of(of_node(machine, node)?);
    if socket.is_none() {
        return Err(format!("the socket of NUMA node {node} is unknown"));
    }
    let nodes = machine.nodes.values();
    let nodes = nodes.filter(|cpus| socket_of(cpus) == socket);
    Ok(nodes.flat_map(CpuSet::iter).collect())
}

/// The part of the physical cores of a node for the worker behind `before` of `sharing` workers. The first ones have one core more
/// if the number is not divisible.
fn part_of_cores(
    machine: &Topology,
    node: u32,
    before: usize,
    sharing: usize,
) -> Result<CpuSet, String> {
    let cores = groups(machine, node, |cpu| cpu.core, "cores")?;
    let (each, more) = (cores.len() / sharing, cores.len() % sharing);
    if each == 0 {
        return Err(format!(
            "NUMA node {node} has {} physical cores that may be used, and exclusive needs {sharing}",
            cores.len()
        ));
    }
    let start = before * each + before.min(more);
    let end = start + each + usize::from(before < more);
    Ok(cores[start..end].iter().flat_map(CpuSet::iter).collect())
}

/// The CPUs of a node by a neighbourhood, in the order of its lowest CPU.
fn groups(
    machine: &Topology,
    node: u32,
    lowest: impl Fn(&Cpu) -> Option<u32>,
    what: &str,
) -> Result<Vec<CpuSet>, String> {
    let mut groups: std::collections::BTreeMap<u32, Vec<u32>> = Default::default();
    for number in of_node(machine, node)?.iter() {
        let key = machine.cpus.get(&number).and_then(&lowest);
        let key = key.ok_or_else(|| format!("the {what} of CPU {number} are unknown"))?;
        groups.entry(key).or_default().push(number);
    }
    Ok(groups.into_values().map(CpuSet::from_iter).collect())
}
