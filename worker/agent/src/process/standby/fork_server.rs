//! The process that imports modules and forks standby interpreters.

use std::{
    io::{self, BufRead, BufReader},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::process::CommandExt,
    },
    path::Path,
    process::Command,
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};

use elasticrun_protocol::control::Preload;
use elasticrun_shm::{fds, pidfd::Pidfd};
use nix::sys::{
    socket::{AddressFamily, SockFlag, SockType, setsockopt, socketpair, sockopt::ReceiveTimeout},
    time::TimeVal,
};
use tracing::Span;

use super::{error::Error, interpreter::StandbyInterpreter, template::Template};
use crate::process::starter::command;

/// How long a process may take for an answer. The longest work before an answer is two forks.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest answer. The fork server limits the words of its answers.
const MAX_ANSWER: usize = 16 * 1024;

/// What the fork server has reported about its imports.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Imported {
    /// The modules are imported.
    Ready(String),
    /// The server ends because of a module.
    LeaveOut { module: String, why: String },
}

/// A running fork server. Dropping it kills the process.
#[derive(Debug)]
pub(super) struct ForkServer {
    pidfd: Pidfd,
    socket: OwnedFd,
    /// Held from a request to its answer.
    exchange: Mutex<()>,
}

impl ForkServer {
    /// Starts a server on the calling thread, which must outlive it. It then imports what the program imports, except
    /// for the modules to leave out.
    pub(super) fn start(
        file: &Path,
        template: &Template,
        preload: &Preload,
        left_out: &[String],
    ) -> Result<Self, Error> {
        let (socket, child_socket) = pair()?;
        let number = child_socket.as_raw_fd();
        let mut arguments = template.python.options.clone();
        arguments.extend([file.display().to_string(), number.to_string()]);
        arguments.extend(template.python.program.iter().cloned());
        let (program, directory) = (&template.python.interpreter, template.directory.as_deref());
        let mut command = command(program, &arguments, &template.variables, directory);
        // SAFETY: between fork and exec the closure makes a system call with integers only.
        unsafe {
            command.pre_exec(move || match libc::fcntl(number, libc::F_SETFD, 0) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            });
        }
        let server = Self {
            pidfd: spawn(command)?,
            socket,
            exchange: Mutex::new(()),
        };
        let wanted = match preload {
            Preload::Auto => "auto".to_owned(),
            Preload::Modules(names) => names.join(","),
        };
        let agent = std::process::id();
        let settings = format!("{agent}\n{wanted}\n{}", left_out.join(","));
        fds::send_all(&server.socket, settings.as_bytes(), &[])
            .map_err(Error::system("send the settings"))?;
        Ok(server)
    }

    /// The first message of the server, once [`ForkServer::socket`] is readable.
    pub(super) fn imported(&self) -> Result<Imported, Error> {
        let answer = receive(&self.socket, WHO)?;
        let words: Vec<_> = answer.split('\n').collect();
        match words[..] {
            ["ready", modules] => Ok(Imported::Ready(modules.to_owned())),
            ["leave-out", module, why] => Ok(Imported::LeaveOut {
                module: module.to_owned(),
                why: why.to_owned(),
            }),
            ["unfit", why] => Err(Error::Unfit {
                why: why.to_owned(),
            }),
            _ => Err(Error::Unexpected { answer }),
        }
    }

    /// Forks an interpreter.
    pub(super) fn fork(&self) -> Result<StandbyInterpreter, Error> {
        let _exchange = self.exchange.lock().unwrap_or_else(PoisonError::into_inner);
        let (socket, child_socket) = pair()?;
        fds::send_all(&self.socket, b"fork", &[child_socket.as_fd()])
            .map_err(Error::system("ask the fork server"))?;
        drop(child_socket);
        let answer = receive(&self.socket, WHO)?;
        match answer.split_once('\n') {
            Some(("forked", pid)) => match pid.parse() {
                Ok(pid) => StandbyInterpreter::new(pid, socket),
                Err(_) => Err(Error::Unexpected { answer }),
            },
            Some(("unfit", why)) => Err(Error::Unfit {
                why: why.to_owned(),
            }),
            _ => Err(Error::Unexpected { answer }),
        }
    }

    /// Kills the server. Its interpreters live on.
    pub(super) fn kill(&self) {
        // It may have ended.
        let _ = self.pidfd.kill(libc::SIGKILL);
    }

    /// Reaps the server if it has ended. The sweep of orphans may have been first.
    pub(super) fn reap(&self) {
        let _ = self.pidfd.reap();
    }

    /// The socket of the server.
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Readable once the server has ended.
    pub(super) fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

const WHO: &str = "the fork server";

impl Drop for ForkServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Starts a server, whose output is logged.
fn spawn(mut command: Command) -> Result<Pidfd, Error> {
    let (output, child_output) = io::pipe().map_err(Error::system("make a pipe"))?;
    let copy = child_output.try_clone();
    let copy = copy.map_err(Error::system("copy a pipe"))?;
    command.stdout(child_output).stderr(copy);
    let spawned = command.spawn();
    let mut child = spawned.map_err(Error::system("start the fork server"))?;
    // It holds the ends of the child.
    drop(command);
    let watched = Pidfd::open(child.id()).map_err(Error::system("watch the fork server"));
    let pidfd = watched.and_then(|pidfd| log_output(output).map(|()| pidfd));
    if pidfd.is_err() {
        // It may have ended.
        let _ = child.kill();
        let _ = child.wait();
    }
    pidfd
}

/// The next message of a process.
pub(super) fn receive(socket: &OwnedFd, who: &'static str) -> Result<String, Error> {
    let mut bytes = vec![0; MAX_ANSWER];
    match fds::recv(socket, &mut bytes, &mut Vec::new()) {
        Ok(0) => Err(Error::Silent { who }),
        Ok(count) => Ok(String::from_utf8_lossy(&bytes[..count]).into_owned()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(Error::Silent { who }),
        Err(error) => Err(Error::system("read an answer")(error)),
    }
}

/// A pair of sockets, of which the first is ours. It waits for an answer for a limited time.
fn pair() -> Result<(OwnedFd, OwnedFd), Error> {
    let made = socketpair(
        AddressFamily::Unix,
        SockType::SeqPacket,
        None,
        SockFlag::SOCK_CLOEXEC,
    );
    let (ours, theirs) = made.map_err(|error| Error::system("make sockets")(error.into()))?;
    let timeout = TimeVal::new(ANSWER_TIMEOUT.as_secs() as i64, 0);
    setsockopt(&ours, ReceiveTimeout, &timeout)
        .map_err(|error| Error::system("limit a wait")(error.into()))?;
    Ok((ours, theirs))
}

/// Logs the output of the server, which is that of the modules it imports.
fn log_output(output: io::PipeReader) -> Result<(), Error> {
    let span = Span::current();
    let read = move || {
        let _in_host = span.entered();
        for line in BufReader::new(output).lines() {
            let Ok(line) = line else { return };
            tracing::debug!(line, "output of the fork server");
        }
    };
    thread::Builder::new()
        .name("standby-output".into())
        .spawn(read)
        .map(drop)
        .map_err(Error::system("start a thread"))
}
