//! Starting processes, on one thread that lives as long as the agent.
//!
//! One thread, because the kernel sends a child's parent-death signal when the *thread* that started it
//! ends, not the process; and a thread apart, because a start takes about a millisecond.

use std::{
    collections::BTreeMap,
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

use crate::{Error, inbox::Note, scheduling};

/// A process to start.
#[derive(Debug)]
pub(crate) struct ToStart {
    pub(crate) process: Process,
    pub(crate) command: Vec<String>,
    /// Beside the agent's own.
    pub(crate) variables: BTreeMap<String, String>,
    /// Used if it exists.
    pub(crate) directory: Option<String>,
}

/// A process that runs, in a session and process group of its own.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) pid: u32,
    pub(crate) pidfd: Pidfd,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
}

/// Asks the thread. It ends when this is dropped, and takes all processes with it.
#[derive(Debug)]
pub(crate) struct Starter {
    orders: std_mpsc::Sender<ToStart>,
}

/// Room in a pipe: a worker that writes a burst goes on.
const PIPE: libc::c_int = 256 * 1024;

impl Starter {
    /// Starts the thread; answers go to the inbox as [`Note::Started`].
    pub(crate) fn new(inbox: mpsc::Sender<Note>) -> Result<Self, Error> {
        let (orders, todo) = std_mpsc::channel::<ToStart>();
        thread::Builder::new()
            .name("starter".into())
            .spawn(move || {
                scheduling::take_turns_as_usual();
                for order in todo {
                    let process = order.process;
                    let result = start(order);
                    if inbox
                        .blocking_send(Note::Started { process, result })
                        .is_err()
                    {
                        return;
                    }
                }
            })
            .map_err(Error::system("start a thread"))?;
        Ok(Self { orders })
    }

    /// Has a process started.
    pub(crate) fn start(&self, order: ToStart) {
        if self.orders.send(order).is_err() {
            tracing::error!("the thread that starts processes is gone");
        }
    }
}

fn start(order: ToStart) -> Result<Started, String> {
    let Some((program, arguments)) = order.command.split_first() else {
        return Err("the command is empty".into());
    };
    let mut command = Command::new(program);
    command
        .args(arguments)
        .envs(order.variables)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(directory) = order.directory.filter(|name| Path::new(name).is_dir()) {
        command.current_dir(directory);
    }
    let agent = std::process::id();
    // Slurm sends the signal before the end of an allocation to all processes of a step. It is for the agent, and would
    // kill a worker that has no handler for it.
    let in_slurm = std::env::var_os("SLURM_JOB_ID").is_some();
    // SAFETY: between fork and exec the closure makes system calls only, and allocates nothing.
    unsafe {
        command.pre_exec(move || prepare(agent, in_slurm));
    }
    let spawned = command.spawn();
    let mut child = spawned.map_err(|error| format!("{program}: {}", plain(&error)))?;
    let pid = child.id();
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(format!("{program}: no pipes for its output"));
    };
    let (stdout, stderr) = (OwnedFd::from(stdout), OwnedFd::from(stderr));
    for pipe in [&stdout, &stderr] {
        // SAFETY: an open descriptor and an integer. A refusal leaves the pipe as it is.
        unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETPIPE_SZ, PIPE) };
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

/// In the child, before the command: nothing of the agent's is left but descriptors 0 to 2.
fn prepare(agent: u32, in_slurm: bool) -> io::Result<()> {
    // SAFETY: system calls with integers, and pointers to live locals; all may be made after a fork.
    unsafe {
        if libc::setsid() < 0 {
            return Err(io::Error::last_os_error());
        }
        if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
            return Err(io::Error::last_os_error());
        }
        // The agent may have died before the call, and then no signal comes.
        if libc::getppid() as u32 != agent {
            libc::_exit(1);
        }
        for signal in 1..=libc::SIGRTMAX() {
            libc::signal(signal, libc::SIG_DFL);
        }
        if in_slurm {
            libc::signal(libc::SIGUSR1, libc::SIG_IGN);
        }
        // What launchers of the agent left open is not the worker's. Without the call it stays open.
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

/// What the system says, without the number.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}
