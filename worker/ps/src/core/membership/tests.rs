use super::*;
use crate::core::node::{ALL_NODES, SERVER_GROUP};

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn address(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

fn newcomer(role: Role) -> Newcomer {
    Newcomer {
        role,
        address: address(1),
        rank: None,
        workers: 1,
    }
}

fn worker(rank: u32, workers: u32) -> Newcomer {
    Newcomer {
        rank: Some(rank),
        workers,
        ..newcomer(Role::Worker)
    }
}

#[test]
fn a_worker_gets_the_rank_that_it_wants_unless_another_has_it() {
    let mut members = Membership::new(1, 3);
    let mut join = |rank| members.join(worker(rank, 3), at(0));
    assert_eq!(join(2), Ok(NodeId::worker(2)));
    assert_eq!(join(2), Ok(NodeId::worker(0)));
    assert_eq!(join(7), Ok(NodeId::worker(1)), "there is no such rank");
}

#[test]
fn a_newcomer_takes_the_place_of_a_dead_node() {
    let mut members = Membership::new(2, 2);
    members.await_replacements(at(9));
    for role in [Role::Server, Role::Server, Role::Worker, Role::Worker] {
        members.join(newcomer(role), at(0)).unwrap();
    }
    assert!(members.join(newcomer(Role::Server), at(1)).is_err());
    let incarnation = |members: &Membership, id| members.member(id).unwrap().incarnation;
    for times in 1..3 {
        assert!(
            members
                .disconnected((NodeId::server(1), times - 1), at(1))
                .is_some()
        );
        assert!(members.join(newcomer(Role::Worker), at(1)).is_err());
        let back = members.join(newcomer(Role::Server), at(1));
        assert_eq!(back, Ok(NodeId::server(1)));
        assert_eq!(incarnation(&members, NodeId::server(1)), times);
        assert_eq!(members.gone(at(1)).len(), 0);
    }
    // It is heard of from its registration on.
    assert_eq!(members.expire(at(2), at(2)).len(), 3);
    // The rank that it wants, or any.
    assert_eq!(members.join(worker(1, 2), at(2)), Ok(NodeId::worker(1)));
    assert!(members.join(worker(1, 2), at(2)).is_err());
    let any = members.join(newcomer(Role::Worker), at(2));
    assert_eq!(any, Ok(NodeId::worker(0)));
    // What is said of an earlier process is not said of this one.
    assert!(
        members
            .disconnected((NodeId::worker(0), 0), at(2))
            .is_none()
    );
    // One that has finished is not replaced.
    members.leave(NodeId::worker(0));
    assert!(members.join(worker(0, 2), at(2)).is_err());
}

#[test]
fn nobody_is_replaced_unless_the_job_says_so() {
    let mut members = Membership::new(1, 1);
    let server = members.join(newcomer(Role::Server), at(0)).unwrap();
    members.disconnected((server, 0), at(1));
    assert!(members.join(newcomer(Role::Server), at(2)).is_err());
}

#[test]
fn barriers_await_a_replacement_for_a_while() {
    let mut members = Membership::new(1, 1);
    members.await_replacements(at(5));
    let server = members.join(newcomer(Role::Server), at(0)).unwrap();
    assert!(!members.awaits_replacements());
    members.disconnected((server, 0), at(2));
    assert!(members.awaits_replacements());
    assert_eq!(members.gone(at(6)).len(), 0);
    assert!(members.gone(at(7)).contains(&server));
    assert_eq!(members.living().count(), 0);
    members.join(newcomer(Role::Server), at(8)).unwrap();
    assert!(!members.awaits_replacements());
    assert_eq!(members.gone(at(8)).len(), 0);
}

#[test]
fn barriers_wait_for_as_many_workers_as_the_newest_one_says() {
    let mut members = Membership::new(1, 1);
    members.open();
    members.join(newcomer(Role::Server), at(0)).unwrap();
    let waits = |members: &Membership| members.present(ALL_NODES).is_empty();
    let first = members.join(worker(0, 2), at(0)).unwrap();
    assert!(waits(&members), "the second one is starting");
    let second = members.join(worker(1, 2), at(0)).unwrap();
    assert!(!waits(&members));
    members.disconnected((second, 0), at(1));
    assert!(!waits(&members), "survivors go on");
    members.disconnected((first, 0), at(1));
    assert!(waits(&members), "others will come");
    for rank in 0..3 {
        assert!(waits(&members));
        members.join(worker(rank, 3), at(1)).unwrap();
    }
    assert!(!waits(&members));
}

#[test]
fn ranks_are_the_order_of_arrival() {
    let mut members = Membership::new(1, 2);
    assert_eq!(
        members.join(newcomer(Role::Worker), at(0)),
        Ok(NodeId::worker(0))
    );
    assert_eq!(
        members.join(newcomer(Role::Server), at(0)),
        Ok(NodeId::server(0))
    );
    assert_eq!(members.awaited(), (0, 1));
    assert_eq!(members.roster(), None);
    assert_eq!(
        members.join(newcomer(Role::Worker), at(0)),
        Ok(NodeId::worker(1))
    );
    assert_eq!(members.roster().map(|roster| roster.len()), Some(3));
    let error = members.join(newcomer(Role::Server), at(0)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the job has its 1 servers already: does DMLC_NUM_SERVER say how many run?"
    );
    assert_eq!(
        members.join(newcomer(Role::Scheduler), at(0)),
        Err(JoinError::SecondScheduler)
    );
}

#[test]
fn a_job_in_which_nodes_come_and_go_waits_for_those_that_are_there() {
    let mut members = Membership::new(1, 1);
    members.open();
    let mut join = |role| members.join(newcomer(role), at(0)).unwrap();
    let (server, first) = (join(Role::Server), join(Role::Worker));
    assert_eq!(members.present(ALL_NODES), [server, first, SCHEDULER]);
    assert!(members.disconnected((first, 0), at(1)).is_some());
    assert_eq!(members.present(ALL_NODES), [], "the only worker is dead");
    assert_eq!(members.present(SERVER_GROUP), [server]);
    let second = members.join(newcomer(Role::Worker), at(1)).unwrap();
    assert_ne!(second, first);
    assert_eq!(members.present(ALL_NODES), [server, second, SCHEDULER]);
    members.leave(second);
    assert_eq!(
        members.present(ALL_NODES),
        [server, SCHEDULER],
        "it has finished"
    );
}

#[test]
fn only_the_silent_and_the_broken_are_dead() {
    let mut members = Membership::new(1, 3);
    for role in [Role::Server, Role::Worker, Role::Worker, Role::Worker] {
        members.join(newcomer(role), at(0)).unwrap();
    }
    members.seen(NodeId::server(0), at(9));
    members.leave(NodeId::worker(0));
    assert!(
        members
            .disconnected((NodeId::worker(0), 0), at(9))
            .is_none()
    );
    let death = members.disconnected((NodeId::worker(1), 0), at(9));
    assert_eq!(death.map(|member| member.id), Some(NodeId::worker(1)));
    assert!(
        members
            .disconnected((NodeId::worker(1), 0), at(9))
            .is_none()
    );
    let silent = members.expire(at(10), at(5));
    assert_eq!(
        silent.iter().map(|it| it.id).collect::<Vec<_>>(),
        [NodeId::worker(2)]
    );
    assert_eq!(members.expire(at(10), at(5)), []);
    let gone: Vec<_> = members.gone(at(10)).into_iter().collect();
    assert_eq!(gone, [0, 1, 2].map(NodeId::worker));
    assert_eq!(members.living().collect::<Vec<_>>(), [NodeId::server(0)]);
}
