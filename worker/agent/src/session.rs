//! One run of an agent, from its first connection to its end.

use std::time::Duration;

use elasticrun_core::{
    Time,
    agent::{End, Machine},
};
use elasticrun_protocol::{HostId, Round, store::StoreOf};
use elasticrun_termination_notice::{Notices, Sources};
use tokio::sync::mpsc;

use crate::{
    AgentOptions, Ended, Error,
    agent::{Agent, LivenessEvents},
    deferred_free::DeferredFree,
    durable::Durable,
    join::{JoinedRun, coordinator_port, join},
    keys::Keyring,
    last_will::LastWillKeeper,
    link::DriverLink,
    local,
    memory::{KeptCommits, Memories},
    orphans::{self, MarkedProcesses},
    output::Output,
    ports::Ports,
    probe::Prober,
    process::{Keeper, Starter},
    reaper_process::ReaperProcess,
    redial::Redial,
    replica::Replicator,
    spans::Spans,
    stop_signals::StopSignals,
    store::Store,
};

/// How long killed descendants may take to end, at the agent's end.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// Messages of tasks and threads that may wait for the loop.
const INBOX_CAPACITY: usize = 256;

/// One run, from its first connection to its end.
pub(crate) async fn serve(
    options: &AgentOptions,
    host: &HostId,
    spans: Spans,
    run_id: &mut Option<String>,
    mut terminate: StopSignals,
    keyring: &mut Keyring,
    kept: &mut KeptCommits,
) -> Result<Ended, Error> {
    let mut ports = Ports::new();
    let joined = tokio::select! {
        joined = join(options, host, keyring, run_id, kept, &mut ports) => joined?,
        () = terminate.next() => return Ok(Ended::Stopped),
        () = options.abandoned.cancelled() => return Ok(Ended::Abandoned),
    };
    let JoinedRun {
        joined,
        keys,
        dir,
        driver,
        listen,
        memory_address: (address, memory_port),
        passing_on,
        interface,
        mut tasks,
    } = joined;
    if options.run_id.is_none() {
        spans.set_run(&joined.setup.run_id);
    }
    if !dir.is_fresh() {
        // An agent of this run and host was killed together with its reaper process.
        let left = MarkedProcesses::new(&dir.socket()).kill_all();
        if left > 0 {
            tracing::warn!(left, "ended processes of an agent that is gone");
        }
    }
    let reaper = ReaperProcess::start(&dir.socket()).map_err(Error::system("fork a guard"))?;
    let last_will = options.self_registered.then(|| {
        let holder = reaper.will_holder();
        LastWillKeeper::start(keys.clone(), driver, host.clone(), holder, &mut tasks)
    });
    let (inbox_sender, inbox) = mpsc::channel(INBOX_CAPACITY);
    let call_identity = keys.worker.clone();
    local::open(
        &dir.socket(),
        call_identity,
        inbox_sender.clone(),
        &mut tasks,
    )?;
    let clock = joined.clock;
    let deferred_free = DeferredFree::start()?;
    let store_of = StoreOf {
        host: host.clone(),
        instance: joined.setup.instance,
    };
    let setup = joined.setup;
    let notices = Notices::listen(Sources {
        file: setup.notice_file.clone().map(Into::into),
        signal_notice: options.signal_notice.or(setup.signal_notice),
    });
    let mut machine = Machine::new(
        clock.now(),
        joined.epoch,
        setup.clone(),
        coordinator_port(&mut ports),
    );
    machine.registered(Time::ZERO);
    // The end of a task tells its cluster that the connection broke.
    machine.set_adoptable(options.task.is_none());
    machine.keep(kept.processes());
    let memories = Memories::new(std::mem::take(kept), deferred_free.clone(), clock);
    let durable = match &setup.durable {
        Some(durable) => Some(Durable::start(
            &durable.place,
            &setup,
            memories.registry().clone(),
            inbox_sender.clone(),
        )?),
        None => None,
    };
    let standby = Keeper::of_job(&setup, dir.path());
    let mut agent = Agent {
        machine,
        host: host.clone(),
        setup,
        keys: keys.clone(),
        driver,
        address,
        memory_port,
        listen,
        interface,
        ports,
        dir,
        span: spans.host(),
        spans,
        link: Some(DriverLink::new(joined.stream, joined.frames)),
        memories,
        deferred_free,
        durable,
        processes: Default::default(),
        region: None,
        starter: Starter::new(inbox_sender.clone(), standby)?,
        prober: Prober::new(inbox_sender.clone()),
        passing_on,
        replicator: Replicator::new(inbox_sender.clone(), keys.clone()),
        redial: Redial::new(
            options.clone(),
            keys.clone(),
            host.clone(),
            inbox_sender.clone(),
        ),
        gave_up_driver: false,
        output: Output::start(
            keys.clone(),
            options.output_timeout,
            driver,
            host.clone(),
            inbox_sender,
        )?,
        store: Store::start(keys, driver, store_of)?,
        last_will,
        liveness: LivenessEvents::new(),
        inbox,
        notices,
        terminate,
        pending_events: Default::default(),
        clock,
        last_sweep: tokio::time::Instant::now(),
        job_code: None,
        end: None,
        was_abandoned: false,
        abandoned: Box::pin(options.abandoned.clone().cancelled_owned()),
        done: false,
    };
    tracing::info!(%driver, "joined");
    tracing::debug!(
        version = joined.version,
        "protocol version of the connection"
    );
    agent.run().await;
    agent.passing_on.end(Round(u64::MAX));
    let ended = match agent.end {
        _ if agent.was_abandoned => Ended::Abandoned,
        Some(End::ShutDown) => Ended::ShutDown {
            job_code: agent.job_code,
        },
        Some(End::Stopped) => Ended::Stopped,
        Some(End::Orphaned) | None => Ended::Orphaned,
    };
    agent.starter.finish_standby();
    let left = orphans::kill_descendants(Some(reaper.pid()), KILL_TIMEOUT);
    if left > 0 {
        tracing::error!(
            left,
            "processes that the kernel does not let go stay behind"
        );
    }
    if agent.end == Some(End::ShutDown) {
        agent.notices.host_left().await;
    }
    // A driver without a connection to this agent may still take its output.
    let has_driver = !agent.machine.driver_is_gone();
    agent.output.finish(has_driver).await;
    tasks.shutdown().await;
    reaper.dismiss();
    drop(agent.dir);
    drop(agent.link);
    *kept = agent.memories.into_kept();
    Ok(ended)
}
