//! Starts processes on one thread that lives as long as the agent.
//!
//! The kernel sends a child's parent-death signal when the *thread* that started it ends, so that thread must outlive
//! all workers. It is not the loop's thread, since a start takes about a millisecond.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::process::CommandExt,
    },
    path::Path,
    process::{Command, Stdio},
    sync::mpsc as std_mpsc,
    thread,
};

use elasticrun_protocol::Process;
use elasticrun_shm::pidfd::Pidfd;
use tokio::sync::mpsc;
use tracing::Span;

use super::not_started::{plain, reason};
use crate::{Error, inbox::InboxMessage, open_files::restore_open_files, scheduling};

/// A process to start.
#[derive(Debug)]
pub(crate) struct ToStart {
    pub(crate) process: Process,
    pub(crate) command: Vec<String>,
    /// Variables in addition to those of the agent.
    pub(crate) variables: BTreeMap<String, String>,
    /// The working directory, if it exists.
    pub(crate) directory: Option<String>,
}

/// A running process, the leader of its own session and process group.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) pid: u32,
    pub(crate) pidfd: Pidfd,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
}

/// The handle of the starter thread. The thread ends when this is dropped, and the processes that it started are killed.
#[derive(Debug)]
pub(crate) struct Starter {
    requests: std_mpsc::Sender<ToStart>,
}

/// The capacity of an output pipe, so that a burst of lines does not block a worker.
const PIPE_CAPACITY: libc::c_int = 256 * 1024;

impl Starter {
    /// Starts the thread. Results go to the inbox as [`InboxMessage::Started`].
    pub(crate) fn new(inbox: mpsc::Sender<InboxMessage>) -> Result<Self, Error> {
        let (requests, todo) = std_mpsc::channel::<ToStart>();
        let span = Span::current();
        thread::Builder::new()
            .name("starter".into())
            .spawn(move || {
                let _in_host = span.entered();
                scheduling::use_default_time_slices();
                for request in todo {
                    let process = request.process;
                    let result = start(request);
                    if inbox
                        .blocking_send(InboxMessage::Started { process, result })
                        .is_err()
                    {
                        return;
                    }
                }
            })
            .map_err(Error::system("start a thread"))?;
        Ok(Self { requests })
    }

    /// Requests the start of a process.
    pub(crate) fn start(&self, request: ToStart) {
        if self.requests.send(request).is_err() {
            tracing::error!("the thread that starts processes is gone");
        }
    }
}

fn start(request: ToStart) -> Result<Started, String> {
    let Some((program, arguments)) = request.command.split_first() else {
        return Err("the command is empty".into());
    };
    let path = request.variables.get("PATH").map(OsString::from);
    let path = path.or_else(|| std::env::var_os("PATH"));
    let mut command = Command::new(program);
    command
        .args(arguments)
        .envs(request.variables)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let directory = request.directory.filter(|name| Path::new(name).is_dir());
    if let Some(directory) = &directory {
        command.current_dir(directory);
    }
    let agent = std::process::id();
    // Before the end of an allocation Slurm sends SIGUSR1 to all processes of a step. The signal is for the agent, and
    // would kill a worker that has no handler for it.
    let in_slurm = std::env::var_os("SLURM_JOB_ID").is_some();
    // SAFETY: between fork and exec the closure makes system calls only, and allocates nothing.
    unsafe {
        command.pre_exec(move || prepare(agent, in_slurm));
    }
    let spawned = command.spawn();
    let mut child = spawned.map_err(|error| {
        let directory = directory.as_deref();
        reason(program, directory, path.as_deref(), &error)
    })?;
    let pid = child.id();
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(format!("{program}: no pipes for its output"));
    };
    let (stdout, stderr) = (OwnedFd::from(stdout), OwnedFd::from(stderr));
    for pipe in [&stdout, &stderr] {
        // SAFETY: an open descriptor and an integer. A refusal leaves the pipe as it is.
        unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETPIPE_SZ, PIPE_CAPACITY) };
    }
    match Pidfd::open(pid) {
        Ok(pidfd) => Ok(Started {
            pid,
            pidfd,
            stdout,
            stderr,
        }),
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(format!("{program}: cannot watch it: {}", plain(&error)))
        }
    }
}

/// Runs in the child before exec: resets the session, the limit of open files, the signals and all descriptors above 2.
fn prepare(agent: u32, in_slurm: bool) -> io::Result<()> {
    restore_open_files();
    // SAFETY: system calls with integers, and pointers to live locals; all may be made after a fork.
    unsafe {
        if libc::setsid() < 0 {
            return Err(io::Error::last_os_error());
        }
        if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
            return Err(io::Error::last_os_error());
        }
        // If the agent died before the call, no signal comes.
        if libc::getppid() as u32 != agent {
            libc::_exit(1);
        }
        for signal in 1..=libc::SIGRTMAX() {
            libc::signal(signal, libc::SIG_DFL);
        }
        if in_slurm {
            libc::signal(libc::SIGUSR1, libc::SIG_IGN);
        }
        // Close descriptors that a launcher of the agent left open. Kernels without the call leave them open.
        libc::syscall(
            libc::SYS_close_range,
            3_u32,
            u32::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        );
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
    Ok(())
}
