//! Status codes, and the message of the last failure of each thread.

use std::{
    any::Any,
    cell::RefCell,
    ffi::{CStr, CString, c_char, c_int},
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
};

use elasticrun_ps::Error;

pub(crate) const OK: c_int = 0;
const INVALID: c_int = 1;
const CONFIG: c_int = 2;
const START: c_int = 3;
const NODE_LOST: c_int = 4;
const TIMEOUT: c_int = 5;
const BAD_REQUEST: c_int = 6;
const REFUSED: c_int = 7;
const FINALIZED: c_int = 8;
const OTHER: c_int = 9;
const PANIC: c_int = 10;

/// Why a function failed.
#[derive(Debug)]
pub(crate) struct Failure {
    code: c_int,
    text: String,
}

impl Failure {
    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        let text = text.into();
        Self {
            code: INVALID,
            text,
        }
    }
}

pub(crate) fn code(error: &Error) -> c_int {
    match error {
        Error::Options(_) | Error::CustomerExists { .. } | Error::NoSuchNode(_) => CONFIG,
        Error::PortTaken { .. }
        | Error::Unreachable { .. }
        | Error::JoinRefused(_)
        | Error::Stranger { .. }
        | Error::StartTimedOut { .. } => START,
        Error::NodeLost { .. } | Error::BarrierBroken { .. } => NODE_LOST,
        Error::TimedOut { .. } | Error::BarrierTimedOut { .. } | Error::BackPressure { .. } => {
            TIMEOUT
        }
        Error::Keys(_) | Error::Slices(_) | Error::NoSuchRequest(_) => BAD_REQUEST,
        Error::Refused { .. } => REFUSED,
        Error::Finalized => FINALIZED,
        _ => OTHER,
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self {
            code: code(&error),
            text: error.to_string(),
        }
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// A text without zeros inside.
pub(crate) fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

/// Runs a function, and notes why it fails.
pub(crate) fn guard(run: impl FnOnce() -> Result<(), Failure>) -> c_int {
    let failure = match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => return OK,
        Ok(Err(failure)) => failure,
        Err(panic) => Failure {
            code: PANIC,
            text: format!("a bug in elasticrun: {}", panic_text(&*panic)),
        },
    };
    // No thread-local storage is left at the end of a thread.
    let _ = LAST.try_with(|last| *last.borrow_mut() = c_string(&failure.text));
    failure.code
}

/// Runs a function that cannot fail.
pub(crate) fn guard_or<T>(default: T, run: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or(default)
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic")
}

/// The message of the last failure of this thread.
#[unsafe(no_mangle)]
pub extern "C" fn erps_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr())
        .unwrap_or(c"".as_ptr())
}

/// A reference to what a pointer of the program points to.
///
/// # Safety
/// It is null, or valid for `'a`.
pub(crate) unsafe fn reference<'a, T>(pointer: *const T, what: &str) -> Result<&'a T, Failure> {
    // SAFETY: as the caller promises.
    unsafe { pointer.as_ref() }.ok_or_else(|| Failure::invalid(format!("{what} is NULL")))
}

/// Writes a result to where the program wants it.
///
/// # Safety
/// The pointer is null, or may be written.
pub(crate) unsafe fn store<T>(pointer: *mut T, value: T, what: &str) -> Result<(), Failure> {
    if pointer.is_null() {
        return Err(Failure::invalid(format!("{what} is NULL")));
    }
    // SAFETY: as the caller promises.
    unsafe { pointer.write(value) };
    Ok(())
}

/// A text of the program. Null is empty.
///
/// # Safety
/// It is null, or ends with a zero.
pub(crate) unsafe fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: as the caller promises.
    unsafe { CStr::from_ptr(pointer) }
        .to_string_lossy()
        .into_owned()
}

/// An array of the program.
///
/// # Safety
/// It has so many elements for `'a`, or none.
pub(crate) unsafe fn slice<'a, T>(
    first: *const T,
    len: usize,
    what: &str,
) -> Result<&'a [T], Failure> {
    match (len, first.is_null()) {
        (0, _) => Ok(&[]),
        (_, true) => Err(Failure::invalid(format!("{what} is NULL"))),
        // SAFETY: as the caller promises.
        _ => Ok(unsafe { std::slice::from_raw_parts(first, len) }),
    }
}
