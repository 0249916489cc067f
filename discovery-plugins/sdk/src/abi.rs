//! The binary interface between host and plugin, version 1.1. `include/elasticrun_plugin.h` says the same in C.
//!
//! A plugin library exports one constant, a [`RawPlugin`], under the library's own name: `libNAME.so` exports
//! `NAME`, and `NAME` is `elasticrun_plugin_` and the plugin's name with `-` written as `_`.
//!
//! # Invariants
//! - Fields are only ever appended. Each side reads no more than `size` bytes of what the other gives it.
//! - [`ABI_MAJOR`] must be equal on both sides; [`ABI_MINOR`] counts the appended fields.
//! - Text is UTF-8 JSON; unknown fields are ignored.
//! - No call unwinds. The calls on one instance come one after the other, from any thread.
//!
//! # Calls
//! - `create(host, config, config_len, instance, answer)`: reads the configuration, an object, and on
//!   [`code::OK`] stores an instance. `host` and `config` are valid during the call only.
//! - `poll(instance, deadline_ms, answer)`: on `OK` the answer is a [`Snapshot`](crate::Snapshot). The plugin
//!   should be back within the deadline.
//! - `watch(instance, changed, context, answer)`, if [`flag::WATCH`] says so: once, behind `create`. After `OK` the
//!   plugin may call `changed(context)` from any of its threads until `destroy` has returned. It carries no data: it
//!   means "poll me now". A plugin that watches is polled at its pace all the same.
//! - `command(instance, json, len, deadline_ms, answer)`, if [`flag::COMMAND`] says so: the host tells or asks
//!   something, see [`Command`](crate::Command). A command that the plugin does not know is answered `OK`.
//! - `destroy(instance)`: the last call on an instance; also after a panic.
//! - `free(buffer)`: takes an answer back.
//!
//! Any other code comes with an answer `{"message": "...", "retry_after_ms": 5000}`, or with none. The host
//! hands in an empty answer ([`RawBuffer::EMPTY`]) and frees what it finds there.
//!
//! # Versions
//! | version | what was appended |
//! |---|---|
//! | 1.0 | |
//! | 1.1 | [`RawPlugin::watch`], [`RawPlugin::command`]; [`RawHost::log_level`] and what follows it; in the manifest `config`, `environment`, `permissions` |

use std::{ffi::c_void, ptr};

/// First bytes of a [`RawPlugin`].
pub const MAGIC: [u8; 8] = *b"ERUNPLUG";
/// Changes when an older host or plugin could not work with a newer one.
pub const ABI_MAJOR: u16 = 1;
/// Counts what was appended since.
pub const ABI_MINOR: u16 = 1;
/// What the name of every plugin library, and of the constant it exports, begins with.
pub const SYMBOL_PREFIX: &str = "elasticrun_plugin_";

/// What a plugin can do: bits of [`RawPlugin::flags`].
pub mod flag {
    /// It answers `poll`. Every plugin of the first form does.
    pub const POLL: u64 = 1 << 0;
    /// It answers `watch`: it says by itself when there is something new. Counts from 1.1 on.
    pub const WATCH: u64 = 1 << 1;
    /// It answers `command`. Counts from 1.1 on.
    pub const COMMAND: u64 = 1 << 2;
}

/// How much a line of a plugin's log matters; a greater number matters less.
pub mod log_level {
    /// What ends the work.
    pub const ERROR: i32 = 1;
    /// What should not have happened.
    pub const WARN: i32 = 2;
    /// What an operator acts on.
    pub const INFO: i32 = 3;
    /// Each decision.
    pub const DEBUG: i32 = 4;
    /// Everything.
    pub const TRACE: i32 = 5;
}

/// What a call comes to.
pub mod code {
    /// It worked.
    pub const OK: i32 = 0;
    /// It failed, and may work next time. So does the host take a code that it does not know.
    pub const RETRYABLE: i32 = 1;
    /// The plugin panicked; the instance can only be destroyed.
    pub const PANIC: i32 = 2;
    /// The configuration is wrong.
    pub const BAD_CONFIG: i32 = 3;
    /// The source does not let us in.
    pub const AUTH: i32 = 4;
    /// The source asks us to slow down.
    pub const THROTTLED: i32 = 5;
    /// The source does not know the group that is asked for.
    pub const UNKNOWN_GROUP: i32 = 6;
}

/// Bytes that the plugin made and the plugin frees.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RawBuffer {
    /// Null for none.
    pub data: *mut u8,
    /// How many.
    pub len: usize,
}

impl RawBuffer {
    /// No bytes.
    pub const EMPTY: Self = Self {
        data: ptr::null_mut(),
        len: 0,
    };
}

/// The host, as it shows itself to `create`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RawHost {
    /// Bytes of this struct.
    pub size: u32,
    /// The host's [`ABI_MAJOR`].
    pub abi_major: u16,
    /// The host's [`ABI_MINOR`].
    pub abi_minor: u16,
    /// The greatest [`log_level`] that is worth a call of `log`. Since 1.1, as all that follows.
    pub log_level: i32,
    /// Takes a line for the driver's log; none: nobody wants it. May be called from any thread, for ever.
    pub log: Option<Log>,
    /// For `log`.
    pub log_context: *mut c_void,
}

impl RawHost {
    /// This build, with a log that nobody reads.
    pub const THIS: Self = Self {
        size: size_of::<Self>() as u32,
        abi_major: ABI_MAJOR,
        abi_minor: ABI_MINOR,
        log_level: 0,
        log: None,
        log_context: ptr::null_mut(),
    };
    /// Bytes of the first form.
    pub const SIZE_1_0: usize = std::mem::offset_of!(Self, log_level);
}

/// Takes a line (UTF-8, without its end) for the driver's log.
pub type Log =
    unsafe extern "C" fn(context: *mut c_void, level: i32, text: *const u8, text_len: usize);

/// See the module.
pub type Create = unsafe extern "C" fn(
    host: *const RawHost,
    config: *const u8,
    config_len: usize,
    instance: *mut *mut c_void,
    answer: *mut RawBuffer,
) -> i32;
/// See the module.
pub type Poll =
    unsafe extern "C" fn(instance: *mut c_void, deadline_ms: u64, answer: *mut RawBuffer) -> i32;
/// What a plugin that watches calls when it has something new.
pub type RawChanged = unsafe extern "C" fn(context: *mut c_void);
/// See the module.
pub type Watch = unsafe extern "C" fn(
    instance: *mut c_void,
    changed: RawChanged,
    context: *mut c_void,
    answer: *mut RawBuffer,
) -> i32;
/// See the module.
pub type RawCommand = unsafe extern "C" fn(
    instance: *mut c_void,
    command: *const u8,
    command_len: usize,
    deadline_ms: u64,
    answer: *mut RawBuffer,
) -> i32;
/// See the module.
pub type Destroy = unsafe extern "C" fn(instance: *mut c_void) -> i32;
/// See the module.
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
    /// Bytes of this struct in the plugin's build.
    pub size: u32,
    /// Bits of [`flag`].
    pub flags: u64,
    /// The [`Manifest`](crate::Manifest) as JSON.
    pub manifest: *const u8,
    /// Its length in bytes.
    pub manifest_len: usize,
    /// Makes an instance.
    pub create: Option<Create>,
    /// Asks it for hosts.
    pub poll: Option<Poll>,
    /// Ends it.
    pub destroy: Option<Destroy>,
    /// Takes an answer back. The last field of the first form.
    pub free: Option<Free>,
    /// Lets it push. Since 1.1.
    pub watch: Option<Watch>,
    /// Tells it something. Since 1.1.
    pub command: Option<RawCommand>,
}

impl RawPlugin {
    /// Bytes of the first form.
    pub const SIZE_1_0: usize = std::mem::offset_of!(Self, watch);
}

// SAFETY: it is a constant; what its pointers lead to is constant as well.
unsafe impl Sync for RawPlugin {}
// SAFETY: as above; the functions may be called from any thread.
unsafe impl Send for RawPlugin {}
