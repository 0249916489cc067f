//! Levels of a plugin's log, and the log of one that runs in the driver's own process.

use std::{ffi::c_void, slice};

use elasticrun_plugin_sdk::abi::{RawHost, log_level};
use tracing::level_filters::LevelFilter;

/// The highest level that the driver's log takes.
pub(crate) fn max_level() -> i32 {
    match LevelFilter::current() {
        LevelFilter::OFF => 0,
        LevelFilter::ERROR => log_level::ERROR,
        LevelFilter::WARN => log_level::WARN,
        LevelFilter::INFO => log_level::INFO,
        LevelFilter::DEBUG => log_level::DEBUG,
        _ => log_level::TRACE,
    }
}

/// The word for a level in a frame.
pub(crate) fn word(level: i32) -> &'static str {
    match level {
        ..=log_level::ERROR => "error",
        log_level::WARN => "warn",
        log_level::INFO => "info",
        log_level::DEBUG => "debug",
        _ => "trace",
    }
}

/// This process as the host of a plugin. The name must be static.
pub(crate) fn host(plugin: &'static String) -> RawHost {
    RawHost {
        log_level: max_level(),
        log: Some(line),
        log_context: std::ptr::from_ref(plugin).cast_mut().cast(),
        ..RawHost::THIS
    }
}

unsafe extern "C" fn line(context: *mut c_void, level: i32, text: *const u8, len: usize) {
    // SAFETY: `host` stored a reference to a static name.
    let plugin: &String = unsafe { &*context.cast() };
    let bytes = match len {
        0 => &[][..],
        // SAFETY: the plugin guarantees that many bytes during the call. The length is capped.
        len => unsafe { slice::from_raw_parts(text, len.min(16 << 10)) },
    };
    let text = String::from_utf8_lossy(bytes);
    match word(level) {
        "error" => tracing::error!(%plugin, "{text}"),
        "warn" => tracing::warn!(%plugin, "{text}"),
        "debug" => tracing::debug!(%plugin, "{text}"),
        "trace" => tracing::trace!(%plugin, "{text}"),
        _ => tracing::info!(%plugin, "{text}"),
    }
}
