//! The embedder: the program that started this driver and provides its hosts, as a bridge to a cluster does.
//!
//! Both send lines of JSON over a socket that the driver inherits (`--parent-fd`):
//! ```text
//! driver -> embedder   {"listening":{"run_id":..,"port":..,"token":..,"call_identity":{..}}}   once, first
//! embedder -> driver   the requests of the admin socket (admin_socket::Request)   {"drain":{"host":..,"within_ms":..}}
//! driver -> embedder   their answers (admin_socket::Answer)                       {"done":..} | {"refused":..}
//! ```
//! So the token is in no file, no argument and no variable. If the embedder closes the socket, the job ends at once:
//! without the embedder the hosts cannot be returned.

use std::{
    io,
    os::{
        fd::{FromRawFd, OwnedFd, RawFd},
        unix::net::UnixStream as StdStream,
    },
};

use elasticrun_tls::{Identity, token::Token};
use serde::Serialize;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::UnixStream,
    sync::{mpsc, oneshot},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    admin_socket::{AdminRequest, Answer},
    trust::Trust,
};

/// The first line to the embedder.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum FirstMessage<'a> {
    Listening {
        run_id: &'a str,
        port: u16,
        /// The token by which hosts join.
        token: Option<&'a str>,
        /// The identity by which the embedder serves a function to the workers ([`crate::call_identity`]).
        call_identity: &'a Identity,
    },
}

/// Sends the embedder the address at which agents join, and serves its requests until `stop`. The returned token is
/// cancelled when the embedder closes the socket.
///
/// # Errors
/// The descriptor is no stream socket.
pub(crate) async fn serve(
    fd: RawFd,
    listening: (&str, u16, &Trust),
    requests: mpsc::Sender<AdminRequest>,
    stop: CancellationToken,
    tasks: &TaskTracker,
) -> io::Result<CancellationToken> {
    let mut stream = UnixStream::from_std(inherited(fd)?)?;
    let (run_id, port, trust) = listening;
    let token = trust.token().as_ref().map(Token::expose);
    let first = FirstMessage::Listening {
        run_id,
        port,
        token: token.as_ref().map(|token| token.as_str()),
        call_identity: &trust.caller().map_err(io::Error::other)?,
    };
    let gone = CancellationToken::new();
    send_line(&mut stream, &first).await?;
    let end = gone.clone();
    tasks.spawn(async move {
        let served = tokio::select! {
            served = serve_requests(stream, requests) => served,
            () = stop.cancelled() => return,
        };
        if let Err(error) = served {
            tracing::debug!(%error, "the socket to the embedder failed");
        }
        end.cancel();
    });
    Ok(gone)
}

fn inherited(fd: RawFd) -> io::Result<StdStream> {
    // SAFETY: an integer; a descriptor that is not open gives an error.
    if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, and was given to this process for this alone.
    let stream = StdStream::from(unsafe { OwnedFd::from_raw_fd(fd) });
    stream.set_nonblocking(true)?;
    // Fails for what is no socket.
    stream.peer_addr()?;
    Ok(stream)
}

async fn serve_requests(
    stream: UnixStream,
    requests: mpsc::Sender<AdminRequest>,
) -> io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read).lines();
    while let Some(line) = lines.next_line().await? {
        let answer = match serde_json::from_str(&line) {
            Ok(request) => {
                let (answer, answered) = oneshot::channel();
                let request = AdminRequest { request, answer };
                if requests.send(request).await.is_err() {
                    return Ok(());
                }
                let job_ended = || Answer::Refused("the job has ended".to_owned());
                answered.await.unwrap_or_else(|_| job_ended())
            }
            Err(error) => Answer::Refused(format!("no such request: {error}")),
        };
        send_line(&mut write, &answer).await?;
    }
    Ok(())
}

async fn send_line(
    to: &mut (impl AsyncWriteExt + Unpin),
    message: &impl Serialize,
) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line).await
}

#[cfg(test)]
mod tests {
    use std::{os::fd::IntoRawFd, time::SystemTime};

    use elasticrun_protocol::HostId;
    use elasticrun_tls::Role;

    use super::*;
    use crate::{admin_socket::Request, join_tokens::JoinTokens};

    #[tokio::test]
    async fn the_embedder_gets_the_address_and_its_end_is_noticed() {
        let (ours, theirs) = StdStream::pair().unwrap();
        let (sender, mut requests) = mpsc::channel(1);
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let token = Token::random(SystemTime::now()).unwrap();
        let trust = Trust::new("r1", Some(JoinTokens::new(token.clone(), None))).unwrap();
        let listening = ("r1", 4000, &trust);
        let gone = serve(ours.into_raw_fd(), listening, sender, stop, &tasks);
        let gone = gone.await.unwrap();
        theirs.set_nonblocking(true).unwrap();
        let embedder = UnixStream::from_std(theirs).unwrap();
        let (read, mut write) = embedder.into_split();
        let mut lines = BufReader::new(read).lines();
        let first = lines.next_line().await.unwrap().unwrap();
        let mut first: serde_json::Value = serde_json::from_str(&first).unwrap();
        let identity = first["listening"]["call_identity"].take();
        let identity: Identity = serde_json::from_value(identity).unwrap();
        assert_eq!(identity.role, Role::Caller);
        assert_eq!(&identity.authority, &trust.authority().certificate);
        let listening = serde_json::json!({
            "run_id": "r1", "port": 4000, "token": &*token.expose(), "call_identity": null,
        });
        assert_eq!(first["listening"], listening);
        write
            .write_all(b"{\"drain\":{\"host\":\"a\",\"within_ms\":5}}\nnonsense\n")
            .await
            .unwrap();
        let request = requests.recv().await.unwrap();
        assert_eq!(
            request.request,
            Request::Drain {
                host: HostId::new("a"),
                within_ms: Some(5)
            }
        );
        let _ = request.answer.send(Answer::Done("left".into()));
        assert_eq!(
            lines.next_line().await.unwrap().unwrap(),
            r#"{"done":"left"}"#
        );
        let refused = lines.next_line().await.unwrap().unwrap();
        assert!(
            refused.starts_with(r#"{"refused":"no such request"#),
            "{refused}"
        );
        assert!(!gone.is_cancelled());
        drop((lines, write));
        gone.cancelled().await;
    }

    #[tokio::test]
    async fn what_is_no_socket_is_refused() {
        let (sender, _requests) = mpsc::channel(1);
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let file = std::fs::File::open("/dev/null").unwrap().into_raw_fd();
        let trust = Trust::new("r1", None).unwrap();
        serve(file, ("r1", 1, &trust), sender, stop, &tasks)
            .await
            .unwrap_err();
    }
}
