//! A request to a member, for what tests need beside the client that they test.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    time::Duration,
};

use serde_json::Value;

/// Posts a request to a gateway without TLS, with the token of a user unless it is empty. Gives the answer with status 200, or an error with what came.
pub(crate) fn post(endpoint: &str, path: &str, token: &str, body: &Value) -> io::Result<Value> {
    let mut stream = TcpStream::connect(endpoint)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let body = body.to_string();
    // HTTP 1.0: the answer is not chunked, and ends with the connection.
    write!(stream, "POST /v3/{path} HTTP/1.0\r\nHost: {endpoint}\r\n")?;
    // An empty token is an invalid one.
    if !token.is_empty() {
        write!(stream, "Authorization: {token}\r\n")?;
    }
    write!(stream, "Content-Length: {}\r\n\r\n{body}", body.len())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.contains(" 200 ") => {
            serde_json::from_str(body).map_err(io::Error::other)
        }
        _ => Err(io::Error::other(answer)),
    }
}
