//! Bindings on machines that are directories.

use std::{fs, path::Path};

use tempfile::TempDir;

use super::{Binder, Bound, choose, cpu_set::CpuSet, topology::Topology};

/// A machine to describe.
struct Machine(TempDir);

impl Machine {
    fn new() -> Self {
        Self(TempDir::new().expect("a directory"))
    }

    fn root(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().expect("it has one")).expect("the directory is ours");
        fs::write(path, format!("{text}\n")).expect("the directory is ours");
    }

    /// Adds a CPU: its socket, the CPUs of its core, and those that share its L3 cache.
    fn cpu(&self, number: u32, socket: u32, core: &str, complex: &str) {
        let path = format!("sys/devices/system/cpu/cpu{number}");
        let write = |name: &str, text: &str| self.write(&format!("{path}/{name}"), text);
        write("topology/physical_package_id", &socket.to_string());
        write("topology/thread_siblings_list", core);
        for (index, (level, kind, shared)) in [
            ("1", "Data", core),
            ("1", "Instruction", core),
            ("2", "Unified", core),
            ("3", "Unified", complex),
        ]
        .into_iter()
        .enumerate()
        {
            write(&format!("cache/index{index}/level"), level);
            write(&format!("cache/index{index}/type"), kind);
            write(&format!("cache/index{index}/shared_cpu_list"), shared);
        }
    }

    fn node(&self, number: u32, cpus: &str) {
        let path = format!("sys/devices/system/node/node{number}/cpulist");
        self.write(&path, cpus);
    }

    /// Adds a PCI device.
    fn device(&self, address: &str, vendor: &str, class: &str, node: i32) {
        let path = format!("sys/bus/pci/devices/{address}");
        self.write(&format!("{path}/vendor"), vendor);
        self.write(&format!("{path}/class"), class);
        self.write(&format!("{path}/numa_node"), &node.to_string());
    }

    fn gpu(&self, address: &str, node: i32) {
        self.device(address, "0x10de", "0x030200", node);
    }

    fn read(&self, allowed: &str) -> Result<Topology, String> {
        let allowed = CpuSet::parse(allowed).expect("a list");
        Topology::read(self.root(), &allowed)
    }

    /// The CPUs of each of these workers.
    fn bind(&self, mode: &str, count: u32, visible: Option<&str>) -> Vec<String> {
        let machine = self.read("0-63").expect("it can be read");
        let cpus = |rank| match choose(&machine, &worker(mode, rank, count, visible)) {
            Ok(bound) => bound.cpus.to_string(),
            Err(why) => why,
        };
        (0..count).map(cpus).collect()
    }
}

fn worker(mode: &str, local_rank: u32, local_size: u32, visible: Option<&str>) -> Bound {
    Bound {
        mode: mode.to_owned(),
        visible_devices: visible.map(str::to_owned),
        local_rank,
        local_size,
    }
}

/// One node of four cores without SMT, and no GPU.
fn plain() -> Machine {
    let machine = Machine::new();
    machine.node(0, "0-3");
    for number in 0..4 {
        machine.cpu(number, 0, &number.to_string(), "0-3");
    }
    // A network card, and a display controller of another vendor.
    machine.device("0000:00:03.0", "0x15b3", "0x020000", -1);
    machine.device("0000:00:04.0", "0x1234", "0x030000", -1);
    machine
}

/// Two sockets with a node each, two GPUs at each, and SMT: cores 0,8 1,9 2,10 3,11 | 4,12 ... The GPUs of the second socket have the
/// lower addresses.
fn two_sockets() -> Machine {
    let machine = Machine::new();
    machine.node(0, "0-3,8-11");
    machine.node(1, "4-7,12-15");
    for number in 0..16 {
        let (socket, core) = (number % 8 / 4, number % 8);
        let complex = ["0-3,8-11", "4-7,12-15"][socket as usize];
        machine.cpu(number, socket, &format!("{core},{}", core + 8), complex);
    }
    machine.gpu("0000:ca:00.0", 0);
    machine.gpu("0000:1b:00.0", 1);
    machine.gpu("0000:3a:00.0", 1);
    machine.gpu("0000:db:00.0", 0);
    // The audio function of a GPU is none.
    machine.device("0000:1b:00.1", "0x10de", "0x040300", 1);
    machine
}

#[test]
fn a_worker_runs_on_the_node_of_its_gpu() {
    let machine = two_sockets();
    let (near_0, near_1) = ("0-3,8-11", "4-7,12-15");
    let all = [near_1, near_1, near_0, near_0];
    assert_eq!(machine.bind("node", 4, None), all);
    assert_eq!(machine.bind("socket", 4, None), all);
    assert_eq!(machine.bind("node", 2, Some("3,0")), [near_0, near_1]);
    // More workers than GPUs begin again with the first.
    assert_eq!(machine.bind("node", 2, Some("1,9"))[1], near_1);
}

#[test]
fn a_gpu_may_be_named_by_the_uuid_that_its_driver_tells() {
    let machine = two_sockets();
    for (address, uuid) in [("0000:3a:00.0", "GPU-5d"), ("0000:ca:00.0", "GPU-7a1")] {
        let path = format!("proc/driver/nvidia/gpus/{address}/information");
        machine.write(&path, &format!("Model: \t\t H100\nGPU UUID: \t {uuid}"));
    }
    // Only these two are visible to this container, so they are GPUs 0 and 1.
    let (near_0, near_1) = ("0-3,8-11", "4-7,12-15");
    assert_eq!(machine.bind("node", 2, None), [near_1, near_0]);
    let visible = Some("GPU-7a1,GPU-5");
    assert_eq!(machine.bind("node", 2, visible), [near_0, near_1]);
}

#[test]
fn exclusive_workers_share_the_physical_cores_of_a_node() {
    let machine = two_sockets();
    let all = ["4-5,12-13", "6-7,14-15", "0-1,8-9", "2-3,10-11"];
    assert_eq!(machine.bind("exclusive", 4, None), all);
    // The part of a GPU does not depend on the number of workers.
    assert_eq!(machine.bind("exclusive", 1, None), all[..1]);
    // The first ones have the cores that are left.
    let visible = Some("0,1,0");
    let cpus = machine.bind("exclusive", 3, visible);
    assert_eq!(cpus, ["4-5,12-13", "6,14", "7,15"]);
    let visible = Some("0,0,0,0,0");
    let why = "NUMA node 1 has 4 physical cores that may be used, and exclusive needs 5";
    assert_eq!(machine.bind("exclusive", 1, visible), [why]);
}

#[test]
fn a_core_complex_shares_a_cache_and_each_worker_has_another_one() {
    let machine = Machine::new();
    machine.node(0, "0-7");
    for number in 0..8 {
        let complex = ["0-1", "2-4", "5-7"][[0, 0, 1, 1, 1, 2, 2, 2][number as usize]];
        machine.cpu(number, 0, &number.to_string(), complex);
    }
    machine.gpu("0000:01:00.0", -1);
    machine.gpu("0000:02:00.0", -1);
    machine.gpu("0000:03:00.0", -1);
    machine.gpu("0000:04:00.0", -1);
    // The larger ones first.
    let all = ["2-4", "5-7", "0-1", "2-4"];
    assert_eq!(machine.bind("core-complex", 4, None), all);
}

#[test]
fn a_socket_has_several_nodes() {
    let machine = Machine::new();
    for number in 0..8 {
        machine.cpu(number, number / 4, &number.to_string(), "0-7");
    }
    for node in 0..4 {
        machine.node(node, &format!("{}-{}", node * 2, node * 2 + 1));
    }
    machine.gpu("0000:01:00.0", 3);
    assert_eq!(machine.bind("socket", 1, None), ["4-7"]);
    assert_eq!(machine.bind("node", 1, None), ["6-7"]);
}

#[test]
fn workers_without_gpus_are_spread_over_the_nodes() {
    assert_eq!(plain().bind("node", 2, None), ["0-3", "0-3"]);
    assert_eq!(plain().bind("exclusive", 2, None), ["0-1", "2-3"]);
    let machine = two_sockets();
    let (near_0, near_1) = ("0-3,8-11", "4-7,12-15");
    // Without a visible GPU.
    let all = [near_0, near_0, near_1, near_1];
    assert_eq!(machine.bind("node", 4, Some("")), all);
    assert_eq!(machine.bind("node", 1, Some("")), [near_0]);
    let machine = machine.read("0-63").expect("it can be read");
    let bound = choose(&machine, &worker("node", 0, 2, Some(""))).expect("it has nodes");
    assert!(bound.without_gpu);
    assert_eq!(
        bound.line,
        "--numa-binding node: no GPU is visible, so local ranks are spread over the NUMA nodes; \
         local rank 0: CPUs 0-3,8-11, local rank 1: CPUs 4-7,12-15"
    );
}

#[test]
fn only_cpus_that_the_agent_may_use_are_given() {
    let machine = two_sockets().read("2-3,10").expect("it can be read");
    let bound = choose(&machine, &worker("node", 2, 4, None)).map(|bound| bound.cpus.to_string());
    // GPU 0 has no CPU left on its node, so not all workers can be bound.
    assert_eq!(bound, Err("no CPU of NUMA node 1 may be used".to_owned()));
    let of_0 = choose(&machine, &worker("exclusive", 0, 2, Some("2,3"))).expect("it has CPUs");
    assert_eq!(of_0.cpus.to_string(), "2,10");
    assert!(!of_0.without_gpu);
}

#[test]
fn a_kernel_without_numa_is_one_node() {
    let machine = Machine::new();
    for number in 0..2 {
        machine.cpu(number, 0, &number.to_string(), "0-1");
    }
    assert_eq!(machine.bind("node", 1, None), ["0-1"]);
    assert_eq!(machine.bind("exclusive", 2, None), ["0", "1"]);
}

#[test]
fn a_machine_that_does_not_tell_leaves_its_workers_unbound() {
    let machine = Machine::new();
    let mut binder = Binder::at(machine.root().to_owned());
    assert!(binder.cpus(&worker("node", 0, 1, None)).is_none());
    let why = machine.read("0-3").expect_err("it has no CPU");
    assert!(
        why.ends_with("sys/devices/system/cpu lists no CPU"),
        "{why}"
    );
    machine.write("sys/devices/system/cpu/cpu0/online", "1");
    for (mode, why) in [
        ("socket", "the socket of NUMA node 0 is unknown"),
        ("exclusive", "the cores of CPU 0 are unknown"),
        ("core-complex", "the caches of CPU 0 are unknown"),
        ("other", "this release has no such mode"),
        ("node", "0"),
    ] {
        assert_eq!(machine.bind(mode, 1, None), [why]);
    }
    machine.node(0, "all");
    let why = machine.read("0-3").expect_err("no list");
    assert!(
        why.ends_with("cpulist has an unknown form: \"all\""),
        "{why}"
    );
}
