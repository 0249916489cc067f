//! The notifier by which a plugin reports changes.

use std::{
    ffi::c_void,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use crate::abi::RawChanged;

/// Requests a poll from the host. It carries no data, is cheap, and may be called from any thread. Several calls before the
/// poll count as one. After the plugin is destroyed it does nothing.
#[derive(Clone)]
pub struct ChangeNotifier(Arc<RwLock<Option<Callback>>>);

/// The callback of the host.
#[derive(Clone, Copy)]
struct Callback {
    changed: RawChanged,
    context: *mut c_void,
}

// SAFETY: the interface allows the call from any thread.
unsafe impl Send for Callback {}
// SAFETY: as above, and from several threads at a time.
unsafe impl Sync for Callback {}

impl ChangeNotifier {
    /// # Safety
    /// `changed(context)` may be called from any thread until the [`CallbackGuard`] is dropped.
    pub(crate) unsafe fn new(changed: RawChanged, context: *mut c_void) -> (Self, CallbackGuard) {
        let callback = Arc::new(RwLock::new(Some(Callback { changed, context })));
        (Self(callback.clone()), CallbackGuard(callback))
    }

    /// Reports that the hosts may have changed. The host polls at once.
    pub fn notify(&self) {
        let callback = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(Callback { changed, context }) = *callback {
            // SAFETY: the guard waits for this lock before it removes the callback.
            unsafe { changed(context) };
        }
    }
}

impl fmt::Debug for ChangeNotifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChangeNotifier").finish_non_exhaustive()
    }
}

/// Removes the callback when it is dropped. No call is running afterwards, and none follows.
pub(crate) struct CallbackGuard(Arc<RwLock<Option<Callback>>>);

impl Drop for CallbackGuard {
    fn drop(&mut self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    unsafe extern "C" fn count(context: *mut c_void) {
        // SAFETY: the test passes a counter.
        unsafe { &*context.cast::<AtomicU32>() }.fetch_add(1, Ordering::Relaxed);
    }

    #[test]
    fn no_call_follows_the_end_of_the_guard() {
        let calls = AtomicU32::new(0);
        let context = (&raw const calls).cast_mut().cast();
        // SAFETY: the counter outlives the guard.
        let (changed, guard) = unsafe { ChangeNotifier::new(count, context) };
        let other = changed.clone();
        changed.notify();
        std::thread::spawn(move || other.notify()).join().unwrap();
        assert_eq!(calls.load(Ordering::Relaxed), 2);
        drop(guard);
        changed.notify();
        assert_eq!(calls.load(Ordering::Relaxed), 2);
    }
}
