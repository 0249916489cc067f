//! How a plugin says that it has something new.

use std::{
    ffi::c_void,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use crate::abi::RawChanged;

/// Tells the host to poll now. It carries no data, costs little and may be called from any thread, as often as
/// wanted: several calls before the poll are one. After the plugin is destroyed it does nothing.
#[derive(Clone)]
pub struct Changed(Arc<RwLock<Option<Line>>>);

/// The way to the host.
#[derive(Clone, Copy)]
struct Line {
    changed: RawChanged,
    context: *mut c_void,
}

// SAFETY: the interface allows the call from any thread.
unsafe impl Send for Line {}
// SAFETY: as above, and from several at a time.
unsafe impl Sync for Line {}

impl Changed {
    /// # Safety
    /// `changed(context)` may be called from any thread until the [`Silencer`] is dropped.
    pub(crate) unsafe fn new(changed: RawChanged, context: *mut c_void) -> (Self, Silencer) {
        let line = Arc::new(RwLock::new(Some(Line { changed, context })));
        (Self(line.clone()), Silencer(line))
    }

    /// The hosts may have changed: poll now.
    pub fn notify(&self) {
        let line = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(Line { changed, context }) = *line {
            // SAFETY: the line is open as long as the lock is held with it inside.
            unsafe { changed(context) };
        }
    }
}

impl fmt::Debug for Changed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changed").finish_non_exhaustive()
    }
}

/// Closes the line when it is dropped: no call is under way afterwards, and none will be.
pub(crate) struct Silencer(Arc<RwLock<Option<Line>>>);

impl Drop for Silencer {
    fn drop(&mut self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    unsafe extern "C" fn count(context: *mut c_void) {
        // SAFETY: the test hands in a counter.
        unsafe { &*context.cast::<AtomicU32>() }.fetch_add(1, Ordering::Relaxed);
    }

    #[test]
    fn nobody_is_called_once_the_line_is_closed() {
        let calls = AtomicU32::new(0);
        let context = (&raw const calls).cast_mut().cast();
        // SAFETY: the counter outlives the line.
        let (changed, silencer) = unsafe { Changed::new(count, context) };
        let other = changed.clone();
        changed.notify();
        std::thread::spawn(move || other.notify()).join().unwrap();
        assert_eq!(calls.load(Ordering::Relaxed), 2);
        drop(silencer);
        changed.notify();
        assert_eq!(calls.load(Ordering::Relaxed), 2);
    }
}
