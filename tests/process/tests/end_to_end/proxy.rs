//! A TCP proxy that a test can cut and mend.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

/// A proxy between agents and their driver. While it is cut it holds all bytes and closed connections, and
/// delivers them in order once it is mended, as TCP does over a network that was down.
pub(crate) struct Proxy {
    /// The port that agents connect to.
    pub(crate) port: u16,
    cut: Arc<AtomicBool>,
    /// Both ends of all connections so far.
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    /// A proxy to a port of this machine. Its threads end with the connections and the test.
    pub(crate) fn to(driver: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let cut = Arc::new(AtomicBool::new(false));
        let way = cut.clone();
        let streams = Arc::new(Mutex::new(Vec::new()));
        let all = streams.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let agent = stream.unwrap();
                wait_until_mended(&way);
                let Ok(driver) = TcpStream::connect(("127.0.0.1", driver)) else {
                    continue;
                };
                for stream in [&agent, &driver] {
                    all.lock().unwrap().push(stream.try_clone().unwrap());
                }
                for (from, to) in [(&agent, &driver), (&driver, &agent)] {
                    from.set_nodelay(true).unwrap();
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let way = way.clone();
                    thread::spawn(move || pass(from, to, &way));
                }
            }
        });
        Self { port, cut, streams }
    }

    pub(crate) fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
    }

    /// Cuts, and ends all connections at once at both ends.
    pub(crate) fn cut_off(&self) {
        self.cut();
        for stream in self.streams.lock().unwrap().drain(..) {
            // Either end may be closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    pub(crate) fn mend(&self) {
        self.cut.store(false, Ordering::SeqCst);
    }
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
