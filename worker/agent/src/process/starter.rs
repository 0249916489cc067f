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
use libc::cpu_set_t;
use tokio::sync::mpsc;
use tracing::Span;

use super::{
    not_started::{plain, reason},
    standby::Keeper,
};
use crate::{
    Error,
    inbox::InboxMessage,
    numa::{Binder, Bound, bind},
    open_files::restore_open_files,
    scheduling, spans,
};

/// A process to start.
#[derive(Debug)]
pub(crate) struct ToStart {
    pub(crate) process: Process,
    pub(crate) command: Vec<String>,
    /// Variables in addition to those of the agent.
    pub(crate) variables: BTreeMap<String, String>,
    /// The working directory, if it exists.
    pub(crate) directory: Option<String>,
    /// How many standby interpreters are kept for such processes.
    pub(crate) standbys: u32,
    /// Its visible device is not that of other processes.
    pub(crate) own_device: bool,
    /// The CPUs that it may use, if they are not those of the agent.
    pub(crate) bound: Option<Bound>,
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
    standby: Option<Keeper>,
}

/// The capacity of an output pipe, so that a burst of lines does not block a worker.
const PIPE_CAPACITY: libc::c_int = 256 * 1024;

impl Starter {
    /// Starts the thread. Results go to the inbox as [`InboxMessage::Started`]. `standby` keeps standby interpreters.
    pub(crate) fn new(
        inbox: mpsc::Sender<InboxMessage>,
        standby: Option<Keeper>,
    ) -> Result<Self, Error> {
        let (requests, todo) = std_mpsc::channel::<ToStart>();
        let span = Span::current();
        let keeper = standby.clone();
        thread::Builder::new()
            .name("starter".into())
            .spawn(move || {
                let _in_host = span.entered();
                scheduling::use_default_time_slices();
                let mut binder = Binder::new();
                for request in todo {
                    let process = request.process;
                    let cpus = request.bound.as_ref();
                    let cpus = cpus.and_then(|bound| binder.cpus(bound));
                    let result = start_in_the_fastest_way(&request, cpus.as_ref(), keeper.as_ref());
                    if inbox
                        .blocking_send(InboxMessage::Started { process, result })
                        .is_err()
                    {
                        return;
                    }
                }
            })
            .map_err(Error::system("start a thread"))?;
        Ok(Self { requests, standby })
    }

    /// Ends standby interpreters: no process is restarted any more.
    pub(crate) fn end_standby(&self) {
        if let Some(standby) = &self.standby {
            standby.end();
        }
    }

    /// As [`Starter::end_standby`], and waits until no standby interpreter can be started.
    pub(crate) fn finish_standby(&self) {
        if let Some(standby) = &self.standby {
            standby.finish();
        }
    }

    /// Requests the start of a process.
    pub(crate) fn start(&self, request: ToStart) {
        if self.requests.send(request).is_err() {
            tracing::error!("the thread that starts processes is gone");
        }
    }
}

/// Starts a process by a standby interpreter, else in the ordinary way.
fn start_in_the_fastest_way(
    request: &ToStart,
    cpus: Option<&cpu_set_t>,
    keeper: Option<&Keeper>,
) -> Result<Started, String> {
    let keeper = keeper.filter(|_| request.standbys > 0);
    let by_standby = keeper.and_then(|keeper| keeper.start_worker(request, cpus));
    let _of_worker = spans::worker(request.process).entered();
    let started = match by_standby {
        Some(Ok(started)) => {
            tracing::debug!("a standby interpreter becomes the worker");
            Ok(started)
        }
        Some(Err(error)) => {
            tracing::debug!(%error, "no standby interpreter becomes the worker");
            start(request, cpus)
        }
        None => start(request, cpus),
    };
    if let Some(keeper) = keeper
        && started.is_ok()
    {
        keeper.worker_started(request);
    }
    started
}

fn start(request: &ToStart, cpus: Option<&cpu_set_t>) -> Result<Started, String> {
    let Some((program, arguments)) = request.command.split_first() else {
        return Err("the command is empty".into());
    };
    let path = request.variables.get("PATH").map(OsString::from);
    let path = path.or_else(|| std::env::var_os("PATH"));
    let directory = usable(request.directory.as_deref());
    let mut command = command(program, arguments, &request.variables, directory);
    let pipes = output_pipe().and_then(|stdout| Ok((stdout, output_pipe()?)));
    let ((stdout, child_stdout), (stderr, child_stderr)) =
        pipes.map_err(|error| format!("{program}: no pipes for its output: {}", plain(&error)))?;
    command.stdout(child_stdout).stderr(child_stderr);
    if let Some(cpus) = cpus.copied() {
        // SAFETY: between fork and exec the closure makes a system call with a live local.
        unsafe {
            command.pre_exec(move || {
                // An agent that has lost one of the CPUs starts its workers unbound.
                let _ = bind(0, &cpus);
                Ok(())
            });
        }
    }
    let spawned = command.spawn();
    // It holds the ends of the child.
    drop(command);
    let mut child = spawned.map_err(|error| reason(program, directory, path.as_deref(), &error))?;
    let pid = child.id();
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

/// A command that starts a process as a worker is started: without stdin, in a session of its own, and ended with the calling
/// thread. Its output is not set.
pub(super) fn command(
    program: &str,
    arguments: &[String],
    variables: &BTreeMap<String, String>,
    directory: Option<&str>,
) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).envs(variables).stdin(Stdio::null());
    if let Some(directory) = usable(directory) {
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
    command
}

/// The working directory, if it exists.
fn usable(directory: Option<&str>) -> Option<&str> {
    directory.filter(|name| Path::new(name).is_dir())
}

/// A pipe for output: our end, and that of the process.
pub(super) fn output_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = io::pipe()?;
    let ours = OwnedFd::from(ours);
    // SAFETY: an open descriptor and an integer. A refusal leaves the pipe as it is.
    unsafe { libc::fcntl(ours.as_raw_fd(), libc::F_SETPIPE_SZ, PIPE_CAPACITY) };
    Ok((ours, theirs.into()))
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
