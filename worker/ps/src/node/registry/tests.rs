use std::{net::TcpListener, sync::mpsc, thread};

use super::*;
use crate::{core::frame::REQUEST, net::SendThread};

const APP: (Kind, u32) = (Kind::Data, 3);

/// A connection of another node. Its other end is returned too.
fn connection() -> (Arc<Connection>, std::net::TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let other = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (sender, _) = SendThread::start().unwrap();
    let stream = listener.accept().unwrap().0.into();
    let connection = Connection::new(stream, Some((NodeId(9), 0)), sender, 1 << 20, false);
    (connection.unwrap(), other)
}

/// Tells which requests it has begun, and ends each when it may.
struct Slow {
    begun: mpsc::Sender<u64>,
    may_end: Mutex<mpsc::Receiver<()>>,
}

impl RequestSink for Slow {
    fn request(&self, _: Option<&Arc<Connection>>, header: &Header, _: Payload<'_>) {
        self.begun.send(header.timestamp).unwrap();
        self.may_end.lock().unwrap().recv().unwrap();
    }
}

fn request(timestamp: u64) -> Header {
    Header {
        app: APP.1,
        timestamp,
        ..Header::new(APP.0, REQUEST, NodeId(9))
    }
}

const EMPTY: Payload<'static> = Payload {
    keys: &[],
    lens: &[],
    values: &[],
};

/// It is neither refused nor kept until its time is up, however long the handler takes for those before.
#[test]
fn a_request_that_comes_while_the_handler_takes_those_before_waits_for_it() {
    let registry = Arc::new(Registry::default());
    let (from, _other) = connection();
    for timestamp in [1, 2] {
        let parked = registry.app_or_park(Some(&from), &request(timestamp), EMPTY);
        assert!(matches!(parked, Ok(None)));
    }
    let (begun, begins) = mpsc::channel();
    let (end, may_end) = mpsc::channel();
    let slow: Arc<dyn RequestSink> = Arc::new(Slow {
        begun,
        may_end: Mutex::new(may_end),
    });
    thread::scope(|scope| {
        let adding = scope.spawn(|| registry.add_app(APP.0, APP.1, Arc::clone(&slow)));
        assert_eq!(begins.recv().unwrap(), 1);
        // The first one is being handled.
        let receiving = scope.spawn(|| {
            let sink = registry.app_or_park(Some(&from), &request(3), EMPTY);
            let sink = sink.unwrap_or_else(|_| panic!("it is refused"));
            sink.expect("it is kept")
                .request(Some(&from), &request(3), EMPTY);
        });
        // Another app of that node is not held up.
        let other = Header {
            app: 4,
            ..request(1)
        };
        assert!(matches!(
            registry.app_or_park(Some(&from), &other, EMPTY),
            Ok(None)
        ));
        end.send(()).unwrap();
        assert_eq!(begins.recv().unwrap(), 2);
        assert!(!receiving.is_finished());
        assert_eq!(
            registry.expired(Duration::ZERO).len(),
            1,
            "that of the other app"
        );
        end.send(()).unwrap();
        adding.join().unwrap().unwrap();
        assert_eq!(begins.recv().unwrap(), 3);
        end.send(()).unwrap();
        receiving.join().unwrap();
    });
}

#[test]
fn a_handler_that_panics_at_what_waited_for_it_holds_nobody_up() {
    let registry = Registry::default();
    let (from, _other) = connection();
    assert!(matches!(
        registry.app_or_park(Some(&from), &request(1), EMPTY),
        Ok(None)
    ));
    let (begun, begins) = mpsc::channel();
    let (_, may_end) = mpsc::channel();
    let slow = Arc::new(Slow {
        begun,
        may_end: Mutex::new(may_end),
    });
    thread::scope(|scope| {
        // Nobody will say that it may end.
        let adding = scope.spawn(|| registry.add_app(APP.0, APP.1, slow));
        assert!(adding.join().is_err());
    });
    assert_eq!(begins.recv().unwrap(), 1);
    assert!(matches!(
        registry.app_or_park(Some(&from), &request(2), EMPTY),
        Ok(None)
    ));
}
