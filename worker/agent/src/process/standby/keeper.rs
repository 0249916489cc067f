//! The handle of the standby interpreters of a host.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::Instant,
};

use elasticrun_protocol::control::{Preload, Setup};
use libc::cpu_set_t;
use nix::sys::eventfd::{EfdFlags, EventFd};
use tracing::Span;

use super::{
    error::Error,
    keeping::Keeping,
    python_command::PythonCommand,
    stock::{Stock, Wanted},
    template::{Template, own_variables},
};
use crate::process::starter::{Started, ToStart};

/// The handle of the standby interpreters of this host. Its drop ends them.
#[derive(Clone, Debug)]
pub(crate) struct Keeper(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    stock: Arc<Stock>,
    wakeup: Arc<EventFd>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Keeper {
    /// The keeper of a job. None if the job has no standby interpreters.
    pub(crate) fn of_job(setup: &Setup, run_directory: &Path) -> Option<Self> {
        let preload = setup.preload.clone()?;
        if PythonCommand::parse(&setup.command).is_none() {
            tracing::warn!(
                "--preload has no effect: the command is not python [OPTIONS] SCRIPT, or has options that it cannot repeat"
            );
            return None;
        }
        match Self::start(run_directory.to_owned(), preload) {
            Ok(keeper) => Some(keeper),
            Err(error) => {
                tracing::warn!(%error, "no standby interpreters");
                None
            }
        }
    }

    /// Starts the thread. The Python files are written into `run_directory`.
    fn start(run_directory: PathBuf, preload: Preload) -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let wakeup = Arc::new(EventFd::from_flags(flags)?);
        let stock = Arc::new(Stock::default());
        let keeping = Keeping::new(
            Arc::clone(&stock),
            Arc::clone(&wakeup),
            run_directory,
            preload,
        );
        let span = Span::current();
        let run = move || span.in_scope(|| keeping.run());
        let thread = thread::Builder::new().name("standby".into()).spawn(run)?;
        Ok(Self(Arc::new(Inner {
            stock,
            wakeup,
            thread: Mutex::new(Some(thread)),
        })))
    }

    /// Starts a worker by an interpreter: one that waits, else one that is forked now. None if there is no server for it. The worker
    /// is bound to `cpus`.
    pub(crate) fn start_worker(
        &self,
        request: &ToStart,
        cpus: Option<&cpu_set_t>,
    ) -> Option<Result<Started, Error>> {
        let template = Template::of_worker(request)?;
        let (waiting, server) = {
            let mut state = self.0.stock.lock();
            if !state
                .wanted
                .as_ref()
                .is_some_and(|wanted| wanted.template == template)
            {
                return None;
            }
            (state.interpreters.pop(), state.server.clone())
        };
        let variables = own_variables(request);
        if let Some(started) = waiting.map(|waiting| waiting.start(&variables, cpus)) {
            match started {
                Ok(started) => return Some(Ok(started)),
                Err(error) => tracing::debug!(%error, "a standby interpreter is not used"),
            }
        }
        let server = server?;
        let started = server
            .fork()
            .and_then(|forked| forked.start(&variables, cpus));
        if started.is_err() {
            // The thread starts another one.
            server.kill();
        }
        Some(started)
    }

    /// Records that a worker has started, so that interpreters are kept for the next one.
    pub(crate) fn worker_started(&self, request: &ToStart) {
        let Some(template) = Template::of_worker(request) else {
            return;
        };
        let mut state = self.0.stock.lock();
        let is_same = |wanted: &Wanted| wanted.template == template;
        if !state.wanted.as_ref().is_some_and(is_same) {
            state.clear();
        }
        state.wanted = Some(Wanted {
            template,
            count: request.standbys as usize,
            last_start: Instant::now(),
        });
        drop(state);
        self.0.wake();
    }

    /// Ends all interpreters that are not workers, and their server. No other is started.
    pub(crate) fn end(&self) {
        self.0.end();
    }

    /// Ends all, and waits until no process can be started any more.
    pub(crate) fn finish(&self) {
        self.end();
        let thread = self
            .0
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread {
            // A panic of the thread has ended it as well.
            let _ = thread.join();
        }
    }
}

impl Inner {
    fn end(&self) {
        let mut state = self.stock.lock();
        state.is_over = true;
        state.clear();
        drop(state);
        self.wake();
    }

    fn wake(&self) {
        // It fails only if the thread has been woken often and did not run yet.
        let _ = self.wakeup.write(1);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.end();
    }
}
