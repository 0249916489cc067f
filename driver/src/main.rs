//! The binary `elasticrun`: parses its command line and runs the command.

#![forbid(unsafe_code)]

use std::{
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

use elasticrun::{
    admin_socket,
    begin::{self, Begin},
    cli::{self, Invocation, RunRequest},
    config, exit, host_agent, join_token, parameter_servers, plugins, python_exec, resume,
    signals::{Signals, StopSignals},
    spark_exec, start,
    supervise::{self, Starting},
    task_service, torchrun_node,
};

fn main() -> ExitCode {
    match cli::parse(std::env::args_os().skip(1), std::env::vars_os()) {
        Ok(Invocation::Print(text)) => print(&text),
        Ok(Invocation::Run(request)) => ExitCode::from(run(*request)),
        Ok(Invocation::Plugin(request)) => exit_code(plugins::run(&request)),
        Ok(Invocation::Hosts(request)) => exit_code(plugins::hosts(&request)),
        Ok(Invocation::PluginHost(path)) => plugin_host(&path),
        Ok(Invocation::Scheduler) => exit_code(parameter_servers::serve().map(|()| exit::SUCCESS)),
        Ok(Invocation::Data(words)) => ExitCode::from(python_exec::data(words)),
        Ok(Invocation::Agent(mode)) => ExitCode::from(host_agent::run(mode)),
        Ok(Invocation::Torchrun(node)) => exit_code(torchrun_node::run(node, run)),
        Ok(Invocation::Spark(request)) => ExitCode::from(spark_exec::run(&request)),
        Ok(Invocation::TaskService) => ExitCode::from(task_service::run()),
        Ok(Invocation::Drain(drain)) => {
            match admin_socket::request(drain.run.as_deref(), &drain.request) {
                Ok(line) => print(&format!("{line}\n")),
                Err(error) => fail(&format!("{error:#}")),
            }
        }
        Ok(Invocation::Resume(request)) => {
            ExitCode::from(resume(&request, None, &StopSignals::default()))
        }
        Ok(Invocation::Token(lifetime)) => match join_token::random(lifetime) {
            Ok(token) => print(&format!("{}\n", *token.expose())),
            Err(error) => fail(&format!("{error:#}")),
        },
        Err(error) => fail(&format!("{error} [{}]", error.code())),
    }
}

fn plugin_host(path: &Path) -> ExitCode {
    match elasticrun_plugin_loader::serve(path) {
        Ok(code) => ExitCode::from(code),
        Err(error) => fail(&format!("__plugin-host: {error}")),
    }
}

/// Runs a job to its end and returns the exit code.
fn run(request: RunRequest) -> u8 {
    if let Err(error) = config::check_command(&request.settings) {
        return fail_with(exit::USAGE, &format!("{error} [{}]", error.code()));
    }
    for note in &request.notes {
        let _ = writeln!(io::stderr(), "elasticrun: {note}");
    }
    let words = request.config.words();
    let begin = |run_id, settings| Begin::New {
        settings: Box::new(settings),
        words,
        run_id,
    };
    let stop = request.stop_signals;
    code(match request.settings.supervise {
        false => drive(begin(request.run_id, request.settings), None, &stop),
        true => supervised(request.run_id, request.settings, begin, &stop),
    })
}

/// Runs a driver in a process of its own, and resumes its run when it dies.
fn supervised(
    run: Option<String>,
    settings: config::Settings,
    begin: impl FnOnce(Option<String>, config::Settings) -> Begin,
    stop: &StopSignals,
) -> anyhow::Result<u8> {
    let run = match run {
        Some(run) => run,
        None => begin::new_run_id()?,
    };
    let request = resume::ResumeRequest {
        run: run.clone(),
        journal: settings.journal.clone(),
        standby: None,
    };
    let first = |starting| code(drive(begin(Some(run), settings), Some(starting), stop));
    Ok(supervise::supervise(stop, first, |starting| {
        resume(&request, Some(starting), stop)
    })?)
}

/// Runs a driver to its end. `starting` is of a driver below a supervisor.
fn drive(begin: Begin, starting: Option<Starting>, stop: &StopSignals) -> anyhow::Result<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime?;
    let result = runtime.block_on(async {
        // First of all: a signal during the start must end the job in order.
        let signals = Signals::listen(stop)?;
        drop(starting);
        start::run(begin, signals).await
    });
    // Does not wait for threads that block on a plugin or a terminal.
    runtime.shutdown_background();
    result
}

/// Continues a run. `starting` is of a driver below a supervisor, which tries again after [`exit::NOT_RESUMED`].
fn resume(request: &resume::ResumeRequest, starting: Option<Starting>, stop: &StopSignals) -> u8 {
    let not_now = match &starting {
        Some(_) => exit::NOT_RESUMED,
        None => exit::JOURNAL,
    };
    let failed = |error: &resume::Error| match error.may_be_over_soon() {
        true => fail_with(not_now, &error.to_string()),
        false => fail_with(exit::JOURNAL, &error.to_string()),
    };
    let say = |line: &str| {
        let _ = writeln!(io::stderr(), "elasticrun: {line}");
    };
    match resume::find(request, &say) {
        Ok(resume::Found::Unfinished(run)) => {
            let begin = match run.begin(starting.is_some()) {
                Ok(begin) => begin,
                Err(error) => return failed(&error),
            };
            match drive(begin, starting, stop) {
                Ok(code) => code,
                // Its port, its directory or its disk.
                Err(error) => fail_with(not_now, &format!("run {}: {error:#}", request.run)),
            }
        }
        Ok(resume::Found::Ended(outcome)) => {
            for line in resume::describe(&request.run, &outcome) {
                let _ = writeln!(io::stderr(), "elasticrun: {line}");
            }
            outcome.code
        }
        Err(error) => failed(&error),
    }
}

fn exit_code(result: anyhow::Result<u8>) -> ExitCode {
    ExitCode::from(code(result))
}

/// The exit code of a result, whose error is printed.
fn code(result: anyhow::Result<u8>) -> u8 {
    match result {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => exit::SUCCESS,
        Err(error) => fail_with(exit::USAGE, &format!("{error:#}")),
    }
}

/// Whether the reader of the output has closed it, which is no failure.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<io::Error>();
    io.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Prints text. A closed reader (`elasticrun --help | head -1`) is no failure.
fn print(text: &str) -> ExitCode {
    let mut stdout = io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            fail(&format!("stdout: {error}"))
        }
        _ => ExitCode::from(exit::SUCCESS),
    }
}

fn fail(line: &str) -> ExitCode {
    ExitCode::from(fail_with(exit::USAGE, line))
}

fn fail_with(code: u8, line: &str) -> u8 {
    // If stderr is closed, there is no other place for the message.
    let _ = writeln!(io::stderr(), "elasticrun: {line}");
    code
}
