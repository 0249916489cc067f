//! The process of an isolated library: it loads the library and answers the driver's calls.

use std::{
    ffi::c_void,
    fs::File,
    io::{self, BufReader, Write},
    os::{
        fd::{FromRawFd, OwnedFd, RawFd},
        unix::net::UnixStream,
    },
    path::Path,
    process, ptr, slice,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use elasticrun_plugin_sdk::abi::RawHost;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use serde_json::value::RawValue;

use crate::{
    Failure, FailureKind, Instance, Library,
    frames::{self, CONNECTION, Call, Hello, PluginFrame},
    library::{Image, text},
    log,
};

/// The descriptor of the library's image in this process.
pub(crate) const IMAGE: RawFd = 4;

/// The connection to the driver. Global, since a plugin may log until the process ends.
static DRIVER: OnceLock<Mutex<UnixStream>> = OnceLock::new();

/// Loads the plugin whose image this process inherited, and answers calls until the driver closes the connection or
/// destroys the instance. `path` is the origin of the image. Returns the exit code.
///
/// # Errors
/// This process was not started by a driver.
pub fn serve(path: &Path) -> io::Result<u8> {
    let (connection, image) = (inherited(CONNECTION)?, inherited(IMAGE)?);
    let connection = UnixStream::from(connection);
    let mut calls = BufReader::new(connection.try_clone()?);
    let _ = DRIVER.set(Mutex::new(connection));
    let library = match Library::open_image(path, Image::from(File::from(image))) {
        Ok(library) => library,
        Err(error) => {
            send(&PluginFrame {
                refused: Some(error.to_string()),
                ..PluginFrame::default()
            });
            return Ok(0);
        }
    };
    send(&PluginFrame {
        hello: Some(Hello {
            frames: frames::VERSION,
            manifest: library.manifest().clone(),
            watches: library.watches(),
            commands: true,
        }),
        ..PluginFrame::default()
    });
    let mut plugin = PluginHost {
        library,
        instance: None,
        signalled: Arc::default(),
    };
    while let Some(body) = frames::read(&mut calls)? {
        let call: Call = serde_json::from_slice(&body).map_err(io::Error::other)?;
        if !plugin.answer(call) {
            break;
        }
    }
    Ok(0)
}

/// A descriptor that this process inherited from the driver. Children of the plugin do not inherit it.
fn inherited(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: a system call with integers.
    if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        let why = "this is started by elasticrun itself, which leaves it a connection";
        return Err(io::Error::other(why));
    }
    // SAFETY: it is open, and nothing else in this process uses it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    fcntl(&fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    Ok(fd)
}

/// The library and its instance.
struct PluginHost {
    library: Library,
    instance: Option<Instance>,
    /// A change signal was sent since the last poll. Limits the signals of a plugin, so that they cannot fill the pipe.
    signalled: Arc<AtomicBool>,
}

impl PluginHost {
    /// Executes a call. Returns whether more calls may follow.
    fn answer(&mut self, call: Call) -> bool {
        match call {
            Call::Create {
                id, config, log, ..
            } => {
                let host = RawHost {
                    log_level: log,
                    log: Some(log_line),
                    log_context: ptr::null_mut(),
                    ..RawHost::THIS
                };
                let made = self.library.create_for(&host, &config);
                let made = made.map(|instance| self.instance = Some(instance));
                send_answer(id, made.map(|()| None));
            }
            Call::Watch { id, .. } => {
                let signalled = self.signalled.clone();
                let signal = move || {
                    if !signalled.swap(true, Ordering::Relaxed) {
                        send(&PluginFrame {
                            changed: true,
                            ..PluginFrame::default()
                        });
                    }
                };
                let watched = self.instance().and_then(|it| it.watch(Box::new(signal)));
                send_answer(id, watched.map(|()| None));
            }
            Call::Poll { id, deadline_ms } => {
                self.signalled.store(false, Ordering::Relaxed);
                let deadline = Duration::from_millis(deadline_ms);
                let json = self.instance().and_then(|it| {
                    it.poll_raw(deadline, |bytes| {
                        let text = text(bytes)?;
                        let json = RawValue::from_string(text.to_owned());
                        json.map(Some).map_err(|error| {
                            let why = format!("the plugin's answer is not a snapshot: {error}");
                            Failure::new(FailureKind::BadAnswer, why)
                        })
                    })
                });
                send_answer(id, json);
            }
            Call::Command {
                id,
                deadline_ms,
                command,
            } => {
                let deadline = Duration::from_millis(deadline_ms);
                let done = self
                    .instance()
                    .and_then(|it| it.command(&command, deadline));
                send_answer(id, done.map(|()| None));
            }
            Call::Destroy { id } => {
                self.instance = None;
                send_answer(id, Ok(None));
                return false;
            }
        }
        true
    }

    fn instance(&mut self) -> Result<&mut Instance, Failure> {
        let missing = || Failure::new(FailureKind::Retryable, "there is no instance");
        self.instance.as_mut().ok_or_else(missing)
    }
}

fn send_answer(id: u64, result: Result<Option<Box<RawValue>>, Failure>) {
    match result {
        Ok(snapshot) => send(&PluginFrame {
            answer: Some(id),
            snapshot: snapshot.as_deref(),
            ..PluginFrame::default()
        }),
        Err(failure) => send(&PluginFrame {
            answer: Some(id),
            error: Some(frames::word(failure.kind).to_owned()),
            message: Some(failure.message),
            retry_after_ms: failure
                .retry_after
                .map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
            ..PluginFrame::default()
        }),
    }
}

/// Sends a frame to the driver. Without a driver this process ends.
fn send(frame: &PluginFrame<'_>) {
    let Some(driver) = DRIVER.get() else { return };
    let mut driver = driver.lock().unwrap_or_else(PoisonError::into_inner);
    if driver.write_all(&frames::frame(frame)).is_err() {
        process::exit(0);
    }
}

/// Sends a log line of the plugin.
unsafe extern "C" fn log_line(_: *mut c_void, level: i32, text: *const u8, len: usize) {
    let bytes = match len {
        0 => &[][..],
        // SAFETY: the plugin guarantees that many bytes during the call. The length is capped.
        len => unsafe { slice::from_raw_parts(text, len.min(16 << 10)) },
    };
    send(&PluginFrame {
        log: Some(log::word(level).to_owned()),
        text: Some(String::from_utf8_lossy(bytes).into_owned()),
        ..PluginFrame::default()
    });
}
