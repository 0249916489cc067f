//! `--numa-binding`: workers run on the CPUs near their GPU.
//!
//! ```text
//! /sys, /proc --topology--> Topology --mode--> CpuSet of each local rank --starter--> sched_setaffinity
//! ```
//! - The modes are those of PyTorch 2.9 (`torch/numa/binding.py`), and use only CPUs that the agent may use.
//! - Without a GPU, local ranks are spread over the NUMA nodes, where PyTorch fails. One line reports the CPUs.
//! - Where a binding is not possible, workers run unbound. One line reports the reason.

mod cpu_set;
mod mode;
#[cfg(test)]
mod tests;
mod topology;

use std::{io, path::PathBuf};

use libc::cpu_set_t;

use self::{
    cpu_set::CpuSet,
    mode::{Mode, Workers, visible_gpus},
    topology::Topology,
};

/// A worker that is bound.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Bound {
    /// The mode as the driver names it.
    pub(crate) mode: String,
    /// The GPUs of the host that workers may use, as `CUDA_VISIBLE_DEVICES` lists them. `None` for all.
    pub(crate) visible_devices: Option<String>,
    /// The local rank of the worker.
    pub(crate) local_rank: u32,
    /// Workers of this host.
    pub(crate) local_size: u32,
}

/// Binds the workers of this host.
#[derive(Debug)]
pub(crate) struct Binder {
    /// The directory of `sys` and `proc`.
    root: PathBuf,
    /// Read for the first worker.
    machine: Option<Result<Topology, String>>,
    /// A line was logged. Workers of later groups add none.
    has_told: bool,
}

impl Binder {
    /// A binder of this machine.
    pub(crate) fn new() -> Self {
        Self::at("/".into())
    }

    fn at(root: PathBuf) -> Self {
        Self {
            root,
            machine: None,
            has_told: false,
        }
    }

    /// The CPUs of a worker. `None` if it runs unbound.
    pub(crate) fn cpus(&mut self, worker: &Bound) -> Option<cpu_set_t> {
        let machine = self.machine.get_or_insert_with(|| {
            let allowed = CpuSet::of_this_thread()
                .map_err(|error| format!("the CPUs of this process are unknown: {error}"));
            Topology::read(&self.root, &allowed?)
        });
        let bound = machine
            .as_ref()
            .map_err(Clone::clone)
            .and_then(|machine| choose(machine, worker));
        let is_first = !std::mem::replace(&mut self.has_told, true);
        match bound {
            Ok(bound) => {
                if is_first && bound.without_gpu {
                    tracing::warn!("{}", bound.line);
                } else if is_first {
                    tracing::info!("{}", bound.line);
                }
                // They are of a set of the system.
                bound.cpus.to_system()
            }
            Err(why) => {
                if is_first {
                    tracing::warn!("--numa-binding {}: workers run unbound: {why}", worker.mode);
                }
                None
            }
        }
    }
}

/// Binds a process with one thread to these CPUs. 0 is the calling one.
///
/// # Errors
/// The error of the system.
pub(crate) fn bind(process: u32, cpus: &cpu_set_t) -> io::Result<()> {
    let process = libc::pid_t::try_from(process).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the pointer is to a live value of this size.
    match unsafe { libc::sched_setaffinity(process, size_of::<cpu_set_t>(), cpus) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The CPUs of a worker, and what is logged about all of them.
#[derive(PartialEq, Eq, Debug)]
struct Binding {
    cpus: CpuSet,
    line: String,
    without_gpu: bool,
}

fn choose(machine: &Topology, worker: &Bound) -> Result<Binding, String> {
    let mode = Mode::parse(&worker.mode).ok_or("this release has no such mode")?;
    let workers = Workers {
        count: worker.local_size,
        visible: worker.visible_devices.as_deref(),
    };
    let cpus = mode.cpus(machine, workers, worker.local_rank)?;
    let mut each = Vec::new();
    for rank in 0..worker.local_size {
        let cpus = mode.cpus(machine, workers, rank)?;
        each.push(format!("local rank {rank}: CPUs {cpus}"));
    }
    let without_gpu = visible_gpus(machine, workers.visible).is_empty();
    let how = match without_gpu {
        true => "no GPU is visible, so local ranks are spread over the NUMA nodes; ",
        false => "",
    };
    Ok(Binding {
        cpus,
        line: format!("--numa-binding {}: {how}{}", worker.mode, each.join(", ")),
        without_gpu,
    })
}
