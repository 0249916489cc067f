//! What follows the end of a job: agents are asked, told to kill, and given up.

use elasticrun_core::Event;
use elasticrun_protocol::{HostId, Order};

use crate::play::{Play, host, seconds};
use elasticrun_core::Settings;

/// Two hosts that train, whose agents do nothing by themselves any more, and a user who has stopped the job.
fn stopped() -> Play {
    let mut play = Play::new(Settings::elastic(2, 1, Some(2)));
    play.list(&[host("a", 1), host("b", 1)]);
    play.commit();
    play.passive.extend(["a", "b"].map(HostId::new));
    play.orders.clear();
    play.event(Event::StopRequested { signal: 2 });
    play
}

/// The hosts that got an order of this kind, in the order of sending.
fn told(play: &Play, order: &Order) -> Vec<String> {
    let same = play.orders.iter().filter(|(_, sent)| sent == order);
    same.map(|(host, _)| host.to_string()).collect()
}

#[test]
fn agents_are_asked_and_the_driver_exits_when_the_last_one_is_gone() {
    let mut play = stopped();
    assert_eq!(told(&play, &Order::Shutdown), ["a", "b"]);
    play.lose("a");
    assert!(!play.exited);
    play.lose("b");
    assert!(play.exited);
    assert_eq!(told(&play, &Order::Kill), [""; 0]);
    assert_eq!(play.job.next_deadline(), None);
}

#[test]
fn agents_that_do_not_end_in_time_are_told_to_kill_and_then_given_up() {
    let mut play = stopped();
    play.lose("a");
    play.pass(seconds(11));
    assert_eq!(
        told(&play, &Order::Kill),
        [""; 0],
        "two times the grace, and two seconds"
    );
    play.pass(seconds(1));
    assert_eq!(told(&play, &Order::Kill), ["b"]);
    assert!(!play.exited);
    let closed = play.disconnected.len();
    play.pass(seconds(1));
    assert_eq!(play.disconnected.len(), closed + 1);
    assert!(play.exited);
}

/// Seed 156958 of the simulation.
#[test]
fn an_event_behind_a_deadline_of_the_shutdown_lets_it_take_effect() {
    let mut play = stopped();
    play.lose("a");
    play.now = play.now + seconds(12);
    play.lose("b");
    assert_eq!(
        told(&play, &Order::Kill),
        ["b"],
        "it was told before it was lost"
    );
    assert!(play.exited);
}

#[test]
fn a_second_signal_kills_and_a_third_changes_nothing() {
    let mut play = stopped();
    play.pass(seconds(3));
    for _ in 0..2 {
        play.event(Event::StopRequested { signal: 2 });
        assert_eq!(told(&play, &Order::Kill), ["a", "b"]);
    }
    play.pass(seconds(1));
    assert!(play.exited);
}

#[test]
fn an_agent_that_connects_behind_the_end_is_told_what_the_others_were_told() {
    let mut play = stopped();
    play.connects("c");
    assert_eq!(told(&play, &Order::Shutdown), ["a", "b", "c"]);
    play.event(Event::StopRequested { signal: 2 });
    play.connects("d");
    assert_eq!(told(&play, &Order::Kill), ["a", "b", "c", "d"]);
    for host in ["a", "b", "c"] {
        play.lose(host);
    }
    assert!(!play.exited, "the last one is waited for");
    play.lose("d");
    assert!(play.exited);
}

#[test]
fn a_job_without_agents_exits_when_it_ends() {
    let mut play = Play::new(Settings::elastic(2, 1, Some(2)));
    let why = "no such group".to_owned();
    play.event(Event::SourceFailed {
        source: 0,
        fatal: true,
        why,
    });
    assert!(play.exited);
}

/// Seed 4913 of the simulation.
#[test]
fn what_fails_at_the_same_moment_is_done_with_before_the_driver_exits() {
    let mut play = Play::new(Settings {
        start_timeout: seconds(5),
        ..Settings::standard(2)
    });
    play.passive.extend(["a", "b"].map(HostId::new));
    play.list(&[host("a", 1), host("b", 1)]);
    play.pass(seconds(5));
    assert!(play.exited);
    assert_eq!(play.ended_launches.len(), 2);
}
