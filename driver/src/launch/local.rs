//! An agent on this machine: the same program, in its own session.

use std::process::Stdio;

use tokio::process::Command;

use super::program::{self, Program};

/// The command of a local agent. It runs the program of this driver, even if its file was replaced.
///
/// The agent has its own session, so that a Ctrl-C on the terminal reaches only the driver, which then ends its agents in
/// order.
pub(super) fn command(program: &Program) -> Command {
    let mut command = Command::new(program::RUNNING);
    command
        .arg0(program.path())
        .arg("agent")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    // SAFETY: only system calls are made between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::setsid();
            elasticrun_agent::restore_open_files();
            Ok(())
        });
    }
    command
}
