//! The identity of a worker towards the program whose function it calls (`elasticrun.run` in Python).

use std::{env, io, os::unix::net::UnixStream};

use elasticrun_protocol::{FromWorker, ToWorker, local::WorkerIdentity};

use crate::{
    Error,
    agent::{SOCKET, request},
};

/// Asks the agent of this host for the identity by which workers prove themselves to the program whose function they call.
/// This does not make the process a worker.
///
/// # Errors
/// [`Error::Environment`] without an agent; [`Error::AgentLost`] if the agent cannot be reached or
/// does not answer.
pub fn call_identity() -> Result<WorkerIdentity, Error> {
    let socket = env::var_os(SOCKET).ok_or_else(|| Error::Environment {
        name: SOCKET,
        value: String::new(),
    })?;
    let ask = || -> io::Result<ToWorker> {
        let stream = UnixStream::connect(&socket)?;
        let (answer, _) = request(&stream, &FromWorker::AskCallIdentity)?;
        Ok(answer)
    };
    match ask() {
        Ok(ToWorker::CallIdentity { identity }) => Ok(identity),
        Ok(ToWorker::Refused { why }) => Err(Error::Refused { why }),
        Ok(_) => Err(Error::Protocol {
            why: "it answered the request for the identity of the call with something else"
                .to_owned(),
        }),
        Err(error) => Err(Error::AgentLost {
            why: format!("{}: {error}", socket.display()),
        }),
    }
}
