//! Parameter servers of a host.

use elasticrun_core::agent::{Command, Event, Signal};
use elasticrun_protocol::{AgentCommand, AgentReport, DriverEpoch, Process, control::Exit};

use crate::bench::*;

fn server(number: u32) -> Process {
    Process::server(DriverEpoch(1), number)
}

fn told(bench: &mut Bench, number: u64, run: &[u32]) -> Vec<Command> {
    let run = run.iter().map(|number| server(*number)).collect();
    bench.command(AgentCommand::Servers { number, run })
}

fn exits(bench: &mut Bench, number: u32, exit: Exit) -> Vec<Command> {
    let (process, tail) = (server(number), Vec::new());
    bench.event(Event::Exited {
        process,
        exit,
        tail,
    })
}

fn start(number: u32) -> Command {
    let process = server(number);
    Command::StartServer { process }
}

fn signal(number: u32, signal: Signal) -> Command {
    let process = server(number);
    Command::Signal { process, signal }
}

fn exited(number: u32, exit: Exit, stopped: bool) -> Command {
    let (process, tail) = (server(number), Vec::new());
    Command::AgentReport(AgentReport::ServerExited {
        process,
        exit,
        tail,
        stopped,
    })
}

#[test]
fn exactly_those_of_the_command_run() {
    let mut bench = Bench::new();
    assert_eq!(told(&mut bench, 1, &[0, 1]), [start(0), start(1)]);
    assert_eq!(
        told(&mut bench, 2, &[1, 2]),
        [start(2), signal(0, Signal::Terminate)]
    );
    assert_eq!(told(&mut bench, 3, &[1, 2]), [], "it ends already");
    let exit = Exit::Signal(15);
    assert_eq!(exits(&mut bench, 0, exit.clone()), [exited(0, exit, true)]);
}

#[test]
fn a_server_is_started_once() {
    let mut bench = Bench::new();
    told(&mut bench, 1, &[0]);
    exits(&mut bench, 0, Exit::Code(1));
    assert_eq!(
        told(&mut bench, 2, &[0]),
        [],
        "the driver does not know its end yet"
    );
    assert_eq!(told(&mut bench, 1, &[7]), [], "an older command");
}

#[test]
fn a_server_that_does_not_end_is_killed() {
    let mut bench = Bench::new();
    told(&mut bench, 1, &[0]);
    told(&mut bench, 2, &[]);
    let commands = bench.pass(seconds(60), true);
    assert!(commands.contains(&signal(0, Signal::Kill)), "{commands:?}");
}

#[test]
fn an_agent_that_ends_waits_for_its_servers() {
    let mut bench = Bench::new();
    told(&mut bench, 1, &[0]);
    let commands = bench.command(AgentCommand::Shutdown);
    assert_eq!(commands, [signal(0, Signal::Terminate)]);
    let commands = exits(&mut bench, 0, Exit::Code(0));
    assert!(
        matches!(commands.last(), Some(Command::Exit { .. })),
        "{commands:?}"
    );
}
