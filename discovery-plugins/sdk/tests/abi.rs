//! The binary interface: its layout, numbers and names in each version, in Rust and in the C header.
//!
//! Plugins that are already built depend on each of these numbers. If a test fails here, a change breaks them. Append a field
//! instead, raise `ABI_MINOR`, and add the new version to the tables below.
//!
//! The system's compiler checks the C header. Without one, that test is skipped with a message.

use std::{
    env,
    ffi::c_void,
    fs,
    mem::{offset_of, size_of},
    path::{Path, PathBuf},
    process::Command,
};

use elasticrun_plugin_sdk::{
    ErrorKind,
    abi::{
        ABI_MAJOR, ABI_MINOR, Create, Destroy, Free, Log, MAGIC, Poll, RawBuffer, RawChanged,
        RawCommand, RawHost, RawPlugin, SYMBOL_PREFIX, Watch, code, flag, log_level,
    },
};

/// A struct in one version: its size and the offsets of its fields, on 64-bit machines.
struct Layout {
    version: (u16, u16),
    size: usize,
    fields: &'static [(&'static str, usize)],
}

const BUFFER: &[Layout] = &[Layout {
    version: (1, 0),
    size: 16,
    fields: &[("data", 0), ("len", 8)],
}];

const HOST: &[Layout] = &[
    Layout {
        version: (1, 0),
        size: 8,
        fields: &[("size", 0), ("abi_major", 4), ("abi_minor", 6)],
    },
    Layout {
        version: (1, 1),
        size: 32,
        fields: &[
            ("size", 0),
            ("abi_major", 4),
            ("abi_minor", 6),
            ("log_level", 8),
            ("log", 16),
            ("log_context", 24),
        ],
    },
];

const PLUGIN: &[Layout] = &[
    Layout {
        version: (1, 0),
        size: 72,
        fields: &[
            ("magic", 0),
            ("abi_major", 8),
            ("abi_minor", 10),
            ("size", 12),
            ("flags", 16),
            ("manifest", 24),
            ("manifest_len", 32),
            ("create", 40),
            ("poll", 48),
            ("destroy", 56),
            ("free", 64),
        ],
    },
    Layout {
        version: (1, 1),
        size: 88,
        fields: &[
            ("magic", 0),
            ("abi_major", 8),
            ("abi_minor", 10),
            ("size", 12),
            ("flags", 16),
            ("manifest", 24),
            ("manifest_len", 32),
            ("create", 40),
            ("poll", 48),
            ("destroy", 56),
            ("free", 64),
            ("watch", 72),
            ("command", 80),
        ],
    },
];

/// The newest version of a struct. Checks that each version only appends to the one before.
fn newest(layouts: &'static [Layout]) -> &'static Layout {
    for pair in layouts.windows(2) {
        assert!(pair[0].version < pair[1].version && pair[0].size < pair[1].size);
        assert!(pair[1].fields.starts_with(pair[0].fields), "fields moved");
    }
    layouts.last().expect("at least one version")
}

macro_rules! offsets {
    ($type:ty: $($field:ident)+) => {
        [$((stringify!($field), offset_of!($type, $field))),+]
    };
}

#[test]
fn structs_have_the_layout_of_their_version() {
    assert_eq!(size_of::<usize>(), 8, "elasticrun runs on 64-bit machines");
    let (buffer, host, plugin) = (newest(BUFFER), newest(HOST), newest(PLUGIN));
    assert_eq!(buffer.fields, offsets!(RawBuffer: data len));
    assert_eq!(
        host.fields,
        offsets!(RawHost: size abi_major abi_minor log_level log log_context)
    );
    assert_eq!(
        plugin.fields,
        offsets!(RawPlugin: magic abi_major abi_minor size flags manifest manifest_len
            create poll destroy free watch command)
    );
    assert_eq!(
        [buffer.size, host.size, plugin.size],
        [
            size_of::<RawBuffer>(),
            size_of::<RawHost>(),
            size_of::<RawPlugin>()
        ]
    );
    assert_eq!(RawHost::SIZE_1_0, HOST[0].size);
    assert_eq!(RawPlugin::SIZE_1_0, PLUGIN[0].size);
    assert_eq!(RawHost::THIS.size as usize, host.size);
    let version = host.version.max(plugin.version).max(buffer.version);
    assert_eq!(
        (ABI_MAJOR, ABI_MINOR),
        version,
        "a struct changed without a new version, or the tables lack one"
    );
}

const CODES: [(&str, i32); 7] = [
    ("OK", code::OK),
    ("RETRYABLE", code::RETRYABLE),
    ("PANIC", code::PANIC),
    ("BAD_CONFIG", code::BAD_CONFIG),
    ("AUTH", code::AUTH),
    ("THROTTLED", code::THROTTLED),
    ("UNKNOWN_GROUP", code::UNKNOWN_GROUP),
];

const LEVELS: [(&str, i32); 5] = [
    ("ERROR", log_level::ERROR),
    ("WARN", log_level::WARN),
    ("INFO", log_level::INFO),
    ("DEBUG", log_level::DEBUG),
    ("TRACE", log_level::TRACE),
];

#[test]
fn numbers_and_names_stay() {
    assert_eq!(MAGIC, *b"ERUNPLUG");
    assert_eq!(SYMBOL_PREFIX, "elasticrun_plugin_");
    assert_eq!([flag::POLL, flag::WATCH, flag::COMMAND], [1, 2, 4]);
    assert_eq!(CODES.map(|(_, number)| number), [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(LEVELS.map(|(_, number)| number), [1, 2, 3, 4, 5]);
    for kind in [
        ErrorKind::Retryable,
        ErrorKind::Panic,
        ErrorKind::BadConfig,
        ErrorKind::Auth,
        ErrorKind::Throttled,
        ErrorKind::UnknownGroup,
    ] {
        assert_eq!(ErrorKind::from_code(kind.code()), kind);
    }
}

/// The parameters of all functions. With a change, this does not compile.
#[test]
fn functions_keep_their_parameters() {
    type Pointer = *mut c_void;
    type Answer = *mut RawBuffer;
    type Bytes = *const u8;
    let _: fn(unsafe extern "C" fn(*const RawHost, Bytes, usize, *mut Pointer, Answer) -> i32) =
        drop::<Create>;
    let _: fn(unsafe extern "C" fn(Pointer, u64, Answer) -> i32) = drop::<Poll>;
    let _: fn(
        unsafe extern "C" fn(Pointer, unsafe extern "C" fn(Pointer), Pointer, Answer) -> i32,
    ) = drop::<Watch>;
    let _: fn(unsafe extern "C" fn(Pointer, Bytes, usize, u64, Answer) -> i32) = drop::<RawCommand>;
    let _: fn(unsafe extern "C" fn(Pointer) -> i32) = drop::<Destroy>;
    let _: fn(unsafe extern "C" fn(RawBuffer)) = drop::<Free>;
    let _: fn(unsafe extern "C" fn(Pointer)) = drop::<RawChanged>;
    let _: fn(unsafe extern "C" fn(Pointer, i32, Bytes, usize)) = drop::<Log>;
}

/// The functions of a plugin with the parameters of the Rust side. With another type, they do not fit the header.
const FUNCTIONS: &str = "
static int32_t create(const elasticrun_host *h, const uint8_t *c, size_t n, void **i, elasticrun_buffer *a)
{ (void)h; (void)c; (void)n; (void)i; (void)a; return 0; }
static int32_t poll(void *i, uint64_t d, elasticrun_buffer *a) { (void)i; (void)d; (void)a; return 0; }
static int32_t destroy(void *i) { (void)i; return 0; }
static void release(elasticrun_buffer b) { (void)b; }
static int32_t watch(void *i, void (*f)(void *), void *x, elasticrun_buffer *a)
{ (void)i; (void)f; (void)x; (void)a; return 0; }
static int32_t command(void *i, const uint8_t *c, size_t n, uint64_t d, elasticrun_buffer *a)
{ (void)i; (void)c; (void)n; (void)d; (void)a; return 0; }
static void line(void *x, int32_t l, const uint8_t *t, size_t n) { (void)x; (void)l; (void)t; (void)n; }
extern const elasticrun_plugin table;
extern const elasticrun_host host;
const elasticrun_plugin table = { ELASTICRUN_PLUGIN_MAGIC, ELASTICRUN_PLUGIN_ABI_MAJOR, ELASTICRUN_PLUGIN_ABI_MINOR,
  sizeof(elasticrun_plugin), ELASTICRUN_PLUGIN_POLL, 0, 0, create, poll, destroy, release, watch, command };
const elasticrun_host host = { sizeof(elasticrun_host), 1, 1, ELASTICRUN_LOG_INFO, line, 0 };
";

/// The numbers of this file as assertions in C.
fn program() -> String {
    let mut text = "#include \"elasticrun_plugin.h\"\n".to_owned();
    let mut holds = |what: String| text += &format!("_Static_assert({what}, \"\");\n");
    for (name, layouts) in [
        ("elasticrun_buffer", BUFFER),
        ("elasticrun_host", HOST),
        ("elasticrun_plugin", PLUGIN),
    ] {
        let layout = newest(layouts);
        holds(format!("sizeof({name}) == {}", layout.size));
        for (field, offset) in layout.fields {
            holds(format!("offsetof({name}, {field}) == {offset}"));
        }
    }
    for (name, number) in CODES {
        holds(format!("ELASTICRUN_{name} == {number}"));
    }
    for (name, number) in LEVELS {
        holds(format!("ELASTICRUN_LOG_{name} == {number}"));
    }
    for (name, number) in [
        ("ABI_MAJOR", u64::from(ABI_MAJOR)),
        ("ABI_MINOR", u64::from(ABI_MINOR)),
        ("POLL", flag::POLL),
        ("WATCH", flag::WATCH),
        ("COMMAND", flag::COMMAND),
    ] {
        holds(format!("ELASTICRUN_PLUGIN_{name} == {number}"));
    }
    text + FUNCTIONS
}

#[test]
fn the_header_has_the_same_layout() {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let directory =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("abi-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("the directory of tests is writable");
    let source = directory.join("abi.c");
    fs::write(&source, program()).expect("the directory of tests is writable");
    let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
    let compiled = Command::new(&compiler)
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"])
        .arg("-I")
        .args([&include, &source])
        .output();
    fs::remove_dir_all(&directory).expect("the directory of tests is writable");
    match compiled {
        Ok(output) => assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        ),
        Err(error) => println!("skipped: no C compiler {}: {error}", compiler.display()),
    }
}
