//! `elasticrun task-service`: runs an agent with one slot under a task of a cluster.

use std::io::{self, Write};

use elasticrun_agent::Ended;
use elasticrun_spark_bridge::{Lifeline, Settings};
use tokio_util::sync::CancellationToken;

use crate::{
    config::{LogFormat, LogLevel},
    exit, host_agent, logging,
};

/// Runs the task service until its end and returns the exit code.
pub fn run() -> u8 {
    logging::start_agent(LogLevel::Warn, LogFormat::Text);
    match serve() {
        Ok(Ended::ShutDown { .. }) => exit::SUCCESS,
        Ok(Ended::Stopped) => exit::stopped_by(libc::SIGTERM),
        Ok(Ended::Orphaned | Ended::Abandoned) => exit::TASK_ABANDONED,
        Err(why) => {
            let _ = writeln!(io::stderr(), "elasticrun: {why}");
            exit::USAGE
        }
    }
}

fn serve() -> Result<Ended, String> {
    let settings = Settings::read(&mut io::stdin().lock()).map_err(|error| error.to_string())?;
    let abandoned = CancellationToken::new();
    Lifeline::tie(&settings.above)
        .and_then(|lifeline| lifeline.watch(abandoned.clone()))
        .map_err(|error| format!("task-service: {error}"))?;
    host_agent::serve(settings.agent(abandoned))
}
