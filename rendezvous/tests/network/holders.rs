//! The state as bytes.

use elasticrun_protocol::{Blob, rendezvous::MAX_STATE};
use elasticrun_rendezvous::{Error, Holder, Replaced, Server};

use crate::support::{LONG, RUN, holder, server};

#[test]
fn a_write_needs_the_token() {
    let (_server, endpoint) = server();
    let (mut one, mut two) = (holder(&endpoint), holder(&endpoint));
    assert_eq!(one.read().expect("an answer").state, None);
    let Ok(Replaced::Written(token)) = one.compare_and_set(None, b"a") else {
        panic!("it is the first write")
    };
    let Ok(Replaced::Conflict(snapshot)) = two.compare_and_set(None, b"b") else {
        panic!("it is the second write")
    };
    assert_eq!(
        (snapshot.token, snapshot.state),
        (token, Some(Blob(b"a".to_vec())))
    );
    let Ok(Replaced::Written(newer)) = two.compare_and_set(Some(token), b"b") else {
        panic!("it has the token")
    };
    assert!(newer > token);
}

#[test]
fn the_longest_state_is_held_and_a_longer_one_is_refused() {
    let (_server, endpoint) = server();
    let mut holder = holder(&endpoint);
    let longest = vec![b'x'; MAX_STATE];
    assert!(holder.compare_and_set(None, &longest).is_ok());
    assert_eq!(holder.read().expect("an answer").state, Some(Blob(longest)));
    let longer = vec![0; MAX_STATE + 1];
    let refused = holder.compare_and_set(None, &longer);
    assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
}

#[test]
fn holders_that_write_at_once_all_succeed() {
    let (_server, endpoint) = server();
    let adds = 20;
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let endpoint = endpoint.clone();
            std::thread::spawn(move || {
                let mut holder = holder(&endpoint);
                for _ in 0..adds {
                    add_one(&mut holder);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("it adds");
    }
    let state = holder(&endpoint).read().expect("an answer").state;
    assert_eq!(state, Some(Blob(b"160".to_vec())));
}

/// Adds one to the decimal number that the state is.
fn add_one(holder: &mut Holder) {
    let mut now = holder.read().expect("an answer");
    loop {
        let text = now.state.map_or_else(Vec::new, |state| state.0);
        let text = String::from_utf8(text).expect("digits");
        let next = text.parse::<u32>().unwrap_or(0) + 1;
        let written = holder.compare_and_set(Some(now.token), next.to_string().as_bytes());
        match written.expect("an answer") {
            Replaced::Written(_) => return,
            Replaced::Conflict(newer) => now = newer,
        }
    }
}

#[test]
fn a_holder_connects_again_and_the_tokens_of_the_next_server_are_larger() {
    let (server, endpoint) = server();
    let mut one = holder(&endpoint);
    let Ok(Replaced::Written(before)) = one.compare_and_set(None, b"a") else {
        panic!("it is the first write")
    };
    drop(server);
    assert!(one.read().is_err_and(|error| error.is_temporary()));
    let _server = Server::start(&endpoint).expect("the port is free again");
    let now = one.read().expect("an answer");
    assert_eq!(now.state, None);
    assert!(now.token > before);
    assert!(Holder::connect(endpoint, RUN, LONG, LONG).is_ok());
}
