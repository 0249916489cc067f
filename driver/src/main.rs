//! The binary `elasticrun`: reads its command line and does what that asks for.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use elasticrun::{
    cli::{self, Invocation},
    exit,
};

fn main() -> ExitCode {
    match cli::parse(std::env::args_os().skip(1), std::env::vars_os()) {
        Ok(Invocation::Print(text)) => print(&text),
        Ok(Invocation::Run(_) | Invocation::Agent(_)) => {
            complain("this build can check and show settings only: --dry-run, config show")
        }
        Err(error) => complain(&format!("{error} [{}]", error.code())),
    }
}

/// A reader that went away (`elasticrun --help | head -1`) is no failure.
fn print(text: &str) -> ExitCode {
    let mut stdout = io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            complain(&format!("stdout: {error}"))
        }
        _ => ExitCode::from(exit::SUCCESS),
    }
}

fn complain(line: &str) -> ExitCode {
    // Nobody is left to tell if stderr is gone.
    let _ = writeln!(io::stderr(), "elasticrun: {line}");
    ExitCode::from(exit::USAGE)
}
