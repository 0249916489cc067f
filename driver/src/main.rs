//! The binary `elasticrun`: reads its command line and does what that asks for.

use std::{
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

use elasticrun::{
    cli::{self, Invocation, RunRequest},
    exit, host_agent, operator, plugins, python, spark, start, task_service,
};

fn main() -> ExitCode {
    match cli::parse(std::env::args_os().skip(1), std::env::vars_os()) {
        Ok(Invocation::Print(text)) => print(&text),
        Ok(Invocation::Run(request)) => run(*request),
        Ok(Invocation::Plugin(request)) => end(plugins::run(&request)),
        Ok(Invocation::Hosts(request)) => end(plugins::hosts(&request)),
        Ok(Invocation::PluginHost(path)) => plugin_host(&path),
        Ok(Invocation::Data(words)) => ExitCode::from(python::data(words)),
        Ok(Invocation::Agent(how)) => ExitCode::from(host_agent::run(how)),
        Ok(Invocation::Spark(request)) => ExitCode::from(spark::run(&request)),
        Ok(Invocation::TaskService) => ExitCode::from(task_service::run()),
        Ok(Invocation::Drain(asked)) => match operator::ask(asked.run.as_deref(), &asked.request) {
            Ok(line) => print(&format!("{line}\n")),
            Err(error) => complain(&format!("{error:#}")),
        },
        Err(error) => complain(&format!("{error} [{}]", error.code())),
    }
}

fn plugin_host(path: &Path) -> ExitCode {
    match elasticrun_plugin_loader::serve(path) {
        Ok(code) => ExitCode::from(code),
        Err(error) => complain(&format!("__plugin-host: {error}")),
    }
}

fn run(request: RunRequest) -> ExitCode {
    for note in &request.notes {
        let _ = writeln!(io::stderr(), "elasticrun: {note}");
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let ended = runtime.map_err(Into::into).and_then(|runtime| {
        let ended = runtime.block_on(start::run(request.settings));
        // A thread that waits for a plugin or a terminal holds up no one any more.
        runtime.shutdown_background();
        ended
    });
    end(ended)
}

fn end(ended: anyhow::Result<u8>) -> ExitCode {
    match ended {
        Ok(code) => ExitCode::from(code),
        Err(error) if gone(&error) => ExitCode::from(exit::SUCCESS),
        Err(error) => complain(&format!("{error:#}")),
    }
}

/// The reader of our output went away, which is no failure.
fn gone(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<io::Error>();
    io.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
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
