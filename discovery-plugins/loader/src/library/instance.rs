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

/// One instance of a plugin. Its calls block while the plugin works. Dropping it destroys the instance.
pub struct Instance {
    table: Table,
    pointer: *mut c_void,
    /// The plugin may call it until the instance is destroyed, so it never moves.
    signal: Option<Box<ChangeSignal>>,
}

/// Called when the hosts of a plugin may have changed, from any thread. It must not block.
pub type ChangeSignal = Box<dyn Fn() + Send + Sync>;

// SAFETY: the interface allows calls from any thread that do not overlap. They take `&mut self`.
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
        // SAFETY: the table was checked. Each pointer is valid during the call.
        let number = unsafe {
            (table.create)(
                host,
                config.as_ptr(),
                config.len(),
                &mut pointer,
                answer.as_mut_ptr(),
            )
        };
        if number != code::OK {
            return Err(PluginError::from_answer(number, answer.bytes()?).into());
        }
        Ok(Self {
            table,
            pointer,
            signal: None,
        })
    }

    /// Polls the current hosts. After [`FailureKind::Panicked`] the instance is unusable.
    pub fn poll(&mut self, deadline: Duration) -> Result<Snapshot, Failure> {
        self.poll_raw(deadline, |bytes| Ok(answer::snapshot(bytes)?))
    }

    /// A poll whose answer `read` parses.
    pub(crate) fn poll_raw<T>(
        &mut self,
        deadline: Duration,
        read: impl FnOnce(&[u8]) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut answer = Answer::empty(self.table.free);
        // SAFETY: `create` returned the pointer, it is not destroyed, and calls do not overlap.
        let number =
            unsafe { (self.table.poll)(self.pointer, millis(deadline), answer.as_mut_ptr()) };
        match (number, answer.bytes()?) {
            (code::OK, bytes) => read(bytes),
            (number, bytes) => Err(PluginError::from_answer(number, bytes).into()),
        }
    }

    /// Whether the plugin pushes changes.
    pub fn watches(&self) -> bool {
        self.table.watch.is_some()
    }

    /// Enables the change signal, if the plugin supports it. Call it once.
    pub fn watch(&mut self, signal: ChangeSignal) -> Result<(), Failure> {
        let Some(watch) = self.table.watch else {
            return Ok(());
        };
        let signal: *const ChangeSignal = &raw const **self.signal.insert(Box::new(signal));
        let mut answer = Answer::empty(self.table.free);
        // SAFETY: as in `poll_raw`. The signal is dropped after the instance is destroyed.
        let number = unsafe {
            watch(
                self.pointer,
                changed,
                signal.cast_mut().cast(),
                answer.as_mut_ptr(),
            )
        };
        outcome(number, &answer)
    }

    /// Sends a command to the plugin, if it takes commands.
    pub fn command(&mut self, command: &Command, deadline: Duration) -> Result<(), Failure> {
        let Some(call) = self.table.command else {
            return Ok(());
        };
        let json = serde_json::to_vec(command).expect("a command is always JSON");
        let mut answer = Answer::empty(self.table.free);
        // SAFETY: as in `poll_raw`. The text is valid during the call.
        let number = unsafe {
            call(
                self.pointer,
                json.as_ptr(),
                json.len(),
                millis(deadline),
                answer.as_mut_ptr(),
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
        number => Err(PluginError::from_answer(number, answer.bytes()?).into()),
    }
}

/// The callback for the plugin.
unsafe extern "C" fn changed(signal: *mut c_void) {
    // SAFETY: `watch` created it, and it is dropped after `destroy` has returned.
    let signal = unsafe { &*signal.cast::<ChangeSignal>() };
    signal();
}

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: this is the last call on the instance.
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
