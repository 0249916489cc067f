//! One instance of a plugin, and the calls on it.

use std::{ffi::c_void, fmt, ptr, time::Duration};

use elasticrun_plugin_sdk::{
    Command, PluginError, Snapshot,
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
    /// What the plugin may call until it is destroyed; never moved.
    nudge: Option<Box<Nudge>>,
}

/// What is done when a plugin says that it has something new. It may be called from any thread, and must not block.
pub type Nudge = Box<dyn Fn() + Send + Sync>;

// SAFETY: the interface allows calls from any thread as long as they do not overlap, and they take `&mut self`.
unsafe impl Send for Instance {}

impl Instance {
    pub(super) fn create(
        table: Table,
        host: &RawHost,
        options: &Map<String, Value>,
    ) -> Result<Self, Failure> {
        let config = serde_json::to_vec(options).expect("a JSON object is always JSON");
        let mut pointer = ptr::null_mut();
        let mut answer = Answer::empty(table.free);
        // SAFETY: the table was checked; every pointer is valid during the call.
        let number = unsafe {
            (table.create)(
                host,
                config.as_ptr(),
                config.len(),
                &mut pointer,
                answer.place(),
            )
        };
        if number != code::OK {
            return Err(PluginError::of_answer(number, answer.bytes()?).into());
        }
        Ok(Self {
            table,
            pointer,
            nudge: None,
        })
    }

    /// The hosts as they are now. After [`FailureKind::Panicked`] the instance is of no use.
    pub fn poll(&mut self, deadline: Duration) -> Result<Snapshot, Failure> {
        self.poll_raw(deadline, |bytes| Ok(answer::snapshot(bytes)?))
    }

    /// A poll whose answer is read by somebody else.
    pub(crate) fn poll_raw<T>(
        &mut self,
        deadline: Duration,
        read: impl FnOnce(&[u8]) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut answer = Answer::empty(self.table.free);
        // SAFETY: `create` gave the pointer, it is not destroyed, and calls do not overlap.
        let number = unsafe { (self.table.poll)(self.pointer, millis(deadline), answer.place()) };
        match (number, answer.bytes()?) {
            (code::OK, bytes) => read(bytes),
            (number, bytes) => Err(PluginError::of_answer(number, bytes).into()),
        }
    }

    /// Whether the plugin says by itself when it has something new.
    pub fn watches(&self) -> bool {
        self.table.watch.is_some()
    }

    /// Has the plugin say when it has something new, if it can. To be called once.
    pub fn watch(&mut self, nudge: Nudge) -> Result<(), Failure> {
        let Some(watch) = self.table.watch else {
            return Ok(());
        };
        let nudge: *const Nudge = &raw const **self.nudge.insert(Box::new(nudge));
        let mut answer = Answer::empty(self.table.free);
        // SAFETY: as in `poll_raw`; the nudge is dropped after the instance is destroyed.
        let number = unsafe {
            watch(
                self.pointer,
                changed,
                nudge.cast_mut().cast(),
                answer.place(),
            )
        };
        outcome(number, &answer)
    }

    /// Tells the plugin something, if it listens.
    pub fn command(&mut self, command: &Command, deadline: Duration) -> Result<(), Failure> {
        let Some(call) = self.table.command else {
            return Ok(());
        };
        let json = serde_json::to_vec(command).expect("a command is always JSON");
        let mut answer = Answer::empty(self.table.free);
        // SAFETY: as in `poll_raw`; the text is there during the call.
        let number = unsafe {
            call(
                self.pointer,
                json.as_ptr(),
                json.len(),
                millis(deadline),
                answer.place(),
            )
        };
        outcome(number, &answer)
    }
}

fn millis(deadline: Duration) -> u64 {
    u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX)
}

fn outcome(number: i32, answer: &Answer) -> Result<(), Failure> {
    match number {
        code::OK => Ok(()),
        number => Err(PluginError::of_answer(number, answer.bytes()?).into()),
    }
}

/// What the plugin calls.
unsafe extern "C" fn changed(nudge: *mut c_void) {
    // SAFETY: `watch` made it, and it is dropped after `destroy` has returned.
    let nudge = unsafe { &*nudge.cast::<Nudge>() };
    nudge();
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
