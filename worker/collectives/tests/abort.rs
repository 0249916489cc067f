//! Rounds that end early.

#[path = "support/mod.rs"]
#[allow(dead_code, clippy::unwrap_used)]
mod support;

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use elasticrun_collectives::{Error, Group, Observer, Op, RegionMap, RoundId, abort_region};
use support::{KEY, ROUND, members, round};

const LAYOUTS: &[&[u32]] = &[&[3], &[1, 1], &[1, 1, 1, 1], &[2, 2], &[1, 3, 2]];

/// Maximum time from an abort to the return of all members. It is far below every timeout here, so
/// that nothing else can end the wait, and far above the delays of a busy machine. `benches/`
/// measures the real time.
const AT_ONCE: Duration = Duration::from_secs(5);

fn is_abort(error: &Error) -> bool {
    matches!(error, Error::Aborted { round_id } if *round_id == ROUND)
}

/// Calls operations of all kinds until one fails.
fn until_failure(group: &mut Group, sizes: &[usize]) -> Error {
    let size = group.topology().size as usize;
    let mut work = |len: usize| {
        let mut data = vec![1f32; len];
        let mut all = vec![0f32; len * size];
        group.allreduce(&mut data, Op::Average)?;
        group.allgather(&data, &mut all)?;
        group.reduce_scatter(&all, &mut data, Op::Max)?;
        group.broadcast(&mut data, size as u32 - 1)?;
        group.barrier()
    };
    loop {
        for &len in sizes {
            if let Err(error) = work(len) {
                return error;
            }
        }
    }
}

#[test]
fn an_abort_at_a_random_moment_frees_all_members_at_once() {
    for layout in LAYOUTS {
        for (turn, sizes) in [&[100][..], &[300_000], &[10, 100_000, 0, 5000]]
            .iter()
            .enumerate()
        {
            let members = members(layout);
            let aborters: Vec<_> = members.iter().map(|m| m.aborter.clone()).collect();
            let (entered, entries) = mpsc::channel();
            let (ended, ends) = mpsc::channel();
            thread::scope(|scope| {
                for member in members {
                    let (entered, ended) = (entered.clone(), ended.clone());
                    scope.spawn(move || {
                        let mut group = member.connect().unwrap();
                        entered.send(()).unwrap();
                        let error = until_failure(&mut group, sizes);
                        ended.send((Instant::now(), error)).unwrap();
                        // A group that was aborted stays aborted.
                        let again = Instant::now();
                        assert!(group.barrier().is_err());
                        assert!(again.elapsed() < AT_ONCE);
                    });
                }
                // Only the members' own senders remain, so that a panic of a member ends the test
                // instead of its wait.
                drop((entered, ended));
                aborters.iter().for_each(|_| entries.recv().unwrap());
                // By now all members make calls. Abort somewhere among them.
                thread::sleep(Duration::from_micros(5_000 + 1373 * turn as u64));
                let start = Instant::now();
                aborters.iter().for_each(|aborter| aborter.abort(ROUND));
                for _ in &aborters {
                    let (end, error) = ends.recv().unwrap();
                    let lost = matches!(error, Error::PeerLost { .. });
                    assert!(is_abort(&error) || lost, "{error}");
                    assert!(end - start < AT_ONCE, "{layout:?}: {:?}", end - start);
                }
            });
        }
    }
}

#[test]
fn one_member_is_missing_and_the_others_are_freed() {
    for layout in LAYOUTS {
        let members = members(layout);
        let aborters: Vec<_> = members.iter().map(|m| m.aborter.clone()).collect();
        let (entered, entries) = mpsc::channel();
        thread::scope(|scope| {
            let mut waiting = Vec::new();
            for member in members {
                let entered = entered.clone();
                waiting.push(scope.spawn(move || {
                    let rank = member.topology.rank;
                    let mut group = member.connect().unwrap();
                    entered.send(group.observer()).unwrap();
                    if rank == 0 {
                        // Waits outside of the group, as user code may, until the round is over.
                        while group.check().is_ok() {
                            thread::yield_now();
                        }
                    }
                    let error = group.allreduce(&mut [1.0; 50_000], Op::Sum).unwrap_err();
                    (Instant::now(), error)
                }));
            }
            let observers: Vec<_> = aborters.iter().map(|_| entries.recv().unwrap()).collect();
            if layout[0] > 1 {
                // An observer sees the late rank, on its host only.
                let late = |observer: &Observer| observer.behind() == [0];
                while observers.iter().filter(|observer| late(observer)).count()
                    < layout[0] as usize
                {
                    thread::yield_now();
                }
            }
            let start = Instant::now();
            aborters.iter().for_each(|aborter| aborter.abort(ROUND));
            for waiting in waiting {
                let (end, error) = waiting.join().unwrap();
                // A member that was freed closed its connections, which another may have seen
                // first.
                let lost = matches!(error, Error::PeerLost { .. });
                assert!(is_abort(&error) || lost, "{error}");
                assert!(end - start < AT_ONCE);
            }
        });
    }
}

#[test]
fn an_abort_before_connect_is_seen_and_one_of_an_older_round_is_not() {
    for layout in LAYOUTS {
        for member in members(layout) {
            member.aborter.abort(ROUND);
            let start = Instant::now();
            assert!(is_abort(&member.connect().unwrap_err()));
            assert!(start.elapsed() < AT_ONCE);
        }
        let older = RoundId { epoch: 3, round: 4 };
        thread::scope(|scope| {
            for member in members(layout) {
                member.aborter.abort(older);
                scope.spawn(|| member.connect().unwrap().barrier().unwrap());
            }
        });
    }
}

#[test]
fn connecting_can_be_aborted() {
    for layout in [&[1, 1][..], &[2, 1], &[1, 2, 1]] {
        // The last host never connects.
        let mut members = members(layout);
        let absent = members.pop().unwrap();
        let aborters: Vec<_> = members.iter().map(|m| m.aborter.clone()).collect();
        thread::scope(|scope| {
            let connecting: Vec<_> = members
                .into_iter()
                .map(|member| {
                    scope.spawn(move || {
                        let error = member.connect().and_then(|mut group| group.barrier());
                        (Instant::now(), error.unwrap_err())
                    })
                })
                .collect();
            thread::sleep(Duration::from_millis(30));
            let start = Instant::now();
            aborters.iter().for_each(|aborter| aborter.abort(ROUND));
            for connecting in connecting {
                let (end, error) = connecting.join().unwrap();
                assert!(is_abort(&error), "{error}");
                assert!(end - start < AT_ONCE);
            }
        });
        drop(absent);
    }
}

#[test]
fn the_agent_aborts_by_the_region_alone() {
    for layout in [&[3][..], &[2, 1], &[1, 2]] {
        let members = members(layout);
        let regions: Vec<_> = members
            .iter()
            .filter_map(|m| Some((m.region.as_ref()?, m.topology.local_count)))
            .map(|(fd, count)| RegionMap::map(fd, count).unwrap())
            .collect();
        let (entered, entries) = mpsc::channel();
        thread::scope(|scope| {
            let mut waiting = Vec::new();
            let count = members.len();
            for member in members {
                let entered = entered.clone();
                waiting.push(scope.spawn(move || {
                    let topology = member.topology;
                    let holds_back = topology.local_count > 1
                        && topology.local_index + 1 == topology.local_count;
                    let mut group = member.connect().unwrap();
                    entered.send(()).unwrap();
                    if holds_back {
                        while group.check().is_ok() {
                            thread::yield_now();
                        }
                    }
                    (group.barrier().unwrap_err(), Instant::now())
                }));
            }
            (0..count).for_each(|_| entries.recv().unwrap());
            thread::sleep(Duration::from_millis(10));
            let start = Instant::now();
            regions.iter().for_each(abort_region);
            for waiting in waiting {
                let (error, end) = waiting.join().unwrap();
                assert!(
                    is_abort(&error) || matches!(error, Error::PeerLost { .. }),
                    "{error}"
                );
                assert!(end - start < AT_ONCE);
            }
        });
    }
}

#[test]
fn a_member_that_leaves_is_named() {
    let results = round(&[3], |group| {
        group.barrier().unwrap();
        if group.topology().rank == 1 {
            return None;
        }
        group.barrier().err()
    });
    for rank in [0, 2] {
        assert_eq!(results[rank], Some(Error::PeerLeft { rank: 1 }));
    }
    // On another host, where one member is the neighbour of the others and one is not.
    for (layout, left) in [(&[1, 1][..], 1), (&[2, 2], 2), (&[2, 2], 3)] {
        let results = round(layout, |group| {
            group.barrier().unwrap();
            (group.topology().rank != left).then(|| group.barrier().unwrap_err())
        });
        for error in results.into_iter().flatten() {
            assert_eq!(error, Error::PeerLeft { rank: left }, "{layout:?}");
        }
    }
}

#[test]
fn a_member_may_leave_before_others_have_ended_the_last_operation() {
    for layout in LAYOUTS {
        for _ in 0..20 {
            let results = round(layout, |group| {
                let rank = group.topology().rank;
                let mut data = vec![1f32; 100_000];
                let ended = group.allreduce(&mut data, Op::Sum);
                // Members leave in the order of their ranks, at different times.
                for _ in 0..rank * 1000 {
                    thread::yield_now();
                }
                ended
            });
            assert!(results.iter().all(Result::is_ok), "{layout:?}: {results:?}");
        }
    }
}

#[test]
fn different_calls_are_an_error_that_names_ranks() {
    for layout in LAYOUTS {
        let size: u32 = layout.iter().sum();
        for odd in [0, size - 1] {
            for large in [false, true] {
                let results = round(layout, |group| {
                    let rank = group.topology().rank;
                    let len = if large { 500_000 } else { 5 };
                    group.barrier().unwrap();
                    let odd_call = |group: &mut Group| match large {
                        true => group.allreduce(&mut vec![1f32; len + 1], Op::Sum),
                        false => group.broadcast(&mut [1u8; 20], 0),
                    };
                    let result = match rank == odd {
                        true => odd_call(group),
                        false => group.allreduce(&mut vec![1f32; len], Op::Sum),
                    };
                    // The root of a broadcast receives nothing. It learns of the mismatch in the
                    // next operation.
                    result.and_then(|()| group.barrier()).unwrap_err()
                });
                let named = results.iter().filter(|error| {
                    matches!(error, Error::Mismatch { rank, other_rank, call, other_call }
                        if rank != other_rank && call != other_call
                            && (*rank == odd || *other_rank == odd || layout.len() > 1))
                });
                let named = named.count();
                // All get the mismatch. Only one whose neighbour left in the middle of a large
                // frame may miss it.
                let cut = |error: &&Error| large && matches!(error, Error::PeerLost { .. });
                let missed = results.iter().filter(cut).count();
                assert!(
                    named >= 2 && named + missed == results.len(),
                    "{layout:?}: {results:?}"
                );
            }
        }
    }
}

#[test]
fn a_timeout_names_the_missing() {
    let results = round(&[3], |group| {
        if group.topology().rank == 2 {
            while group.check().is_ok() {
                thread::yield_now();
            }
            return None;
        }
        // Long enough for the other member to have arrived at the deadline.
        group.set_timeout(Some(Duration::from_secs(1)));
        group.barrier().err()
    });
    assert!(
        results[..2]
            .iter()
            .flatten()
            .any(|error| { matches!(error, Error::TimedOut { missing, .. } if missing == &[2]) }),
        "{results:?}"
    );
    let over = AtomicBool::new(false);
    let results = round(&[1, 1], |group| {
        if group.topology().rank == 1 {
            while !over.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            return group.barrier().err();
        }
        group.set_timeout(Some(Duration::from_millis(30)));
        let error = group.barrier().err();
        over.store(true, Ordering::SeqCst);
        error
    });
    assert!(
        matches!(results[0], Some(Error::TimedOut { .. })),
        "{results:?}"
    );
}

#[test]
fn strangers_on_the_port_are_dropped_and_delay_no_member() {
    let members = members(&[1, 1, 1]);
    let strangers = Mutex::new(Vec::new());
    for member in &members {
        let address = member.listener.local_addr().unwrap();
        for garbage in [
            &b""[..],
            b"GET / HTTP/1.1\r\n\r\n",
            &[0xff; 200],
            b"ERCOLL\x00\x01",
        ] {
            let mut stranger = TcpStream::connect(address).unwrap();
            stranger.write_all(garbage).unwrap();
            strangers.lock().unwrap().push(stranger);
        }
    }
    let start = Instant::now();
    thread::scope(|scope| {
        for member in members {
            scope.spawn(|| member.connect().unwrap().barrier().unwrap());
        }
    });
    // A stranger has five seconds to authenticate.
    assert!(start.elapsed() < Duration::from_secs(4));
}

#[test]
fn a_stranger_that_sends_garbage_learns_nothing() {
    let mut members = members(&[1, 1]);
    let _absent = members.pop();
    let member = members.pop().unwrap();
    let mut stranger = TcpStream::connect(member.listener.local_addr().unwrap()).unwrap();
    stranger.write_all(&[b'x'; 100]).unwrap();
    let error = member
        .connect_within(Duration::from_millis(50))
        .unwrap_err();
    assert!(matches!(&error, Error::Unreachable { host_indices, .. } if host_indices == &[1]));
    let mut answer = Vec::new();
    let _ = stranger.read_to_end(&mut answer);
    assert!(answer.is_empty());
}

#[test]
fn another_key_does_not_connect() {
    let mut members = members(&[1, 1]);
    let other = members.pop().unwrap();
    let member = members.pop().unwrap();
    // Long enough for both to connect. The acceptor waits until the connector has given up and
    // reported its last reason.
    let (short, longer) = (Duration::from_secs(1), Duration::from_secs(3));
    thread::scope(|scope| {
        scope.spawn(move || {
            let config = elasticrun_collectives::GroupConfig {
                topology: other.topology,
                region: None,
                listener: &other.listener,
                peers: other.peers.clone(),
                key: KEY.map(|byte| byte ^ 1),
                encrypt: false,
                round_id: ROUND,
                timeout: short,
            };
            let error = Group::connect(config, &other.aborter).unwrap_err();
            assert!(
                matches!(&error, Error::Unreachable { reason, .. } if reason.contains("key")),
                "{error}"
            );
        });
        assert!(matches!(
            member.connect_within(longer),
            Err(Error::Unreachable { .. })
        ));
    });
}

#[test]
fn an_older_session_is_refused_and_a_newer_one_waits() {
    let connect = |member: support::Member, round, timeout| {
        let config = elasticrun_collectives::GroupConfig {
            topology: member.topology,
            region: None,
            listener: &member.listener,
            peers: member.peers.clone(),
            key: KEY,
            encrypt: false,
            round_id: RoundId { epoch: 1, round },
            timeout,
        };
        Group::connect(config, &member.aborter).and_then(|mut group| group.barrier())
    };
    // Host 1 connects to host 0 with an older round.
    let mut pair = members(&[1, 1]);
    let (older, newer) = (pair.pop().unwrap(), pair.pop().unwrap());
    thread::scope(|scope| {
        // The newer one waits as long as the older one may take to connect.
        let older = scope.spawn(|| connect(older, 7, Duration::from_secs(20)));
        let newer = scope.spawn(|| connect(newer, 8, Duration::from_secs(2)));
        assert!(matches!(
            older.join().unwrap(),
            Err(Error::Stale { host_index: 0, .. })
        ));
        assert!(matches!(
            newer.join().unwrap(),
            Err(Error::Unreachable { .. })
        ));
    });
    // Host 1 is a round ahead; host 0 follows it with the same listener.
    let mut pair = members(&[1, 1]);
    let (ahead, behind) = (pair.pop().unwrap(), pair.pop().unwrap());
    thread::scope(|scope| {
        let ahead = scope.spawn(|| connect(ahead, 8, Duration::from_secs(20)));
        let mut again = support::Member {
            topology: behind.topology,
            region: None,
            listener: behind.listener.try_clone().unwrap(),
            peers: behind.peers.clone(),
            aborter: behind.aborter.clone(),
        };
        again.topology.size = 2;
        let early = connect(behind, 7, Duration::from_millis(100));
        assert!(matches!(early, Err(Error::Unreachable { .. })));
        connect(again, 8, Duration::from_secs(20)).unwrap();
        ahead.join().unwrap().unwrap();
    });
}
