//! The parameter server for C. `include/elasticrun_ps.h` describes each function and who owns what; `include/ps` has the C++ front.
//!
//! # Invariants
//! - No panic crosses the border: it becomes the status `ERPS_PANIC`.
//! - Each function that fails sets the message of `erps_last_error` on its thread.

#![allow(
    clippy::too_many_arguments,
    reason = "the interface of C has no other form"
)]

pub mod node;
pub mod server;
pub mod simple;
pub mod status;
pub mod worker;

use std::{
    ffi::c_void,
    sync::atomic::{AtomicPtr, Ordering},
};

use elasticrun_ps::{DType, dynamic};
use status::Failure;

/// Gives memory back: called once, on any thread.
type Release = Option<unsafe extern "C" fn(owner: *mut c_void)>;

/// Memory of the program, until nothing uses it.
struct Owner {
    release: Release,
    owner: AtomicPtr<c_void>,
}

impl Owner {
    fn new(release: Release, owner: *mut c_void) -> Self {
        let owner = AtomicPtr::new(owner);
        Self { release, owner }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: the program promises that it may be called with this pointer, on any thread.
            unsafe { release(self.owner.load(Ordering::Relaxed)) };
        }
    }
}

/// A pointer of the program that it gets back in its callbacks.
struct User(AtomicPtr<c_void>);

impl User {
    fn new(user: *mut c_void) -> Self {
        Self(AtomicPtr::new(user))
    }

    fn get(&self) -> *mut c_void {
        self.0.load(Ordering::Relaxed)
    }
}

/// The type of values with this number, which is that of the wire.
fn dtype(code: i32) -> Result<DType, Failure> {
    let name = u8::try_from(code).map(DType::name).unwrap_or_default();
    dynamic::dtype(name).ok_or_else(|| Failure::invalid(format!("{code} is no type of values")))
}
