//! `elasticrun agent`: runs the agent of a host in this process.

use std::{
    io::{self, Write},
    time::Duration,
};

use elasticrun_agent::{AgentOptions, Ended, JoinToken, Launch, read_token_file};
use elasticrun_plugin_sdk::text::one_line_within;
use nix::fcntl::{FcntlArg, OFlag, fcntl};

use crate::{
    cli::{AgentStart, JoinRequest},
    config::{LogFormat, LogLevel, Setting as _, SlotsPerHost},
    devices, exit, logging,
};

/// The length limit of the line that says why an agent ended, in characters.
const MAX_CHARS: usize = 4096;

/// Runs the agent until its end and returns the exit code.
pub fn run(mode: AgentStart) -> u8 {
    // A launcher on this host executes /proc/self/exe, and the kernel takes the name of the process from that.
    if let Err(error) = nix::sys::prctl::set_name(c"elasticrun") {
        tracing::debug!(%error, "cannot set the name of the process");
    }
    let (mut level, mut format) = (LogLevel::Warn, LogFormat::Text);
    let mut with_job_code = false;
    let options = match mode {
        AgentStart::Launched => {
            let launch = Launch::read(&mut io::stdin().lock()).map_err(|error| error.to_string());
            // The driver reads the records, and its log has them.
            if let Some(asked) = launch
                .as_ref()
                .ok()
                .and_then(|launch| launch.log_level.as_deref())
            {
                format = LogFormat::Json;
                level = LogLevel::read(&[asked.to_owned()]).unwrap_or(level);
                do_not_wait_for_readers();
            }
            launch.map(AgentOptions::launched)
        }
        AgentStart::Join(request) => {
            (level, format) = (request.log_level, request.log_format);
            with_job_code = request.with_job_code;
            joining(&request)
        }
    };
    logging::start_agent(level, format);
    let one_run = options.as_ref().is_ok_and(|options| options.one_run);
    match options.and_then(serve) {
        Ok(Ended::Orphaned) if one_run => {
            let _ = writeln!(io::stderr(), "elasticrun: the driver of this job is gone");
            exit::WORKER_FAILED
        }
        Ok(Ended::ShutDown { job_code }) if with_job_code => job_code.unwrap_or(exit::SUCCESS),
        Ok(_) => exit::SUCCESS,
        Err(why) => {
            // It may have words of a peer that has proved nothing.
            let _ = writeln!(
                io::stderr(),
                "elasticrun: {}",
                one_line_within(&why, MAX_CHARS)
            );
            exit::USAGE
        }
    }
}

/// A driver that stands still reads no records. They are lost then, since the agent must not stand still with it.
fn do_not_wait_for_readers() {
    let stderr = io::stderr();
    let flags = fcntl(&stderr, FcntlArg::F_GETFL).map(OFlag::from_bits_truncate);
    let set = flags.and_then(|flags| fcntl(&stderr, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK)));
    if let Err(error) = set {
        tracing::debug!(%error, "the log may hold up this agent");
    }
}

/// Runs an agent with these options until its end.
pub(crate) fn serve(mut options: AgentOptions) -> Result<Ended, String> {
    elasticrun_agent::raise_open_files();
    let given_here = options.self_registered && options.slots > 0;
    options.detected_slots = if given_here {
        Some(options.slots)
    } else {
        devices::gpus()
    };
    if options.slots == 0 {
        options.slots = options.detected_slots.unwrap_or(1);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| format!("cannot start: {error}"))?;
    let ended = runtime.block_on(elasticrun_agent::run(options));
    runtime.shutdown_timeout(Duration::from_millis(100));
    ended.map_err(|error| error.to_string())
}

fn joining(request: &JoinRequest) -> Result<AgentOptions, String> {
    // A mistake is told at once.
    read_token_file(&request.token_file).map_err(|error| error.to_string())?;
    let token = JoinToken::File(request.token_file.clone());
    let slots = match request.slots {
        SlotsPerHost::Fixed(slots) => slots,
        SlotsPerHost::Auto => 0,
    };
    let drivers = [&request.driver].into_iter().chain(&request.others);
    let drivers = drivers.map(ToString::to_string).collect();
    let options = AgentOptions::joining(drivers, token, slots, request.host.clone());
    Ok(AgentOptions {
        network_interfaces: request.network_interfaces.0.clone(),
        driver_file: request.driver_file.clone(),
        one_run: request.one_run,
        stop_signals: request
            .stop_signals
            .to_handle()
            .map_err(|error| format!("the actions of signals are unknown: {error}"))?,
        signal_notice: request.signal_notice,
        ..options
    })
}
