//! The cost of TLS on one core: handshakes, small frames, large pieces; and a large state over loopback beside plain TCP.
//!
//! `cargo bench -p elasticrun-tls`.

use std::{
    hint::black_box,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use elasticrun_tls::{Authority, Blocking, ClientConfig, Identity, Role, ServerConfig, Session};

const PIECE: usize = 1 << 20;
const STATE: usize = 1 << 30;

struct Job {
    authority: Authority,
    driver: Identity,
    agent: Identity,
}

impl Job {
    fn new() -> Self {
        let authority = Authority::new("bench").expect("an authority");
        let [driver, agent] =
            [Role::Driver, Role::Agent].map(|role| authority.issue(role, "host").expect("issued"));
        Self {
            authority,
            driver,
            agent,
        }
    }

    fn server(&self) -> ServerConfig {
        ServerConfig::new(&self.driver, &[Role::Agent]).expect("a configuration")
    }

    fn client(&self) -> ClientConfig {
        ClientConfig::new(&self.agent, Role::Driver).expect("a configuration")
    }
}

/// Both ends in one thread, with the time that each has used.
struct Pair {
    client: Session,
    server: Session,
    plain: BytesMut,
    server_time: Duration,
}

impl Pair {
    fn new(client: &ClientConfig, server: &ServerConfig) -> Self {
        Self {
            client: Session::client(client).expect("a client"),
            server: Session::server(server),
            plain: BytesMut::new(),
            server_time: Duration::ZERO,
        }
    }

    /// Moves bytes until neither end has any to send.
    fn run(mut self) -> Self {
        let (mut up, mut down) = (Vec::new(), Vec::new());
        loop {
            up.clear();
            self.client.take_outgoing(&mut up);
            let start = Instant::now();
            let mut wire = BytesMut::from(&up[..]);
            self.server
                .feed(&mut wire, &mut self.plain)
                .expect("trusted");
            down.clear();
            self.server.take_outgoing(&mut down);
            self.server_time += start.elapsed();
            let mut wire = BytesMut::from(&down[..]);
            self.client
                .feed(&mut wire, &mut self.plain)
                .expect("trusted");
            if up.is_empty() && down.is_empty() {
                return self;
            }
        }
    }
}

fn main() {
    let job = Job::new();
    certificates(&job);
    handshakes("full handshakes", 2000, || {
        Pair::new(&job.client(), &job.server())
    });
    let (client, server) = (job.client(), job.server());
    handshakes("resumed handshakes", 2000, || Pair::new(&client, &server));
    small_frames(&job, 200);
    large_pieces(&job);
    loopback(&job);
}

fn certificates(job: &Job) {
    let start = Instant::now();
    for _ in 0..2000 {
        black_box(job.authority.issue(Role::Agent, "host").expect("issued"));
    }
    println!(
        "certificates: {:.0}/s",
        2000.0 / start.elapsed().as_secs_f64()
    );
}

/// Configurations are made beforehand: only the sessions are measured.
fn handshakes(name: &str, count: u32, pair: impl Fn() -> Pair) {
    let (mut all, mut server) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..count {
        let pair = pair();
        let start = Instant::now();
        let pair = pair.run();
        all += start.elapsed();
        server += pair.server_time;
    }
    println!(
        "{name}: {:.0}/s for both ends, {:.0} us at the server",
        f64::from(count) / all.as_secs_f64(),
        server.as_secs_f64() * 1e6 / f64::from(count)
    );
}

/// Messages of one size from the client to the server: the time to send them all, and to read them.
fn one_way(job: &Job, size: usize, count: u32) -> (Duration, Duration) {
    let mut pair = Pair::new(&job.client(), &job.server()).run();
    let (message, mut wire) = (vec![7; size], Vec::new());
    let (mut sent, mut read) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..count {
        let start = Instant::now();
        pair.client.send(&message).expect("established");
        wire.clear();
        pair.client.take_outgoing(&mut wire);
        sent += start.elapsed();
        let mut bytes = BytesMut::from(&wire[..]);
        let start = Instant::now();
        pair.server
            .feed(&mut bytes, &mut pair.plain)
            .expect("trusted");
        read += start.elapsed();
        pair.plain.clear();
    }
    (sent, read)
}

fn small_frames(job: &Job, size: usize) {
    let count = 300_000;
    let (sent, read) = one_way(job, size, count);
    println!(
        "frames of {size} B: {:.2} us to send, {:.2} us to read",
        sent.as_secs_f64() * 1e6 / f64::from(count),
        read.as_secs_f64() * 1e6 / f64::from(count)
    );
}

fn large_pieces(job: &Job) {
    let count = 2000;
    let (sent, read) = one_way(job, PIECE, count);
    let total = f64::from(count) * PIECE as f64 / 1e9;
    println!(
        "pieces of 1 MiB: {:.2} GB/s to send, {:.2} GB/s to read",
        total / sent.as_secs_f64(),
        total / read.as_secs_f64()
    );
}

fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let dialled = TcpStream::connect(listener.local_addr().expect("its address")).expect("open");
    (dialled, listener.accept().expect("a connection").0)
}

/// A state of 1 GiB from one thread to another.
fn loopback(job: &Job) {
    let (writer, reader) = sockets();
    let plain = transfer(writer, reader);
    let (writer, reader) = sockets();
    let (client, server) = (job.client(), job.server());
    let writer = thread::spawn(move || {
        Blocking::handshake(Session::client(&client).expect("a client"), writer).expect("trusted")
    });
    let reader = Blocking::handshake(Session::server(&server), reader).expect("trusted");
    let encrypted = transfer(writer.join().expect("no panic"), reader);
    println!(
        "1 GiB over loopback: {:.3} s plain, {:.3} s encrypted ({:.2} times)",
        plain.as_secs_f64(),
        encrypted.as_secs_f64(),
        encrypted.as_secs_f64() / plain.as_secs_f64()
    );
}

fn transfer(mut writer: impl Write + Send + 'static, mut reader: impl Read) -> Duration {
    let piece = vec![7; PIECE];
    let mut buffer = vec![0; PIECE];
    let start = Instant::now();
    let thread = thread::spawn(move || {
        for _ in 0..STATE / PIECE {
            writer.write_all(&piece).expect("written");
        }
        writer
    });
    for _ in 0..STATE / PIECE {
        reader.read_exact(&mut buffer).expect("read");
    }
    let time = start.elapsed();
    drop(thread.join().expect("no panic"));
    time
}
