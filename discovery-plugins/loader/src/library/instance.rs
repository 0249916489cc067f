//! One instance of a plugin, and the calls on it.

use std::{ffi::c_void, fmt, ptr, time::Duration};

use elasticrun_plugin_sdk::{
    PluginError, Snapshot,
    abi::{RawHost, code},
};
use serde_json::{Map, Value};

use super::{
    answer::{self, Answer, BadAnswer},
    table::Table,
};
use crate::{Failure, FailureKind};

/// One instance of a plugin. Its calls block for as long as the plugin takes; dropping it destroys it.
pub struct Instance {
    table: Table,
    pointer: *mut c_void,
}

// SAFETY: the interface allows calls from any thread as long as they do not overlap, and they take `&mut self`.
unsafe impl Send for Instance {}

impl Instance {
    pub(super) fn create(table: Table, options: &Map<String, Value>) -> Result<Self, Failure> {
        let config = serde_json::to_vec(options).expect("a JSON object is always JSON");
        let mut pointer = ptr::null_mut();
        let mut answer = Answer::empty(table.free);
        // SAFETY: the table was checked; every pointer is valid during the call.
        let number = unsafe {
            (table.create)(
                &RawHost::THIS,
                config.as_ptr(),
                config.len(),
                &mut pointer,
                answer.place(),
            )
        };
        if number != code::OK {
            return Err(PluginError::of_answer(number, answer.bytes()?).into());
        }
        Ok(Self { table, pointer })
    }

    /// The hosts as they are now. After [`FailureKind::Panicked`] the instance is of no use.
    pub fn poll(&mut self, deadline: Duration) -> Result<Snapshot, Failure> {
        let deadline = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
        let mut answer = Answer::empty(self.table.free);
        // SAFETY: `create` gave the pointer, it is not destroyed, and calls do not overlap.
        let number = unsafe { (self.table.poll)(self.pointer, deadline, answer.place()) };
        match (number, answer.bytes()?) {
            (code::OK, bytes) => Ok(answer::snapshot(bytes)?),
            (number, bytes) => Err(PluginError::of_answer(number, bytes).into()),
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: the last call on it.
        let number = unsafe { (self.table.destroy)(self.pointer) };
        if number != code::OK {
            tracing::warn!(
                code = number,
                "a discovery plugin failed while it was destroyed"
            );
        }
    }
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instance").finish_non_exhaustive()
    }
}

impl From<BadAnswer> for Failure {
    fn from(error: BadAnswer) -> Self {
        Self::new(FailureKind::BadAnswer, error.to_string())
    }
}
