//! One run of a command of Slurm: its output, within a time.

use std::{
    io::Read,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use elasticrun_plugin_sdk::PluginError;

/// What a command said.
pub(crate) struct Said {
    pub(crate) output: String,
    /// Its standard error; none if it succeeded.
    pub(crate) failure: Option<String>,
}

/// Runs a command. It may not be there.
///
/// # Errors
/// It cannot be started, or does not end in time, and then is killed.
pub(crate) fn run(words: &[&str], until: Instant) -> Result<Said, PluginError> {
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
    // Both ends of its output tell that it has ended.
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
    Ok(Said {
        output: text(output),
        failure: (!status.success()).then_some(why),
    })
}

fn read(
    source: Option<impl Read + Send + 'static>,
    ended: mpsc::Sender<()>,
) -> thread::JoinHandle<Vec<u8>> {
    /// A million nodes need less.
    const MOST: u64 = 16 << 20;
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(source) = source {
            // What was read before an error is what there is.
            let _ = source.take(MOST).read_to_end(&mut bytes);
        }
        let _ = ended.send(());
        bytes
    })
}

fn kill(child: &mut Child) {
    // It fails if the program has ended in the meantime.
    let _ = child.kill();
    let _ = child.wait();
}

/// The moment when a time is over.
pub(crate) fn after(time: Duration) -> Instant {
    Instant::now() + time
}
