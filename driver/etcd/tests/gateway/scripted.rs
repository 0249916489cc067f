//! A gateway whose answers are scripted.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use elasticrun_etcd::{Client, Options};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

/// What the gateway does with a request.
#[derive(Clone)]
pub(crate) enum Reply {
    /// An answer with a status, in chunks.
    Answer(u16, Vec<&'static str>),
    /// The same, but the connection breaks before its end.
    Cut(Vec<&'static str>),
    /// The same, but it does not end.
    Open(Vec<&'static str>),
    /// No answer.
    Silence,
}

/// An answer with a success status.
pub(crate) fn answer(chunks: &[&'static str]) -> Reply {
    Reply::Answer(200, chunks.to_vec())
}

/// A request that the gateway has read.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) path: String,
    pub(crate) token: Option<String>,
    pub(crate) body: String,
}

type Shared<T> = Arc<Mutex<T>>;

/// A gateway on a port of its own. It ends with this.
pub(crate) struct Gateway {
    pub(crate) endpoint: String,
    seen: Shared<Vec<Seen>>,
    _tasks: JoinSet<()>,
}

impl Gateway {
    pub(crate) async fn start(replies: impl Into<VecDeque<Reply>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let endpoint = listener.local_addr().expect("its address").to_string();
        let (seen, replies) = (Shared::default(), Arc::new(Mutex::new(replies.into())));
        let mut tasks = JoinSet::new();
        let all = Arc::clone(&seen);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, Arc::clone(&replies), Arc::clone(&all)));
            }
        });
        Self {
            endpoint,
            seen,
            _tasks: tasks,
        }
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(&Options::new(vec![self.endpoint.clone()])).expect("no password in clear")
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("no panic").clone()
    }

    pub(crate) fn paths(&self) -> Vec<String> {
        self.seen().into_iter().map(|seen| seen.path).collect()
    }
}

async fn serve(stream: TcpStream, replies: Shared<VecDeque<Reply>>, seen: Shared<Vec<Seen>>) {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read_request(&mut stream).await {
        seen.lock().expect("no panic").push(request);
        let reply = replies.lock().expect("no panic").pop_front();
        match reply.expect("a reply for each request") {
            Reply::Answer(status, chunks) => {
                write(&mut stream, status, &chunks).await;
                let _ = stream.write_all(b"0\r\n\r\n").await;
            }
            Reply::Cut(chunks) => return write(&mut stream, 200, &chunks).await,
            Reply::Open(chunks) => {
                write(&mut stream, 200, &chunks).await;
                return std::future::pending().await;
            }
            Reply::Silence => return std::future::pending().await,
        }
    }
}

async fn write(stream: &mut BufReader<TcpStream>, status: u16, chunks: &[&str]) {
    let head = format!("HTTP/1.1 {status} X\r\nTransfer-Encoding: chunked\r\n\r\n");
    let _ = stream.write_all(head.as_bytes()).await;
    for chunk in chunks {
        let chunk = format!("{:x}\r\n{chunk}\r\n", chunk.len());
        let _ = stream.write_all(chunk.as_bytes()).await;
    }
}

async fn read_request(stream: &mut BufReader<TcpStream>) -> Option<Seen> {
    let mut line = String::new();
    let count = stream.read_line(&mut line).await.ok()?;
    if count == 0 {
        return None;
    }
    let path = line.split(' ').nth(1)?.to_owned();
    let (mut length, mut token) = (0, None);
    loop {
        line.clear();
        stream.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.trim().split_once(": ") else {
            break;
        };
        match name {
            "content-length" => length = value.parse().ok()?,
            "authorization" => token = Some(value.to_owned()),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    let body = String::from_utf8(body).ok()?;
    Some(Seen { path, token, body })
}
