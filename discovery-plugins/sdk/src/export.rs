//! Exports a [`Plugin`] as the constant of its library.
//!
//! All calls of the host pass this module. It catches panics, and it allocates and frees buffers.

use std::{
    any::Any,
    ffi::c_void,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr, slice,
    time::Duration,
};

use crate::{
    ChangeNotifier, Manifest, Plugin, PluginError,
    abi::{
        ABI_MAJOR, ABI_MINOR, MAGIC, RawBuffer, RawChanged, RawHost, RawPlugin, SYMBOL_PREFIX,
        code, flag,
    },
    change_notifier::CallbackGuard,
    command,
    config::from_options,
    error::ErrorKind,
    log,
};

/// Exports a [`Plugin`] as the constant `ELASTICRUN_PLUGIN` of the current module.
///
/// The crate's library must be named `elasticrun_plugin_NAME`, with the manifest's name (`_` for `-`). The symbol has the same
/// name, so that several plugins can be linked into one program. Use the macro once in a crate. It does not compile with
/// `panic = "abort"`, since a panic would end the job.
#[macro_export]
macro_rules! export_plugin {
    ($plugin:ty) => {
        #[cfg(panic = "abort")]
        ::core::compile_error!(
            "a discovery plugin must be built with panic = \"unwind\": its panic would end the job"
        );

        const _: () = ::core::assert!(
            $crate::library_matches(
                ::core::env!("CARGO_CRATE_NAME"),
                &<$plugin as $crate::Plugin>::MANIFEST
            ),
            "the library must be named elasticrun_plugin_NAME, with NAME from the manifest \
             (small letters, digits, '-', which the library writes as '_')"
        );

        /// The plugin, as its library exports it.
        #[unsafe(export_name = ::core::env!("CARGO_CRATE_NAME"))]
        pub static ELASTICRUN_PLUGIN: $crate::abi::RawPlugin = {
            const MANIFEST: $crate::Manifest = <$plugin as $crate::Plugin>::MANIFEST;
            const LEN: ::core::primitive::usize = MANIFEST.json_len();
            static JSON: [::core::primitive::u8; LEN] = MANIFEST.json::<LEN>();
            $crate::exported::<$plugin>(&JSON)
        };
    };
}

/// The table of a plugin.
pub const fn exported<P: Plugin>(manifest: &'static [u8]) -> RawPlugin {
    RawPlugin {
        magic: MAGIC,
        abi_major: ABI_MAJOR,
        abi_minor: ABI_MINOR,
        size: size_of::<RawPlugin>() as u32,
        flags: flag::POLL | flag::COMMAND | if P::WATCHES { flag::WATCH } else { 0 },
        manifest: manifest.as_ptr(),
        manifest_len: manifest.len(),
        create: Some(create::<P>),
        poll: Some(poll::<P>),
        destroy: Some(destroy::<P>),
        free: Some(free),
        watch: Some(watch::<P>),
        command: Some(command::<P>),
    }
}

/// Whether a library has the name of its plugin, and that name is well-formed.
pub const fn library_matches(library: &str, manifest: &Manifest) -> bool {
    let (library, prefix) = (library.as_bytes(), SYMBOL_PREFIX.as_bytes());
    let name = manifest.name.as_bytes();
    if name.is_empty() || library.len() != prefix.len() + name.len() {
        return false;
    }
    let mut index = 0;
    while index < library.len() {
        let expected = if index < prefix.len() {
            prefix[index]
        } else {
            match name[index - prefix.len()] {
                byte @ (b'a'..=b'z' | b'0'..=b'9') => byte,
                b'-' => b'_',
                _ => return false,
            }
        };
        if library[index] != expected {
            return false;
        }
        index += 1;
    }
    true
}

/// The target of the host's instance pointer.
struct Instance<P> {
    plugin: P,
    /// After a panic the state is undefined.
    panicked: bool,
    /// Ends the notifications of `watch`.
    guard: Option<CallbackGuard>,
}

impl<P> Instance<P> {
    /// Calls the plugin, unless it has panicked before.
    fn call<T>(
        &mut self,
        call: impl FnOnce(&mut Self) -> Result<T, PluginError>,
    ) -> Result<T, PluginError> {
        if self.panicked {
            return Err(PluginError::new(
                ErrorKind::Panic,
                "it panicked before and can only be destroyed",
            ));
        }
        let result = guarded(|| call(self));
        self.panicked = matches!(&result, Err(error) if error.kind == ErrorKind::Panic);
        result
    }
}

unsafe extern "C" fn create<P: Plugin>(
    host: *const RawHost,
    config: *const u8,
    config_len: usize,
    instance: *mut *mut c_void,
    answer: *mut RawBuffer,
) -> i32 {
    // SAFETY: the host is valid during the call.
    unsafe { log::open(host) };
    // SAFETY: the host guarantees that many bytes during the call.
    let config = unsafe { bytes(config, config_len) };
    match guarded(|| P::create(from_options(config)?)) {
        Ok(plugin) => {
            let made = Box::into_raw(Box::new(Instance {
                plugin,
                panicked: false,
                guard: None,
            }));
            // SAFETY: the host passes space for one pointer.
            unsafe { instance.write(made.cast()) };
            code::OK
        }
        // SAFETY: the host passes space for one buffer.
        Err(error) => unsafe { refuse(&error, answer) },
    }
}

unsafe extern "C" fn poll<P: Plugin>(
    instance: *mut c_void,
    deadline_ms: u64,
    answer: *mut RawBuffer,
) -> i32 {
    // SAFETY: it is from `create` of the same type and is not destroyed. Calls do not overlap.
    let instance = unsafe { &mut *instance.cast::<Instance<P>>() };
    let result = instance.call(|instance| {
        let snapshot = instance.plugin.poll(Duration::from_millis(deadline_ms))?;
        serde_json::to_vec(&snapshot).map_err(|error| PluginError::retryable(error.to_string()))
    });
    match result {
        Ok(json) => {
            // SAFETY: the host passes space for one buffer.
            unsafe { answer.write(buffer(json)) };
            code::OK
        }
        // SAFETY: as above.
        Err(error) => unsafe { refuse(&error, answer) },
    }
}

unsafe extern "C" fn watch<P: Plugin>(
    instance: *mut c_void,
    changed: RawChanged,
    context: *mut c_void,
    answer: *mut RawBuffer,
) -> i32 {
    // SAFETY: it is from `create` of the same type and is not destroyed. Calls do not overlap.
    let instance = unsafe { &mut *instance.cast::<Instance<P>>() };
    // SAFETY: the host guarantees both until `destroy` returns, which drops the guard before.
    let (changed, guard) = unsafe { ChangeNotifier::new(changed, context) };
    instance.guard = Some(guard);
    match instance.call(|instance| instance.plugin.watch(changed)) {
        Ok(()) => code::OK,
        // SAFETY: the host passes space for one buffer.
        Err(error) => unsafe { refuse(&error, answer) },
    }
}

unsafe extern "C" fn command<P: Plugin>(
    instance: *mut c_void,
    command: *const u8,
    command_len: usize,
    deadline_ms: u64,
    answer: *mut RawBuffer,
) -> i32 {
    // SAFETY: it is from `create` of the same type and is not destroyed. Calls do not overlap.
    let instance = unsafe { &mut *instance.cast::<Instance<P>>() };
    // SAFETY: the host guarantees that many bytes during the call.
    let json = unsafe { bytes(command, command_len) };
    let result = instance.call(|instance| match command::read(json)? {
        Some(command) => instance
            .plugin
            .command(command, Duration::from_millis(deadline_ms)),
        // A command of a newer host.
        None => Ok(()),
    });
    match result {
        Ok(()) => code::OK,
        // SAFETY: the host passes space for one buffer.
        Err(error) => unsafe { refuse(&error, answer) },
    }
}

unsafe extern "C" fn destroy<P: Plugin>(instance: *mut c_void) -> i32 {
    // SAFETY: it is from `create` of the same type, and this is the last call on it.
    let instance = unsafe { Box::from_raw(instance.cast::<Instance<P>>()) };
    let Instance { plugin, guard, .. } = *instance;
    let dropped = guarded(|| {
        drop(plugin);
        Ok(())
    });
    // A remaining thread of the plugin may still call the notifier, which does nothing from now on.
    drop(guard);
    dropped.map_or_else(|error| error.kind.code(), |()| code::OK)
}

unsafe extern "C" fn free(buffer: RawBuffer) {
    if !buffer.data.is_null() {
        let bytes = ptr::slice_from_raw_parts_mut(buffer.data, buffer.len);
        // SAFETY: `buffer` created it from a boxed slice of this length.
        drop(unsafe { Box::from_raw(bytes) });
    }
}

/// # Safety
/// That many bytes are valid for as long as the result is used.
unsafe fn bytes<'a>(data: *const u8, len: usize) -> &'a [u8] {
    match len {
        0 => &[],
        // SAFETY: guaranteed by the caller.
        len => unsafe { slice::from_raw_parts(data, len) },
    }
}

fn buffer(bytes: Vec<u8>) -> RawBuffer {
    let bytes = Box::leak(bytes.into_boxed_slice());
    RawBuffer {
        data: bytes.as_mut_ptr(),
        len: bytes.len(),
    }
}

/// # Safety
/// `answer` must be valid for a write.
unsafe fn refuse(error: &PluginError, answer: *mut RawBuffer) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe { answer.write(buffer(error.to_json())) };
    error.kind.code()
}

/// Calls the plugin's code. A panic becomes an error. Its payload is leaked, since its `drop` may panic as well.
fn guarded<T>(call: impl FnOnce() -> Result<T, PluginError>) -> Result<T, PluginError> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => match result {
            // Only the SDK reports panics.
            Err(PluginError {
                kind: ErrorKind::Panic,
                message,
                ..
            }) => Err(PluginError::retryable(message)),
            result => result,
        },
        Err(payload) => {
            let message = message(&*payload);
            std::mem::forget(payload);
            Err(PluginError::new(ErrorKind::Panic, message))
        }
    }
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    format!("panicked: {}", text.unwrap_or("(no text)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &'static str) -> Manifest {
        Manifest {
            name,
            ..Manifest::EMPTY
        }
    }

    #[test]
    fn a_library_has_the_name_of_its_plugin() {
        assert!(library_matches(
            "elasticrun_plugin_aws_asg",
            &named("aws-asg")
        ));
        assert!(library_matches("elasticrun_plugin_k8s", &named("k8s")));
        for (library, name) in [
            ("elasticrun_plugin_a", "b"),
            ("elasticrun_plugin_", ""),
            ("plugin_a", "a"),
            ("elasticrun_plugin_a_b", "a_b"),
            ("elasticrun_plugin_A", "A"),
        ] {
            assert!(!library_matches(library, &named(name)), "{library} {name}");
        }
    }
}
