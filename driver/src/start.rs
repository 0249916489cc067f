//! Builds the driver of a job from its settings, runs it, and reports the outcome.

use std::{process, time::Duration};

use anyhow::Context as _;
use elasticrun_core::{
    self as core, Job,
    lease::{self, Lease},
    results::Outcome,
};
use elasticrun_protocol::control::{Durable, Preload, Replication, ResumeFrom, Setup};
use elasticrun_tls::token::Token;
use tokio::sync::mpsc;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Instrument as _;

use crate::{
    admin_socket,
    agents::Agents,
    begin::{Begin, Identity},
    call_identity,
    clock::Clock,
    config::{self, Launcher as LauncherKind, Settings, Source, launcher_of},
    console::Console,
    control::{self, Port},
    control_port::ControlPort,
    discovery, embedder, exit,
    inputs::Inputs,
    join_token, join_tokens, journal,
    launch::{AgentLog, Launcher},
    logging,
    parameter_servers::{self, Scheduler},
    recording::Recording,
    report::{Reporter, Terminal, signal_text},
    run_loop::{Driver, Ended},
    seed::seed,
    signals::Signals,
    standbys::Standbys,
    store,
};

/// Capacity of the channels of agents and launches to the run loop.
const INPUTS: usize = 4096;

/// Capacity of the channel of admin requests to the run loop.
const ADMIN_REQUESTS: usize = 16;

/// How long standard error may take at the end for the last lines of the driver.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);

/// Runs a job to its end and returns the exit code. `signals` end it in order, also during its start.
///
/// # Errors
/// The driver cannot start: a port, a directory or a file is not usable.
pub async fn run(mut begin: Begin, mut signals: Signals) -> anyhow::Result<u8> {
    let settings = begin.settings().clone();
    elasticrun_agent::raise_open_files();
    let terminal = Terminal::new(!settings.output.quiet, settings.output.log_format)
        .context("cannot start a thread")?;
    logging::start(&settings.output, terminal.clone());
    let (console, threads) = Console::start(&settings.output, terminal.clone())?;
    let identity = begin.identity()?;
    let saved = begin.saved();
    let port = match begin.take_port() {
        Some(port) => port,
        None => ControlPort::bind(&settings, identity.listen)?,
    };
    let address = port.address();
    // Durable before the port opens, so that no agent knows a driver that the journal does not know.
    let (journal, journal_notices) = tokio::select! {
        opened = begin.journal(&identity, address, port.reachable_at()) => opened?,
        // Nothing was started. A disk that does not answer must not hold up the user. A resumed run has agents that are to
        // be told, so it takes the signal once they can be.
        signal = signals.stop(), if saved.is_none() => {
            return Ok(stopped_at_start(&terminal, signal));
        }
    };
    let listener = port.open()?;
    let setup = setup(&settings, &identity);
    // Before the first host: agents start servers and workers, which look for it.
    let scheduler = match &setup.parameter_servers {
        Some(servers) => {
            let variables = &identity.variables;
            Some(Scheduler::start(
                &settings,
                servers,
                variables,
                saved.is_some(),
            )?)
        }
        None => None,
    };
    let Identity {
        run_id,
        epoch,
        trust,
        is_new,
        withheld,
        ..
    } = identity;
    let span = tracing::error_span!("job", run = run_id);
    tracing::debug!(%run_id, %address, "the driver listens");
    if let (true, Some(token), Some(join)) = (is_new, trust.token(), &settings.launch.join) {
        join_token::announce(&token, join, address, &terminal);
    }

    if let Some(fd) = settings.launch.call {
        match call_identity::write(fd, &trust.caller()?) {
            // The caller has read that of an earlier driver, or has not, since that driver was killed before it wrote it.
            Err(error) if saved.is_some() => tracing::debug!(%error, "the caller has an identity"),
            written => written.with_context(|| format!("--call-fd {fd}"))?,
        }
    }
    // An embedder chooses the environment of its driver, and thereby that of the workers.
    if !is_local(&settings) && settings.launch.embedder_fd.is_none() && withheld > 0 {
        terminal.line(&format!(
            "{withheld} variables of this environment are not sent to other hosts; --env NAME sends one"
        ));
    }

    let tasks = TaskTracker::new();
    let stop = CancellationToken::new();
    if let (Some(tokens), Some(join)) = (trust.tokens(), &settings.launch.join) {
        let (join, terminal) = (join.clone(), terminal.clone());
        let renewed = move |token: &Token| join_token::print(token, &join, &terminal);
        let fresh = join_tokens::keep_fresh(tokens.clone(), renewed, stop.clone());
        tasks.spawn(fresh.instrument(span.clone()));
    }
    let (control_in, control) = mpsc::channel(INPUTS);
    let (launches_in, launches) = mpsc::channel(INPUTS);
    let (discovery_in, discovered) = mpsc::channel(16);
    let store = store::start().context("cannot start a thread")?;
    let clock = Clock::start(settings.timeouts.heartbeat);
    let lease = lease_of(&settings);
    let port = Port {
        access: control::Access {
            tls: trust.control_port()?,
            trust: trust.clone(),
            run_id: run_id.clone(),
            refusals: control::Refusals::default(),
        },
        silence: lease.silence(),
        orphan_timeout: settings.timeouts.orphan,
        away_timeout: lease.fence() + lease.keep(),
        clock: clock.clone(),
        control: control_in,
        output: console.clone(),
        outputs: control::Outputs::default(),
        side_connections: control::SideConnections::default(),
        store: store.clone(),
        stop: stop.clone(),
        tasks: tasks.clone(),
    };
    span.in_scope(|| control::serve(listener, port))
        .context("cannot serve the control port")?;
    tokio::task::spawn_blocking(admin_socket::remove_stale);
    // A job without one does not touch the directory of journals, whose disk may not answer.
    if settings.journal == config::Journal::InStateDirectory {
        tokio::task::spawn_blocking(journal::sweep);
    }
    let (admin_in, admin) = mpsc::channel(ADMIN_REQUESTS);
    let socket = admin_socket::serve(&run_id, admin_in.clone(), stop.clone(), &tasks);
    let socket = socket.inspect_err(|error| {
        tracing::warn!("`elasticrun drain` does not work for this job: {error:#}")
    });
    let signals = match settings.launch.embedder_fd {
        None => signals,
        Some(fd) => {
            let listening = (run_id.as_str(), address.port(), &trust);
            let gone = embedder::serve(fd, listening, admin_in, stop.clone(), &tasks).await;
            signals.with_embedder(gone.with_context(|| format!("--parent-fd {fd}"))?)
        }
    };
    let sources = discovery::start(&settings.hosts, discovery_in)?;
    // The last step of the start that can fail is behind: the journal stays.
    if journal.is_some() && saved.is_none() && !settings.supervise {
        terminal.line(&resume_line(
            &run_id,
            &settings.journal,
            settings.timeouts.orphan,
        ));
    }
    let (settings_of_job, seed) = (job_settings(&settings), seed()?);
    let job = match saved {
        None => Job::new(settings_of_job, run_id.clone(), epoch, seed),
        Some(saved) => Job::resume(settings_of_job, run_id.clone(), epoch, seed, saved),
    };
    let mut driver = Driver {
        job,
        setup,
        launcher: Launcher::new(
            settings.launch.clone(),
            trust,
            run_id.clone(),
            address,
            launches_in,
            tasks.clone(),
            AgentLog::new(span.clone(), settings.output.log_level),
        ),
        reporter: Reporter::new(terminal.clone(), settings.output.quiet, run_id),
        console: console.clone(),
        agents: Agents::new(epoch, store.clone()),
        sources,
        requests: admin_socket::Pending::default(),
        store,
        clock,
        round: span.clone(),
        span: span.clone(),
        exits_by: None,
        recording: Recording::new(journal),
        standbys: Standbys::default(),
        scheduler,
    };
    request_short_slices();
    let (ended, mut signals) = driver
        .run(Inputs {
            control,
            launches,
            discovery: discovered,
            admin,
            signals,
            journal: journal_notices,
        })
        .instrument(span)
        .await;
    let outcome = match ended {
        Ended::Job(outcome) => outcome,
        ended @ (Ended::Replaced | Ended::Resigned) => {
            if matches!(ended, Ended::Resigned) {
                driver.resign().await;
            }
            terminal.end_log();
            terminal.flush(FLUSH_TIMEOUT);
            // As if it was killed: agents, launches and the admin socket belong to the other driver.
            process::exit(exit::REPLACED.into());
        }
    };
    drop(socket);
    let sources = std::mem::take(&mut driver.sources);
    let finished = tokio::task::spawn_blocking(move || sources.finish());
    stop.cancel();
    tasks.close();
    console.drain(threads, &tasks, &mut signals).await;
    // `finish` has its own deadline.
    let _ = finished.await;
    let code = code(&outcome);
    driver.end_journal(&outcome, &mut signals).await;
    terminal.end_log();
    driver.reporter.finish(&outcome, code, &driver.job);
    terminal.flush(FLUSH_TIMEOUT);
    Ok(code)
}

/// The line that names a run with a journal, so that its user can find it again.
fn resume_line(run_id: &str, journal: &config::Journal, orphan: Duration) -> String {
    let place = match journal {
        config::Journal::File(path) => format!(" --journal {}", path.display()),
        config::Journal::Etcd(place) => format!(" --journal {place}"),
        config::Journal::InStateDirectory | config::Journal::None => String::new(),
    };
    format!(
        "run {run_id}: if this driver dies, elasticrun resume {run_id}{place} continues the run within {orphan:?} (--orphan-timeout); later it shows the outcome"
    )
}

/// Reports a signal that ends a job before it has begun.
fn stopped_at_start(terminal: &Terminal, signal: i32) -> u8 {
    terminal.end_log();
    terminal.line(&format!("stopped by {}", signal_text(signal)));
    terminal.flush(FLUSH_TIMEOUT);
    exit::stopped_by(signal)
}

/// The exit code of an outcome (docs/errors.md).
pub(crate) fn code(outcome: &Outcome) -> u8 {
    match outcome {
        Outcome::Succeeded => exit::SUCCESS,
        Outcome::WorkerFailed(_) | Outcome::ServersFailed { .. } => exit::WORKER_FAILED,
        Outcome::TimedOut { .. } => exit::TOO_FEW_WORKERS,
        Outcome::ResetLimit { .. } => exit::RESET_LIMIT,
        Outcome::DiscoveryFailed { .. } => exit::DISCOVERY_FAILED,
        Outcome::NoStateLeft | Outcome::NothingToResume { .. } => exit::STATE_LOST,
        Outcome::Stopped { signal } => exit::stopped_by(*signal),
    }
}

/// Whether all hosts are this machine, and no other host can join.
pub(crate) fn is_local(settings: &Settings) -> bool {
    let local = settings.launch.join.is_none()
        && (settings.hosts.fixed()).is_some_and(|hosts| {
            hosts
                .iter()
                .all(|host| launcher_of(settings.launch.launcher, host) == LauncherKind::Local)
        });
    local || settings.launch.launcher == Some(LauncherKind::Local)
}

fn job_settings(settings: &Settings) -> core::Settings {
    let (workers, timeouts, failures) = (&settings.workers, &settings.timeouts, &settings.failures);
    core::Settings {
        elastic: settings.mode == config::Mode::Elastic,
        np: workers.np.get(),
        min_np: workers.min_np.get(),
        max_np: workers.max_np.map(Into::into),
        spares: workers.spares,
        elastic_timeout: timeouts.elastic,
        start_timeout: timeouts.start,
        abort_timeout: timeouts.abort,
        interrupt_timeout: timeouts.interrupt,
        exit_timeout: timeouts.exit,
        fence: lease_of(settings).fence(),
        keep: lease_of(settings).keep(),
        silence: lease_of(settings).silence(),
        // A standard job has only one round.
        lease: match settings.mode {
            config::Mode::Elastic => lease_of(settings).length(),
            config::Mode::Standard => lease::UNLIMITED,
        },
        grace: timeouts.shutdown,
        probe_timeout: timeouts.heartbeat,
        last_call: timeouts.last_call,
        reset_limit: failures.reset_limit,
        max_restarts: failures.max_restarts,
        max_host_failures: failures.max_host_failures.map(Into::into),
        cooldown: failures.cooldown.map_or(core::Cooldown::Forever, |range| {
            core::Cooldown::Range {
                low: range.lo(),
                high: range.hi(),
            }
        }),
        failure_domain: match failures.domain {
            None => core::FailureDomain::Auto,
            Some(config::FailureDomain::Host) => core::FailureDomain::Host,
            Some(config::FailureDomain::Slot) => core::FailureDomain::Slot,
        },
        sources: settings.hosts.sources.len(),
        slots_per_host: match settings.hosts.slots_per_host {
            config::SlotsPerHost::Fixed(slots) => Some(slots),
            config::SlotsPerHost::Auto => None,
        },
        self_registration: settings.launch.launcher == Some(LauncherKind::Agent)
            || settings
                .hosts
                .sources
                .iter()
                .any(|source| matches!(source, Source::Registration)),
        launches_at_once: core::Settings::LAUNCHES_AT_ONCE,
        replicas: settings
            .replication
            .map_or(0, |replication| replication.hosts.get()),
        replica_interval: settings
            .replication
            .map_or(Duration::ZERO, |replication| replication.interval),
        durable: settings.durable.is_some(),
        resume_from: settings
            .durable
            .as_ref()
            .and_then(|durable| match &durable.resume_from {
                config::ResumeFrom::None => None,
                config::ResumeFrom::Latest => Some(ResumeFrom::Latest),
                config::ResumeFrom::Run(run_id) => Some(ResumeFrom::Run(run_id.clone())),
            }),
        restart_mode: match failures.restart_mode {
            config::RestartMode::InProcess => core::RestartMode::InProcess,
            config::RestartMode::Process => core::RestartMode::Process,
            config::RestartMode::Auto => core::RestartMode::Auto,
        },
        servers: (settings.parameter_servers.as_ref()).map_or(0, |servers| servers.servers.get()),
        server_failures: match &settings.parameter_servers {
            // Its values are lost, and no other one is admitted.
            Some(config::ParameterServers { replicas: None, .. }) => 1,
            _ => core::Settings::SERVER_FAILURES,
        },
        size_multiple: settings.workers.size_multiple.get(),
        replica_group_size: match settings.workers.replica_group_size {
            config::ReplicaGroupSize::ONE => core::ReplicaGroupSize::One,
            config::ReplicaGroupSize::Fixed(size) => core::ReplicaGroupSize::Fixed(size.get()),
            config::ReplicaGroupSize::All => core::ReplicaGroupSize::All,
        },
    }
}

fn lease_of(settings: &Settings) -> Lease {
    Lease {
        interval: settings.timeouts.heartbeat_interval,
        timeout: settings.timeouts.heartbeat,
        orphan: settings.timeouts.orphan,
        train: lease::TRAIN,
    }
}

fn setup(settings: &Settings, identity: &Identity) -> Setup {
    Setup {
        run_id: identity.run_id.clone(),
        command: settings.command.clone(),
        env: identity.variables.clone(),
        // Hosts of an embedder have their own directories.
        directory: match settings.launch.embedder_fd {
            None => identity.directory.clone(),
            Some(_) => None,
        },
        heartbeat_interval: settings.timeouts.heartbeat_interval,
        heartbeat_timeout: settings.timeouts.heartbeat,
        orphan_timeout: settings.timeouts.orphan,
        keep_timeout: lease_of(settings).keep(),
        abort_timeout: settings.timeouts.abort,
        grace: settings.timeouts.shutdown,
        // In a standard job no other worker could continue.
        drain_timeout: if settings.mode == config::Mode::Elastic {
            settings.timeouts.drain
        } else {
            Duration::ZERO
        },
        notice_file: settings.launch.notice_file.clone(),
        signal_notice: settings.timeouts.signal_notice,
        // Set for each connection.
        instance: 0,
        groups: settings.mode == config::Mode::Elastic,
        encrypt_data: settings.launch.encrypt_data,
        commit_memory: settings.launch.commit_memory,
        adopted: false,
        durable: settings.durable.as_ref().map(|durable| Durable {
            place: durable.place.clone(),
            interval: durable.interval,
        }),
        replication: settings.replication.map(|replication| Replication {
            interval: replication.interval,
            bandwidth: replication.bandwidth,
        }),
        parameter_servers: parameter_servers::setup(settings, identity),
        preload: match &settings.launch.preload {
            config::Preload::None => None,
            config::Preload::Auto => Some(Preload::Auto),
            config::Preload::Modules(names) => Some(Preload::Modules(names.clone())),
        },
    }
}

/// Requests short scheduler slices for this thread (EEVDF, Linux 6.12), so that the kernel runs it soon after it wakes.
/// Each recovery passes through it while workers may keep all processors busy. Other kernels ignore the request.
fn request_short_slices() {
    elasticrun_agent::use_short_time_slices();
}
