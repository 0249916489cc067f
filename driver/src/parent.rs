//! The program that started this driver and lends it its hosts: a bridge to a cluster.
//!
//! They speak over a socket that the driver inherits (`--parent-fd`), a line of JSON each:
//! ```text
//! driver -> parent   {"listening":{"run_id":..,"port":..,"secret":..,"call_key":..}}   once, first
//! parent -> driver   what a person may ask as well (operator::Request)    {"drain":{"host":..,"within_ms":..}}
//! driver -> parent   what became of it (operator::Answer)                {"done":..} | {"refused":..}
//! ```
//! So the secret is in no file, no argument and no variable. The end of the socket is the end of the parent, and ends
//! the job at once: nobody would be left to give the hosts back.

use std::{
    io,
    os::{
        fd::{FromRawFd, OwnedFd, RawFd},
        unix::net::UnixStream as StdStream,
    },
};

use elasticrun_protocol::auth::Secret;
use serde::Serialize;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::UnixStream,
    sync::{mpsc, oneshot},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::operator::{Answer, Asked};

/// The first line to the parent.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Said<'a> {
    Listening {
        run_id: &'a str,
        port: u16,
        secret: String,
        /// By which workers fetch a function that they call ([`Secret::call_key`]).
        call_key: String,
    },
}

/// Tells the parent where agents join, and serves its requests until `stop`. What comes back is cancelled when the
/// parent is gone.
///
/// # Errors
/// The descriptor is no stream socket.
pub(crate) async fn serve(
    fd: RawFd,
    listening: (&str, u16, &Secret),
    asked: mpsc::Sender<Asked>,
    stop: CancellationToken,
    tasks: &TaskTracker,
) -> io::Result<CancellationToken> {
    let mut stream = UnixStream::from_std(inherited(fd)?)?;
    let (run_id, port, secret) = listening;
    let first = Said::Listening {
        run_id,
        port,
        secret: secret.to_hex(),
        call_key: secret.call_key(run_id).to_hex(),
    };
    let gone = CancellationToken::new();
    say(&mut stream, &first).await?;
    let end = gone.clone();
    tasks.spawn(async move {
        let served = tokio::select! {
            served = answer(stream, asked) => served,
            () = stop.cancelled() => return,
        };
        if let Err(error) = served {
            tracing::debug!(%error, "the socket to the parent failed");
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

async fn answer(stream: UnixStream, asked: mpsc::Sender<Asked>) -> io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read).lines();
    while let Some(line) = lines.next_line().await? {
        let answer = match serde_json::from_str(&line) {
            Ok(request) => {
                let (answer, answered) = oneshot::channel();
                if asked.send(Asked { request, answer }).await.is_err() {
                    return Ok(());
                }
                let unanswered = || Answer::Refused("the job has ended".to_owned());
                answered.await.unwrap_or_else(|_| unanswered())
            }
            Err(error) => Answer::Refused(format!("no such request: {error}")),
        };
        say(&mut write, &answer).await?;
    }
    Ok(())
}

async fn say(to: &mut (impl AsyncWriteExt + Unpin), what: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    to.write_all(&line).await
}

#[cfg(test)]
mod tests {
    use std::os::fd::IntoRawFd;

    use elasticrun_protocol::HostId;

    use super::*;
    use crate::operator::Request;

    #[tokio::test]
    async fn it_hears_where_to_join_and_its_end_is_seen() {
        let (ours, theirs) = StdStream::pair().unwrap();
        let (asked, mut requests) = mpsc::channel(1);
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let secret = Secret::from_token("a");
        let listening = ("r1", 4000, &secret);
        let gone = serve(ours.into_raw_fd(), listening, asked, stop, &tasks);
        let gone = gone.await.unwrap();
        theirs.set_nonblocking(true).unwrap();
        let parent = UnixStream::from_std(theirs).unwrap();
        let (read, mut write) = parent.into_split();
        let mut lines = BufReader::new(read).lines();
        let first = lines.next_line().await.unwrap().unwrap();
        assert_eq!(
            first,
            format!(
                r#"{{"listening":{{"run_id":"r1","port":4000,"secret":"{}","call_key":"{}"}}}}"#,
                secret.to_hex(),
                secret.call_key("r1").to_hex()
            )
        );
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
        let (asked, _requests) = mpsc::channel(1);
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let file = std::fs::File::open("/dev/null").unwrap().into_raw_fd();
        let secret = Secret::from_token("a");
        serve(file, ("r1", 1, &secret), asked, stop, &tasks)
            .await
            .unwrap_err();
    }
}
