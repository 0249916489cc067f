//! Panics of decoders, as errors. Decoders may panic on damaged bytes, which is an error of the file and not of this
//! program, so nothing is printed about it.

use std::{
    any::Any,
    cell::Cell,
    panic::{self, AssertUnwindSafe},
    sync::Once,
};

thread_local! {
    /// Whether this thread runs code whose panics are errors.
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs `decode`, and returns the message if it panics. The first call wraps the panic hook of the process, which is not
/// called for such a panic.
pub(crate) fn catch<T>(decode: impl FnOnce() -> T) -> Result<T, String> {
    static WRAPPED: Once = Once::new();
    WRAPPED.call_once(|| {
        let hook = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !IS_QUIET.get() {
                hook(info);
            }
        }));
    });
    let before = IS_QUIET.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(decode));
    IS_QUIET.set(before);
    result.map_err(|panic| describe(&*panic))
}

fn describe(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("its decoder panicked").to_owned()
}

#[cfg(test)]
mod tests {
    use std::{env, process::Command};

    use super::*;

    /// Tells the child which panics it has.
    const PANICS: &str = "ELASTICRUN_TEST_PANICS";

    /// Runs in a process of its own. Does nothing otherwise.
    #[test]
    fn child() {
        if env::var_os(PANICS).is_some() {
            assert_eq!(catch(|| 7), Ok(7));
            assert_eq!(
                catch(|| panic!("page {}", 3)),
                Err::<(), _>("page 3".to_owned())
            );
            assert_eq!(
                catch(|| catch(|| panic!("a"))),
                Ok(Err::<(), _>("a".to_owned()))
            );
            let _ = panic::catch_unwind(|| panic!("not of a decoder"));
        }
    }

    #[test]
    fn only_other_panics_are_printed() {
        let output = Command::new(env::current_exe().unwrap())
            .args(["caught_panic::tests::child", "--exact", "--nocapture"])
            .env(PANICS, "1")
            .output()
            .unwrap();
        assert!(output.status.success());
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(printed.matches("panicked at").count(), 1, "{printed}");
        assert!(printed.contains("not of a decoder"), "{printed}");
    }
}
