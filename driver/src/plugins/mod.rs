//! `elasticrun plugin ...` and `elasticrun hosts`: inspection of plugins and sources.

mod hosts;
mod inspect;
mod list;
mod new;
mod test;

use std::io::{self, Write};

use crate::{
    cli::{HostsRequest, PluginCommand, PluginRequest},
    discovery,
};

/// Runs `elasticrun plugin ...` and returns the exit code.
///
/// # Errors
/// A plugin cannot be found or loaded, or the output cannot be written.
pub fn run(request: &PluginRequest) -> anyhow::Result<u8> {
    let catalog = || discovery::catalog(&request.directories, request.isolation, &request.allowed);
    let out = &mut io::stdout().lock();
    match &request.command {
        PluginCommand::List => list::list(&mut catalog(), request.json, out),
        PluginCommand::Inspect(name) => inspect::inspect(&mut catalog(), name, request.json, out),
        PluginCommand::Test(spec) => test::test(&mut catalog(), spec, request.json, out),
        PluginCommand::New(new) => new::new(new, out),
    }
}

/// Polls the sources of a job for their hosts.
///
/// # Errors
/// A source that cannot be found or loaded.
pub fn hosts(request: &HostsRequest) -> anyhow::Result<u8> {
    hosts::show(request, &mut io::stdout().lock())
}

/// Writes a line. The error of a closed reader (`| head -1`) ends the command without a message.
fn line(out: &mut impl Write, text: impl std::fmt::Display) -> anyhow::Result<()> {
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}
