//! A TCP proxy that a test can cut and mend.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

/// A proxy between agents and their driver. While it is cut it holds all bytes and closed connections, and
/// delivers them in order once it is mended, as TCP does over a network that was down.
#[derive(Debug)]
pub struct Proxy {
    /// The port that agents connect to.
    pub port: u16,
    cut: Arc<AtomicBool>,
    /// Both ends of all connections so far.
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    /// A proxy to a port of this machine. Its threads end with the connections and the test.
    ///
    /// # Panics
    /// When no port or descriptor is free.
    pub fn to(driver: u16) -> Self {
        Self::to_address(([127, 0, 0, 1], driver).into())
    }

    /// A proxy to an address, as [`Proxy::to`].
    ///
    /// # Panics
    /// When no port or descriptor is free.
    pub fn to_address(driver: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it listens").port();
        let cut = Arc::new(AtomicBool::new(false));
        let way = cut.clone();
        let streams = Arc::new(Mutex::new(Vec::new()));
        let all = streams.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let agent = stream.expect("a descriptor is free");
                wait_until_mended(&way);
                let Ok(driver) = TcpStream::connect(driver) else {
                    continue;
                };
                for stream in [&agent, &driver] {
                    lock(&all).push(copy(stream));
                }
                for (from, to) in [(&agent, &driver), (&driver, &agent)] {
                    // The peer may have closed it already.
                    let _ = from.set_nodelay(true);
                    let (from, to) = (copy(from), copy(to));
                    let way = way.clone();
                    thread::spawn(move || pass(from, to, &way));
                }
            }
        });
        Self { port, cut, streams }
    }

    /// Holds all bytes from now on.
    pub fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
    }

    /// Cuts, and ends all connections at once at both ends.
    pub fn cut_off(&self) {
        self.cut();
        for stream in lock(&self.streams).drain(..) {
            // Either end may be closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Delivers what was held, and all bytes from now on.
    pub fn mend(&self) {
        self.cut.store(false, Ordering::SeqCst);
    }
}

fn lock(streams: &Mutex<Vec<TcpStream>>) -> std::sync::MutexGuard<'_, Vec<TcpStream>> {
    streams.lock().unwrap_or_else(PoisonError::into_inner)
}

fn copy(stream: &TcpStream) -> TcpStream {
    stream.try_clone().expect("a descriptor is free")
}

fn pass(mut from: TcpStream, mut to: TcpStream, way: &AtomicBool) {
    let mut bytes = [0; 16 << 10];
    loop {
        let count = from.read(&mut bytes).unwrap_or(0);
        wait_until_mended(way);
        if count == 0 || to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    // Either end may be closed already.
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}

fn wait_until_mended(way: &AtomicBool) {
    while way.load(Ordering::SeqCst) {
        thread::sleep(Duration::from_millis(2));
    }
}
