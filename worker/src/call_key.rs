//! The key of the call that all workers of a job make (`elasticrun.run` in Python).

use std::{env, io, os::unix::net::UnixStream};

use elasticrun_protocol::{FromWorker, ToWorker, auth::Secret};

use crate::{
    Error,
    agent::{SOCKET, request},
};

/// Asks the agent of this host for the key by which workers fetch the function that they call
/// ([`Secret::call_key`]). This does not make the process a worker.
///
/// # Errors
/// [`Error::Environment`] without an agent; [`Error::AgentLost`] if the agent cannot be reached or
/// does not answer.
pub fn call_key() -> Result<Secret, Error> {
    let socket = env::var_os(SOCKET).ok_or_else(|| Error::Environment {
        name: SOCKET,
        value: String::new(),
    })?;
    let ask = || -> io::Result<ToWorker> {
        let stream = UnixStream::connect(&socket)?;
        let (answer, _) = request(&stream, &FromWorker::AskCallKey)?;
        Ok(answer)
    };
    match ask() {
        Ok(ToWorker::CallKey { key }) => Ok(Secret::from_bytes(key)),
        Ok(ToWorker::Refused { why }) => Err(Error::Refused { why }),
        Ok(_) => Err(Error::Protocol {
            why: "it answered the request for the key of the call with something else".to_owned(),
        }),
        Err(error) => Err(Error::AgentLost {
            why: format!("{}: {error}", socket.display()),
        }),
    }
}
