//! The binary interface between host and plugin, version 1.1. `include/elasticrun_plugin.h` is its C version.
//!
//! A plugin library exports one constant, a [`RawPlugin`], under the library's own name: `libNAME.so` exports
//! `NAME`. `NAME` is `elasticrun_plugin_` followed by the plugin's name, with `-` written as `_`.
//!
//! # Invariants
//! - Fields are only appended. Each side reads at most `size` bytes of the other's struct.
//! - [`ABI_MAJOR`] must be equal on both sides. [`ABI_MINOR`] counts the additions.
//! - Text is UTF-8 JSON. Unknown fields are ignored.
//! - No call unwinds. Calls on one instance do not overlap, and may come from any thread.
//!
//! # Calls
//! - `create(host, config, config_len, instance, answer)`: parses the configuration, a JSON object, and on
//!   [`code::OK`] stores an instance. `host` and `config` are valid during the call only.
//! - `poll(instance, deadline_ms, answer)`: on `OK` the answer is a [`Snapshot`](crate::Snapshot). The plugin
//!   should return within the deadline.
//! - `watch(instance, changed, context, answer)`, with [`flag::WATCH`]: once, after `create`. After `OK` the plugin may call
//!   `changed(context)` from any of its threads until `destroy` has returned. The call carries no data and requests a poll.
//!   The regular polls continue.
//! - `command(instance, json, len, deadline_ms, answer)`, with [`flag::COMMAND`]: a [`Command`](crate::Command) of the
//!   host. The plugin answers `OK` to an unknown command.
//! - `destroy(instance)`: the last call on an instance, also after a panic.
//! - `free(buffer)`: frees an answer.
//!
//! Any other code comes with an answer `{"message": "...", "retry_after_ms": 5000}`, or with an empty one. The host passes
//! an empty answer ([`RawBuffer::EMPTY`]) and frees its content after the call.
//!
//! # Versions
//! | version | additions |
//! |---|---|
//! | 1.0 | |
//! | 1.1 | [`RawPlugin::watch`], [`RawPlugin::command`]; [`RawHost::log_level`] and the fields after it; in the manifest `config`, `environment`, `permissions` |

use std::{ffi::c_void, ptr};

/// First bytes of a [`RawPlugin`].
pub const MAGIC: [u8; 8] = *b"ERUNPLUG";
/// Changes with an incompatible change.
pub const ABI_MAJOR: u16 = 1;
/// Counts the additions since then.
pub const ABI_MINOR: u16 = 1;
/// Prefix of the names of plugin libraries and of the constants that they export.
pub const SYMBOL_PREFIX: &str = "elasticrun_plugin_";

/// Features of a plugin: bits of [`RawPlugin::flags`].
pub mod flag {
    /// It answers `poll`. Required.
    pub const POLL: u64 = 1 << 0;
    /// It answers `watch`: it pushes changes. Valid since 1.1.
    pub const WATCH: u64 = 1 << 1;
    /// It answers `command`. Valid since 1.1.
    pub const COMMAND: u64 = 1 << 2;
}

/// Levels of log lines. A greater number is less important.
pub mod log_level {
    /// A failure that ends the work.
    pub const ERROR: i32 = 1;
    /// Something unexpected.
    pub const WARN: i32 = 2;
    /// Something that an operator acts on.
    pub const INFO: i32 = 3;
    /// Each decision.
    pub const DEBUG: i32 = 4;
    /// Everything.
    pub const TRACE: i32 = 5;
}

/// Result codes of calls.
pub mod code {
    /// Success.
    pub const OK: i32 = 0;
    /// A failure that may be temporary. The host treats an unknown code like this.
    pub const RETRYABLE: i32 = 1;
    /// The plugin panicked. The instance can only be destroyed.
    pub const PANIC: i32 = 2;
    /// The configuration is wrong.
    pub const BAD_CONFIG: i32 = 3;
    /// The source denies access.
    pub const AUTH: i32 = 4;
    /// The source limits the rate of requests.
    pub const THROTTLED: i32 = 5;
    /// The source does not know the requested group.
    pub const UNKNOWN_GROUP: i32 = 6;
}

/// Bytes that the plugin allocates and frees.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RawBuffer {
    /// Null for none.
    pub data: *mut u8,
    /// Number of bytes.
    pub len: usize,
}

impl RawBuffer {
    /// No bytes.
    pub const EMPTY: Self = Self {
        data: ptr::null_mut(),
        len: 0,
    };
}

/// The description of the host for `create`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RawHost {
    /// Size of this struct in bytes.
    pub size: u32,
    /// The host's [`ABI_MAJOR`].
    pub abi_major: u16,
    /// The host's [`ABI_MINOR`].
    pub abi_minor: u16,
    /// The highest [`log_level`] that the host takes. Since 1.1, like the fields after it.
    pub log_level: i32,
    /// Takes a line for the driver's log. `None` if the host has no log. May be called from any thread, also after `destroy`.
    pub log: Option<Log>,
    /// The context for `log`.
    pub log_context: *mut c_void,
}

impl RawHost {
    /// This build, without a log.
    pub const THIS: Self = Self {
        size: size_of::<Self>() as u32,
        abi_major: ABI_MAJOR,
        abi_minor: ABI_MINOR,
        log_level: 0,
        log: None,
        log_context: ptr::null_mut(),
    };
    /// Size of version 1.0 in bytes.
    pub const SIZE_1_0: usize = std::mem::offset_of!(Self, log_level);
}

/// Takes a line (UTF-8, without its end) for the driver's log.
pub type Log =
    unsafe extern "C" fn(context: *mut c_void, level: i32, text: *const u8, text_len: usize);

/// The function `create`.
pub type Create = unsafe extern "C" fn(
    host: *const RawHost,
    config: *const u8,
    config_len: usize,
    instance: *mut *mut c_void,
    answer: *mut RawBuffer,
) -> i32;
/// The function `poll`.
pub type Poll =
    unsafe extern "C" fn(instance: *mut c_void, deadline_ms: u64, answer: *mut RawBuffer) -> i32;
/// The callback by which a plugin reports a change.
pub type RawChanged = unsafe extern "C" fn(context: *mut c_void);
/// The function `watch`.
pub type Watch = unsafe extern "C" fn(
    instance: *mut c_void,
    changed: RawChanged,
    context: *mut c_void,
    answer: *mut RawBuffer,
) -> i32;
/// The function `command`.
pub type RawCommand = unsafe extern "C" fn(
    instance: *mut c_void,
    command: *const u8,
    command_len: usize,
    deadline_ms: u64,
    answer: *mut RawBuffer,
) -> i32;
/// The function `destroy`.
pub type Destroy = unsafe extern "C" fn(instance: *mut c_void) -> i32;
/// The function `free`.
pub type Free = unsafe extern "C" fn(buffer: RawBuffer);

/// The constant that a plugin library exports.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RawPlugin {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`ABI_MAJOR`] of the plugin's build.
    pub abi_major: u16,
    /// [`ABI_MINOR`] of the plugin's build.
    pub abi_minor: u16,
    /// Size of this struct in the plugin's build, in bytes.
    pub size: u32,
    /// Bits of [`flag`].
    pub flags: u64,
    /// The [`Manifest`](crate::Manifest) as JSON.
    pub manifest: *const u8,
    /// Its length in bytes.
    pub manifest_len: usize,
    /// Creates an instance.
    pub create: Option<Create>,
    /// Polls for hosts.
    pub poll: Option<Poll>,
    /// Destroys an instance.
    pub destroy: Option<Destroy>,
    /// Frees an answer. The last field of version 1.0.
    pub free: Option<Free>,
    /// Enables push. Since 1.1.
    pub watch: Option<Watch>,
    /// Executes a command. Since 1.1.
    pub command: Option<RawCommand>,
}

impl RawPlugin {
    /// Size of version 1.0 in bytes.
    pub const SIZE_1_0: usize = std::mem::offset_of!(Self, watch);
}

// SAFETY: it is a constant, and so are the targets of its pointers.
unsafe impl Sync for RawPlugin {}
// SAFETY: as above. The functions may be called from any thread.
unsafe impl Send for RawPlugin {}
