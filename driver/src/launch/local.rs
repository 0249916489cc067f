//! An agent on this machine: the same binary, in a session of its own.

use std::{env, io, process::Stdio};

use tokio::process::Command;

/// The command of a local agent.
///
/// It has its own session, so that a Ctrl-C on the terminal reaches the driver alone, which then ends
/// its agents in order.
pub(super) fn command() -> io::Result<Command> {
    let mut command = Command::new(env::current_exe()?);
    command
        .arg("agent")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    // SAFETY: setsid is async-signal-safe, and nothing else runs between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::setsid();
            Ok(())
        });
    }
    Ok(command)
}
