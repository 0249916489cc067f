//! The NUMA nodes, CPUs and GPUs of a machine, as the kernel shows them in `/sys` and `/proc`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use super::cpu_set::CpuSet;

/// Where CPUs and GPUs of a machine are. Only CPUs that this process may use are part of it.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Topology {
    /// The CPUs of each NUMA node that has any, by number of the node.
    pub(super) nodes: BTreeMap<u32, CpuSet>,
    pub(super) cpus: BTreeMap<u32, Cpu>,
    /// NVIDIA GPUs in the order of their PCI addresses.
    pub(super) gpus: Vec<Gpu>,
}

/// The neighbours of a CPU. `None` is what the kernel does not tell.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Cpu {
    /// The number of its socket.
    pub(super) socket: Option<u32>,
    /// The lowest CPU of its physical core.
    pub(super) core: Option<u32>,
    /// The lowest CPU that shares its cache of the last level.
    pub(super) complex: Option<u32>,
}

/// A GPU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Gpu {
    /// Its NUMA node.
    pub(super) node: u32,
    /// Its name in `CUDA_VISIBLE_DEVICES`, if the driver of the GPU tells it.
    pub(super) uuid: Option<String>,
}

impl Topology {
    /// Reads the machine whose `/sys` and `/proc` are below `root`. `allowed` are the CPUs that this process may use.
    ///
    /// # Errors
    /// A file is missing or has another form.
    pub(super) fn read(root: &Path, allowed: &CpuSet) -> Result<Self, String> {
        let system = root.join("sys/devices/system");
        let mut nodes = BTreeMap::new();
        for (number, path) in numbered(&system.join("node"), "node") {
            let cpus = read_list(&path.join("cpulist"))?.and(allowed);
            if !cpus.is_empty() {
                nodes.insert(number, cpus);
            }
        }
        let known = numbered(&system.join("cpu"), "cpu");
        if known.is_empty() {
            return Err(format!("{} lists no CPU", system.join("cpu").display()));
        }
        if nodes.is_empty() {
            // A kernel without NUMA.
            let all: CpuSet = known.iter().map(|(number, _)| *number).collect();
            nodes.insert(0, all.and(allowed));
        }
        let of_nodes: BTreeSet<u32> = nodes.values().flat_map(CpuSet::iter).collect();
        let cpus = known
            .into_iter()
            .filter(|(number, _)| of_nodes.contains(number));
        Ok(Self {
            cpus: cpus.map(|(number, path)| (number, cpu(&path))).collect(),
            nodes,
            gpus: gpus(root)?,
        })
    }
}

fn cpu(path: &Path) -> Cpu {
    let topology = path.join("topology");
    let lowest = |path: PathBuf| read_list(&path).ok()?.first();
    Cpu {
        socket: read_number(&topology.join("physical_package_id")),
        core: lowest(topology.join("thread_siblings_list")),
        complex: last_cache(&path.join("cache"))
            .and_then(|cache| lowest(cache.join("shared_cpu_list"))),
    }
}

/// The cache of the highest level that has data.
fn last_cache(caches: &Path) -> Option<PathBuf> {
    let caches = numbered(caches, "index").into_iter();
    let with_data = caches.filter(|(_, path)| {
        let kind = fs::read_to_string(path.join("type")).unwrap_or_default();
        matches!(kind.trim(), "Unified" | "Data")
    });
    let level = |(_, path): &(u32, PathBuf)| read_number(&path.join("level"));
    with_data.max_by_key(level).map(|(_, path)| path)
}

/// The GPUs that the NVIDIA driver shows to this process; without that list, those on the PCI bus.
fn gpus(root: &Path) -> Result<Vec<Gpu>, String> {
    let of_driver = root.join("proc/driver/nvidia/gpus");
    let devices = root.join("sys/bus/pci/devices");
    let mut addresses = names(&of_driver);
    if addresses.is_empty() {
        addresses = names(&devices);
        addresses.retain(|address| is_gpu(&devices.join(address)));
    }
    addresses.sort_unstable();
    let gpu = |address: &String| {
        let node = devices.join(address).join("numa_node");
        let text = read(&node)?;
        // -1: the machine has one node, or does not tell.
        let number: i64 = text.trim().parse().map_err(|_| strange(&node, &text))?;
        let information = fs::read_to_string(of_driver.join(address).join("information"));
        let uuid = |line: &str| Some(line.strip_prefix("GPU UUID:")?.trim().to_owned());
        Ok(Gpu {
            node: u32::try_from(number).unwrap_or(0),
            uuid: information
                .ok()
                .and_then(|text| text.lines().find_map(uuid)),
        })
    };
    addresses.iter().map(gpu).collect()
}

/// Whether a PCI device is a display or 3D controller of NVIDIA.
fn is_gpu(device: &Path) -> bool {
    let read = |name: &str| fs::read_to_string(device.join(name)).unwrap_or_default();
    let class = read("class");
    read("vendor").trim() == "0x10de"
        && (class.starts_with("0x0300") || class.starts_with("0x0302"))
}

/// The entries of a directory whose name is `prefix` and a number, by number. Empty if it cannot be read.
fn numbered(directory: &Path, prefix: &str) -> Vec<(u32, PathBuf)> {
    let number = |name: &String| name.strip_prefix(prefix)?.parse::<u32>().ok();
    let names = names(directory).into_iter();
    let mut all: Vec<_> = names
        .filter_map(|name| Some((number(&name)?, directory.join(name))))
        .collect();
    all.sort_unstable();
    all
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.collect()
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn read_list(path: &Path) -> Result<CpuSet, String> {
    let text = read(path)?;
    CpuSet::parse(&text).ok_or_else(|| strange(path, &text))
}

fn read_number(path: &Path) -> Option<u32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn strange(path: &Path, text: &str) -> String {
    format!("{} has an unknown form: {:?}", path.display(), text.trim())
}
