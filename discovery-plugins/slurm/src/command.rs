//! One run of a Slurm command, with a deadline.

use std::{
    io::Read,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use elasticrun_plugin_sdk::PluginError;

/// The output of a command.
pub(crate) struct CommandOutput {
    pub(crate) output: String,
    /// The first line of its standard error. `None` if it succeeded.
    pub(crate) failure: Option<String>,
}

/// Runs a command. Kills it at the deadline.
///
/// # Errors
/// The command cannot be started, as if it is not installed, or does not end in time.
pub(crate) fn run(words: &[&str], until: Instant) -> Result<CommandOutput, PluginError> {
    let failed = |why: String| PluginError::retryable(format!("{} {why}", words[0]));
    let mut child = Command::new(words[0])
        .args(&words[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(format!("cannot be run: {error}; is Slurm in PATH?")))?;
    let (sender, ended) = mpsc::channel();
    let output = read(child.stdout.take(), sender.clone());
    let errors = read(child.stderr.take(), sender);
    let mut is_late = false;
    // The end of both streams is the end of the command.
    for _ in 0..2 {
        let left = until.saturating_duration_since(Instant::now());
        is_late |= ended.recv_timeout(left).is_err();
    }
    if is_late {
        kill(&mut child);
        return Err(failed("has not answered in time and was killed".into()));
    }
    let status = child.wait().map_err(|error| failed(error.to_string()))?;
    let text = |reader: thread::JoinHandle<Vec<u8>>| {
        String::from_utf8_lossy(&reader.join().unwrap_or_default()).into_owned()
    };
    let errors = text(errors);
    let why = errors.lines().map(str::trim).find(|line| !line.is_empty());
    let why = why.unwrap_or("it failed and gave no reason").to_owned();
    Ok(CommandOutput {
        output: text(output),
        failure: (!status.success()).then_some(why),
    })
}

fn read(
    source: Option<impl Read + Send + 'static>,
    ended: mpsc::Sender<()>,
) -> thread::JoinHandle<Vec<u8>> {
    /// Size limit of the output. A million nodes need less.
    const MAX_BYTES: u64 = 16 << 20;
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(source) = source {
            // Bytes before an error count.
            let _ = source.take(MAX_BYTES).read_to_end(&mut bytes);
        }
        let _ = ended.send(());
        bytes
    })
}

fn kill(child: &mut Child) {
    // Fails if the program has ended meanwhile.
    let _ = child.kill();
    let _ = child.wait();
}

/// The time after a duration from now.
pub(crate) fn after(time: Duration) -> Instant {
    Instant::now() + time
}
