//! The thread that keeps standby interpreters: it starts the fork server, and lets it fork ahead.

use std::{os::fd::AsFd, path::PathBuf, sync::Arc, time::Duration};

use elasticrun_protocol::control::Preload;
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::eventfd::EventFd,
};

use super::{
    error::Error,
    fork_server::{ForkServer, Imported},
    sources,
    stock::{State, Stock},
    template::Template,
};

/// How long after the start of a worker nothing is imported or forked ahead, since the workers themselves start.
const QUIET: Duration = Duration::from_secs(1);

/// Servers that are started again, after a module was left out or the server ended.
const MAX_RESTARTS: u32 = 8;

/// What the thread does next.
enum Step {
    End,
    /// Wait for a change, for at most so long.
    Wait(Option<Duration>),
    StartServer(Template),
    Fork(Arc<ForkServer>),
}

/// The state of the thread.
pub(super) struct Keeping {
    stock: Arc<Stock>,
    wakeup: Arc<EventFd>,
    run_directory: PathBuf,
    preload: Preload,
    /// Modules after whose import the server cannot fork.
    left_out: Vec<String>,
    starts_left: u32,
}

impl Keeping {
    pub(super) fn new(
        stock: Arc<Stock>,
        wakeup: Arc<EventFd>,
        run_directory: PathBuf,
        preload: Preload,
    ) -> Self {
        Self {
            stock,
            wakeup,
            run_directory,
            preload,
            left_out: Vec::new(),
            starts_left: MAX_RESTARTS + 1,
        }
    }

    /// Runs until no interpreters are needed any more.
    pub(super) fn run(mut self) {
        loop {
            let step = self.next_step(&self.stock.lock());
            match step {
                Step::End => return,
                Step::Wait(timeout) => self.wait(timeout),
                Step::StartServer(template) => self.start_server(&template),
                Step::Fork(server) => self.fork_ahead(&server),
            }
        }
    }

    fn next_step(&self, state: &State) -> Step {
        if state.is_over {
            return Step::End;
        }
        let Some(wanted) = &state.wanted else {
            return Step::Wait(None);
        };
        let quiet = QUIET.saturating_sub(wanted.last_start.elapsed());
        let missing = state.interpreters.len() < wanted.count;
        match (&state.running, &state.server) {
            (None, _) if self.starts_left == 0 => Step::Wait(None),
            (Some(_), None) => Step::Wait(None),
            (Some(_), Some(_)) if !missing => Step::Wait(None),
            _ if !quiet.is_zero() => Step::Wait(Some(quiet)),
            (Some(_), Some(server)) => Step::Fork(Arc::clone(server)),
            (None, _) => Step::StartServer(wanted.template.clone()),
        }
    }

    /// Waits for a wakeup, for the end of the server, and for its first message.
    fn wait(&mut self, timeout: Option<Duration>) {
        let (running, imports) = {
            let state = self.stock.lock();
            (state.running.clone(), state.server.is_none())
        };
        let mut fds = vec![PollFd::new(self.wakeup.as_fd(), PollFlags::POLLIN)];
        if let Some(server) = &running {
            fds.push(PollFd::new(server.pidfd(), PollFlags::POLLIN));
            if imports {
                fds.push(PollFd::new(server.socket(), PollFlags::POLLIN));
            }
        }
        // A longer time than the call can take is none.
        let timeout = timeout.map(|time| time + Duration::from_millis(1));
        let timeout = timeout.map_or(Ok(PollTimeout::NONE), PollTimeout::try_from);
        if let Err(error) = poll(&mut fds, timeout.unwrap_or(PollTimeout::NONE))
            && error != Errno::EINTR
        {
            tracing::warn!(%error, "cannot wait for the fork server");
            self.stock.lock().is_over = true;
            return;
        }
        let is_ready = |index: usize| {
            let events = fds.get(index).and_then(PollFd::any);
            events.unwrap_or(false)
        };
        let (is_woken, has_ended, has_message) = (is_ready(0), is_ready(1), is_ready(2));
        if is_woken {
            let _ = self.wakeup.read();
        }
        match running {
            Some(server) if has_message => self.on_imported(&server),
            Some(server) if has_ended => self.on_ended(&server),
            _ => {}
        }
    }

    fn start_server(&mut self, template: &Template) {
        self.starts_left -= 1;
        let started = sources::write(&self.run_directory)
            .map_err(Error::system("write the fork server"))
            .and_then(|file| ForkServer::start(&file, template, &self.preload, &self.left_out));
        match started {
            Ok(server) => {
                let mut state = self.stock.lock();
                let wanted = state.wanted.as_ref();
                // Dropping the server kills it.
                if !state.is_over && wanted.is_some_and(|wanted| wanted.template == *template) {
                    state.running = Some(Arc::new(server));
                }
            }
            Err(error) => {
                tracing::warn!(%error, "no standby interpreters");
                self.starts_left = 0;
            }
        }
    }

    fn on_imported(&mut self, server: &Arc<ForkServer>) {
        match server.imported() {
            Ok(Imported::Ready(modules)) => {
                tracing::debug!(modules, "the fork server is ready");
                let mut state = self.stock.lock();
                if state
                    .running
                    .as_ref()
                    .is_some_and(|running| Arc::ptr_eq(running, server))
                {
                    state.server = Some(Arc::clone(server));
                }
            }
            Ok(Imported::LeaveOut { module, why }) => {
                tracing::warn!(module, why, "standby interpreters do without a module");
                self.left_out.push(module);
                self.forget(server);
            }
            Err(Error::Unfit { why }) => {
                tracing::warn!(why, "no standby interpreters");
                self.starts_left = 0;
                self.forget(server);
            }
            Err(error) => {
                tracing::debug!(%error, "the fork server has failed");
                self.forget(server);
            }
        }
    }

    fn on_ended(&self, server: &Arc<ForkServer>) {
        tracing::debug!("the fork server has ended");
        self.forget(server);
    }

    fn forget(&self, server: &Arc<ForkServer>) {
        server.kill();
        server.reap();
        let mut state = self.stock.lock();
        if state
            .running
            .as_ref()
            .is_some_and(|running| Arc::ptr_eq(running, server))
        {
            state.running = None;
            state.server = None;
        }
    }

    fn fork_ahead(&mut self, server: &Arc<ForkServer>) {
        match server.fork() {
            Ok(interpreter) => {
                let mut state = self.stock.lock();
                if state
                    .server
                    .as_ref()
                    .is_some_and(|current| Arc::ptr_eq(current, server))
                {
                    state.interpreters.push(interpreter);
                }
            }
            Err(Error::Unfit { why }) => {
                tracing::warn!(why, "no standby interpreters");
                self.starts_left = 0;
                self.forget(server);
            }
            Err(error) => {
                tracing::debug!(%error, "no interpreter is forked ahead");
                self.forget(server);
            }
        }
    }
}
