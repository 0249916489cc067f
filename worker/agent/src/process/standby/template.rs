//! What a worker has in common with the workers of the next group.

use std::collections::BTreeMap;

use super::{super::starter::ToStart, python_command::PythonCommand};
use crate::process::environment::is_of_process;

/// What a standby interpreter must have in common with the worker that it becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Template {
    pub(super) python: PythonCommand,
    /// The variables that do not differ between workers.
    pub(super) variables: BTreeMap<String, String>,
    pub(super) directory: Option<String>,
}

impl Template {
    /// The template of a worker. None if no standby interpreter can take its command over.
    pub(super) fn of_worker(request: &ToStart) -> Option<Self> {
        let variables = request.variables.iter();
        let common = variables.filter(|(name, _)| !is_of_process(name, request.own_device));
        Some(Self {
            python: PythonCommand::parse(&request.command)?,
            variables: common
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
            directory: request.directory.clone(),
        })
    }
}

/// The variables that differ between workers, as a standby interpreter reads them.
pub(super) fn own_variables(request: &ToStart) -> Vec<u8> {
    let variables = request.variables.iter();
    let own = variables.filter(|(name, _)| is_of_process(name, request.own_device));
    let own: Vec<_> = own.map(|(name, value)| format!("{name}={value}")).collect();
    own.join("\0").into_bytes()
}
