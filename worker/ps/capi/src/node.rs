//! Nodes.

use std::ffi::{c_int, c_void};

use elasticrun_ps::{Group, NodeId, Options, Postoffice, Recipients, Role};

use crate::{
    User,
    status::{Failure, guard, guard_or, reference, store},
};

/// A node.
#[derive(Debug)]
pub struct Node {
    pub(crate) postoffice: Postoffice,
}

/// Starts the node that the variables describe.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erps_start(barrier: c_int, node: *mut *mut Node) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        unsafe { store(node, std::ptr::null_mut(), "node")? };
        let options = Options::from_env()?;
        let postoffice = match barrier {
            0 => Postoffice::start_async(options),
            _ => Postoffice::start(options),
        };
        let started = Box::into_raw(Box::new(Node {
            postoffice: postoffice?,
        }));
        // SAFETY: as above.
        unsafe { store(node, started, "node") }
    })
}

/// Ends a node.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erps_finalize(node: *const Node, barrier: c_int) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let node = unsafe { reference(node, "node")? };
        match barrier {
            0 => node.postoffice.finalize_async(),
            _ => node.postoffice.finalize()?,
        }
        Ok(())
    })
}

/// Frees a node, and ends it without a barrier if it is not finalized.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erps_node_free(node: *mut Node) {
    guard_or((), || {
        if !node.is_null() {
            // SAFETY: `erps_start` has made it, and the caller uses it no more.
            let node = unsafe { Box::from_raw(node) };
            node.postoffice.finalize_async();
        }
    });
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $node:ident => $value:expr) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As the header says.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(node: *const Node) -> u32 {
            guard_or(0, || {
                // SAFETY: as the caller promises.
                unsafe { node.as_ref() }.map_or(0, |$node| $value)
            })
        }
    };
}

number!(/// The id.
    erps_my_id, node => node.postoffice.my_id().0);
number!(/// The rank.
    erps_my_rank, node => node.postoffice.my_rank());
number!(/// The role, as the mask of its group.
    erps_my_role, node => node.postoffice.role().group().mask());
number!(/// Number of servers.
    erps_num_servers, node => node.postoffice.num_servers());
number!(/// Number of workers.
    erps_num_workers, node => node.postoffice.num_workers());
number!(/// 1 if this process has taken the place of a dead one, else 0.
    erps_is_recovery, node => u32::from(node.postoffice.is_recovery()));

/// Waits for a group.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erps_barrier(node: *const Node, group: u32) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let node = unsafe { reference(node, "node")? };
        let group = Group::from_mask(group).ok_or_else(|| {
            Failure::invalid(format!("group {group}: expected a sum of 1, 2 and 4"))
        })?;
        Ok(node.postoffice.barrier(group)?)
    })
}

/// Saves the values of all servers.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erps_snapshot(node: *const Node, number: *mut u64) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let node = unsafe { reference(node, "node")? };
        let taken = node.postoffice.snapshot()?;
        // SAFETY: as the caller promises.
        unsafe { store(number, taken, "number") }
    })
}

/// The dead nodes.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erps_dead_nodes(
    node: *const Node,
    ids: *mut u32,
    count: *mut usize,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let (node, space) = unsafe { (reference(node, "node")?, *reference(count, "count")?) };
        let dead = node.postoffice.dead_nodes();
        if space > 0 && ids.is_null() {
            return Err(Failure::invalid("ids is NULL"));
        }
        for (index, id) in dead.iter().take(space).enumerate() {
            // SAFETY: the array has space for it, as the caller promises.
            unsafe { ids.add(index).write(id.0) };
        }
        // SAFETY: as above.
        unsafe { store(count, dead.len(), "count") }
    })
}

/// The keys of a server.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erps_key_range(
    node: *const Node,
    server: u32,
    first: *mut u64,
    last: *mut u64,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let node = unsafe { reference(node, "node")? };
        let server = NodeId::server(server);
        let ranges = node.postoffice.range_map().ranges();
        let mut ranges = ranges.filter(|(_, id)| *id == server);
        let (range, _) = (ranges.next())
            .ok_or_else(|| Failure::invalid(format!("this job has no {server} with keys")))?;
        // SAFETY: as the caller promises.
        unsafe {
            store(first, range.first, "first")?;
            store(last, range.last, "last")
        }
    })
}

/// Sets what is called at the end of `erps_finalize`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erps_on_exit(
    node: *const Node,
    call: Option<unsafe extern "C" fn(user: *mut c_void)>,
    user: *mut c_void,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let node = unsafe { reference(node, "node")? };
        let call = call.ok_or_else(|| Failure::invalid("call is NULL"))?;
        let user = User::new(user);
        node.postoffice.register_exit_callback(move || {
            // SAFETY: as the caller promises.
            unsafe { call(user.get()) }
        });
        Ok(())
    })
}

/// A group for a mask of 1 to 7, else a node.
pub(crate) fn recipients(to: u32) -> Result<Recipients, Failure> {
    let node = NodeId(to);
    match (Group::from_mask(to), node.role()) {
        (Some(group), _) => Ok(group.into()),
        (None, Some(Role::Server | Role::Worker)) => Ok(node.into()),
        _ => Err(Failure::invalid(format!(
            "{to}: no group (1 to 7) and no id of a node (8 or more)"
        ))),
    }
}
