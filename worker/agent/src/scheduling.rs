//! The agent is on the way of every recovery, while training burns all cores: ask for a short slice.
//!
//! Since Linux 6.12 a thread of the fair class may ask for a shorter slice than others. Its deadline is
//! then nearer, so when it wakes up it runs before who burns; its share of the processor stays the same.

/// The shortest slice that the kernel grants.
const SLICE_NANOS: u64 = 100_000;

#[repr(C)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// The calling thread, and those it starts from now on, get short slices. Kernels that know nothing of it
/// say no, or take it for nothing.
pub fn react_quickly() {
    if let Err(error) = set(SLICE_NANOS) {
        tracing::debug!(%error, "no short time slices here");
    }
}

/// The calling thread, and what it starts, is scheduled as everybody.
pub(crate) fn as_usual() {
    if let Err(error) = set(0) {
        tracing::debug!(%error, "the time slice stays as it is");
    }
}

fn set(runtime: u64) -> std::io::Result<()> {
    // SAFETY: getpriority takes integers; it gives the nice value of the calling thread, which is to stay.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: libc::SCHED_OTHER as u32,
        flags: 0,
        nice,
        priority: 0,
        runtime,
        deadline: 0,
        period: 0,
    };
    // SAFETY: the attributes live and their size is in them; 0 is the calling thread.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}
