//! The binary interface between host and plugin, first form. `include/elasticrun_plugin.h` says the same in C.
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
//! - `destroy(instance)`: the last call on an instance; also after a panic.
//! - `free(buffer)`: takes an answer back.
//!
//! Any other code comes with an answer `{"message": "...", "retry_after_ms": 5000}`, or with none. The host
//! hands in an empty answer ([`RawBuffer::EMPTY`]) and frees what it finds there.

use std::{ffi::c_void, ptr};

/// First bytes of a [`RawPlugin`].
pub const MAGIC: [u8; 8] = *b"ERUNPLUG";
/// Changes when an older host or plugin could not work with a newer one.
pub const ABI_MAJOR: u16 = 1;
/// Counts what was appended since.
pub const ABI_MINOR: u16 = 0;
/// What the name of every plugin library, and of the constant it exports, begins with.
pub const SYMBOL_PREFIX: &str = "elasticrun_plugin_";

/// What a plugin can do: bits of [`RawPlugin::flags`].
pub mod flag {
    /// It answers `poll`. Every plugin of the first form does.
    pub const POLL: u64 = 1 << 0;
    /// Reserved: it can push changes by itself.
    pub const WATCH: u64 = 1 << 1;
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
}

impl RawHost {
    /// This build.
    pub const THIS: Self = Self {
        size: size_of::<Self>() as u32,
        abi_major: ABI_MAJOR,
        abi_minor: ABI_MINOR,
    };
}

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
    /// Takes an answer back.
    pub free: Option<Free>,
}

// SAFETY: it is a constant; what its pointers lead to is constant as well.
unsafe impl Sync for RawPlugin {}
// SAFETY: as above; the functions may be called from any thread.
unsafe impl Send for RawPlugin {}
