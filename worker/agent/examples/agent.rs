//! An agent as a process of its own, for the tests of this crate: settings on stdin, as a launcher sends them.
//!
//! `ELASTICRUN_TEST_ITSELF=1` makes it one that came by itself; `ELASTICRUN_TEST_PATIENCE_MS` sets how long a
//! worker may be blocked by its output, `ELASTICRUN_TEST_CONNECT_MS` how long to try to reach the driver.

use std::{env, io::stdin, process::ExitCode, time::Duration};

use elasticrun_agent::{AgentOptions, Launch};

fn millis(name: &str) -> Option<Duration> {
    let number = env::var(name).ok()?.parse().ok()?;
    Some(Duration::from_millis(number))
}

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_max_level(tracing::Level::DEBUG)
        .init();
    let launch = match Launch::read(&mut stdin().lock()) {
        Ok(launch) => launch,
        Err(error) => {
            eprintln!("elasticrun agent: {error}");
            return ExitCode::from(2);
        }
    };
    let mut options = AgentOptions::launched(launch);
    options.itself = env::var_os("ELASTICRUN_TEST_ITSELF").is_some();
    options.output_patience =
        millis("ELASTICRUN_TEST_PATIENCE_MS").unwrap_or(options.output_patience);
    options.connect_timeout =
        millis("ELASTICRUN_TEST_CONNECT_MS").unwrap_or(options.connect_timeout);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    match runtime.block_on(elasticrun_agent::run(options)) {
        Ok(ended) => {
            eprintln!("ended: {ended:?}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("elasticrun agent: {error}");
            ExitCode::FAILURE
        }
    }
}
