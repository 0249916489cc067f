//! The plugin's side of an isolated library: a process that loads it and answers for it.

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
    frames::{self, CONNECTION, Call, Hello, Said},
    library::{Image, text},
    log,
};

/// The descriptor on which this process finds the image of the library.
pub(crate) const IMAGE: RawFd = 4;

/// The way to the driver. A global, because a plugin's log has no end.
static DRIVER: OnceLock<Mutex<UnixStream>> = OnceLock::new();

/// Loads the plugin whose image this process inherited, and answers the driver until that is gone or has enough.
/// `path` is where the image came from. Gives the exit code.
///
/// # Errors
/// When this process was not started by a driver.
pub fn serve(path: &Path) -> io::Result<u8> {
    let (connection, image) = (inherited(CONNECTION)?, inherited(IMAGE)?);
    let connection = UnixStream::from(connection);
    let mut calls = BufReader::new(connection.try_clone()?);
    let _ = DRIVER.set(Mutex::new(connection));
    let library = match Library::open_image(path, Image::from(File::from(image))) {
        Ok(library) => library,
        Err(error) => {
            say(&Said {
                refused: Some(error.to_string()),
                ..Said::default()
            });
            return Ok(0);
        }
    };
    say(&Said {
        hello: Some(Hello {
            frames: frames::VERSION,
            manifest: library.manifest().clone(),
            watches: library.watches(),
            commands: true,
        }),
        ..Said::default()
    });
    let mut plugin = Served {
        library,
        instance: None,
        nudged: Arc::default(),
    };
    while let Some(body) = frames::read(&mut calls)? {
        let call: Call = serde_json::from_slice(&body).map_err(io::Error::other)?;
        if !plugin.answer(call) {
            break;
        }
    }
    Ok(0)
}

/// A descriptor that the driver left open for us; what the plugin starts does not get it.
fn inherited(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: a system call with integers.
    if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        let why = "this is started by elasticrun itself, which leaves it a connection";
        return Err(io::Error::other(why));
    }
    // SAFETY: it is open, and the driver gave it to us alone.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    fcntl(&fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    Ok(fd)
}

struct Served {
    library: Library,
    instance: Option<Instance>,
    /// A nudge is on its way; cleared by a poll, so that a plugin that nudges without end does not fill the pipe.
    nudged: Arc<AtomicBool>,
}

impl Served {
    /// Says whether more calls are wanted.
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
                say_answer(id, made.map(|()| None));
            }
            Call::Watch { id, .. } => {
                let nudged = self.nudged.clone();
                let nudge = move || {
                    if !nudged.swap(true, Ordering::Relaxed) {
                        say(&Said {
                            changed: true,
                            ..Said::default()
                        });
                    }
                };
                let watched = self.instance().and_then(|it| it.watch(Box::new(nudge)));
                say_answer(id, watched.map(|()| None));
            }
            Call::Poll { id, deadline_ms } => {
                self.nudged.store(false, Ordering::Relaxed);
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
                say_answer(id, json);
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
                say_answer(id, done.map(|()| None));
            }
            Call::Destroy { id } => {
                self.instance = None;
                say_answer(id, Ok(None));
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

fn say_answer(id: u64, result: Result<Option<Box<RawValue>>, Failure>) {
    match result {
        Ok(snapshot) => say(&Said {
            answer: Some(id),
            snapshot: snapshot.as_deref(),
            ..Said::default()
        }),
        Err(failure) => say(&Said {
            answer: Some(id),
            error: Some(frames::word(failure.kind).to_owned()),
            message: Some(failure.message),
            retry_after_ms: failure
                .retry_after
                .map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
            ..Said::default()
        }),
    }
}

/// Says something to the driver. If nobody is there any more, there is nothing left to do for this process.
fn say(said: &Said<'_>) {
    let Some(driver) = DRIVER.get() else { return };
    let mut driver = driver.lock().unwrap_or_else(PoisonError::into_inner);
    if driver.write_all(&frames::frame(said)).is_err() {
        process::exit(0);
    }
}

/// What a plugin logs.
unsafe extern "C" fn log_line(_: *mut c_void, level: i32, text: *const u8, len: usize) {
    let bytes = match len {
        0 => &[][..],
        // SAFETY: the plugin promises that many bytes for the time of the call. No line is that long.
        len => unsafe { slice::from_raw_parts(text, len.min(16 << 10)) },
    };
    say(&Said {
        log: Some(log::word(level).to_owned()),
        text: Some(String::from_utf8_lossy(bytes).into_owned()),
        ..Said::default()
    });
}
