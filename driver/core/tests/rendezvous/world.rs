//! Worlds of nodes under random orders of messages, deaths, cuts, stalls and jumps of clocks.
//!
//! The harness checks the invariants D1 to D5 at each write and each command. At last the faults stop, and D8 must hold.

use std::time::Duration;

use elasticrun_core::rendezvous::{Event, Settings};
use proptest::{collection::vec, prelude::*};

use crate::harness::{World, seconds};

#[derive(Clone, Debug)]
enum Step {
    Join(usize),
    Exit(usize),
    Serve(usize),
    Deliver(usize),
    Settle,
    Run(u64),
    Pass(u64),
    Kill(usize),
    Restart(usize),
    Cut(usize, bool),
    Stop(usize, bool),
    Jump(usize, u64),
}

fn a_step(nodes: usize) -> impl Strategy<Value = Step> {
    let node = 0..nodes;
    prop_oneof![
        3 => node.clone().prop_map(Step::Join),
        1 => node.clone().prop_map(Step::Exit),
        8 => node.clone().prop_map(Step::Serve),
        8 => node.clone().prop_map(Step::Deliver),
        2 => Just(Step::Settle),
        3 => (0u64..6000).prop_map(Step::Run),
        2 => (0u64..3000).prop_map(Step::Pass),
        1 => node.clone().prop_map(Step::Kill),
        2 => node.clone().prop_map(Step::Restart),
        2 => (node.clone(), any::<bool>()).prop_map(|(node, cut)| Step::Cut(node, cut)),
        2 => (node.clone(), any::<bool>()).prop_map(|(node, stop)| Step::Stop(node, stop)),
        1 => (node, 1u64..100).prop_map(|(node, by)| Step::Jump(node, by)),
    ]
}

#[derive(Clone, Debug)]
struct Case {
    nodes: usize,
    min_nodes: usize,
    max_nodes: usize,
    backoff: bool,
    steps: Vec<Step>,
}

fn a_case() -> impl Strategy<Value = Case> {
    (1usize..6, 1usize..4, 0usize..3, any::<bool>()).prop_flat_map(
        |(nodes, min_nodes, more, backoff)| {
            vec(a_step(nodes), 0..120).prop_map(move |steps| Case {
                nodes,
                min_nodes,
                max_nodes: min_nodes + more,
                backoff,
                steps,
            })
        },
    )
}

fn settings(case: &Case) -> Settings {
    let backoff = if case.backoff { "0.2" } else { "0" };
    let pairs = [
        ("join_timeout", "60"),
        ("last_call_timeout", "2"),
        ("heartbeat_timeout", "2"),
        ("keep_alive_interval", "1"),
        ("cas_backoff_max_seconds", backoff),
    ];
    let defaults = crate::states::settings(case.min_nodes, case.max_nodes);
    let with = |settings: Settings, (key, value)| settings.with(key, value).expect("a pair");
    pairs.into_iter().fold(defaults, with)
}

fn apply(world: &mut World, step: &Step) {
    let millis = Duration::from_millis;
    match *step {
        Step::Join(node) => world.join(node),
        Step::Exit(node) => world.request(node, Event::ExitRequested),
        Step::Serve(node) => drop(world.serve(node)),
        Step::Deliver(node) => drop(world.deliver(node)),
        Step::Settle => world.settle(),
        Step::Run(duration) => world.run(millis(duration)),
        Step::Pass(duration) => world.pass(millis(duration)),
        Step::Kill(node) => world.kill(node),
        Step::Restart(node) if !world.nodes[node].alive => world.restart(node),
        Step::Restart(_) => {}
        Step::Cut(node, cut) => world.nodes[node].cut = cut,
        Step::Stop(node, stop) => world.nodes[node].stopped = stop,
        Step::Jump(node, by) => world.nodes[node].ahead += seconds(by),
    }
}

/// Ends all faults, and gives all nodes that live a wish to be in a round.
fn heal(world: &mut World) {
    for index in 0..world.nodes.len() {
        let node = &mut world.nodes[index];
        (node.cut, node.stopped) = (false, false);
    }
    // What was asked before the faults stopped ends by its timeout at the latest.
    world.run(seconds(120));
    for index in 0..world.nodes.len() {
        // A node that already waits rejects the request.
        if world.nodes[index].training.is_none() {
            world.join(index);
        }
    }
    world.run(seconds(120));
}

/// D8: as many nodes as fit are in one complete round, and all others that live are redundant.
fn check_end(world: &World, case: &Case) {
    let alive = world.nodes.iter().filter(|node| node.alive).count();
    if alive < case.min_nodes {
        return;
    }
    let state = world.state();
    let n = alive.min(case.max_nodes);
    let training: Vec<_> = world
        .nodes
        .iter()
        .filter_map(|node| node.training)
        .collect();
    assert!(state.is_complete(), "{state:?}");
    assert_eq!(training.len(), n, "{state:?}");
    assert!(
        training
            .iter()
            .all(|training| training.round == state.round())
    );
    assert!(
        training
            .iter()
            .all(|training| training.world_size as usize == n)
    );
    assert_eq!(
        (state.participants(), state.waiting(), state.left()),
        (n, 0, 0),
        "{state:?}"
    );
    assert_eq!(state.redundant(), alive - n, "{state:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn nodes_agree_whatever_happens_and_come_into_a_round_when_faults_stop(case in a_case()) {
        let mut world = World::new(case.nodes, settings(&case));
        case.steps.iter().for_each(|step| apply(&mut world, step));
        heal(&mut world);
        check_end(&world, &case);
    }

    /// D6 and D7: without jumps of clocks, nodes train in one round only, and no node that runs and reaches the holder
    /// is removed.
    #[test]
    fn no_two_rounds_train_and_no_healthy_node_is_removed(case in a_case()) {
        let mut world = World::new(case.nodes, settings(&case));
        let mut faulty = vec![false; case.nodes];
        for step in &case.steps {
            match *step {
                // A stalled node cannot end its workers, and a jump is no time.
                Step::Jump(..) | Step::Stop(..) => continue,
                Step::Pass(_) | Step::Run(_) => {}
                Step::Kill(node) | Step::Cut(node, true) => faulty[node] = true,
                _ => {}
            }
            match *step {
                Step::Pass(duration) | Step::Run(duration) => run_checked(&mut world, duration),
                _ => apply(&mut world, step),
            }
            let rounds = world.training_rounds();
            prop_assert!(rounds.len() <= 1, "{rounds:?}");
        }
        for (index, node) in world.nodes.iter().enumerate() {
            let removed = world.removed.contains(node.machine.node());
            prop_assert!(!removed || faulty[index]);
        }
    }
}

/// Lets time pass in small pieces, so that the rounds that train are seen in between.
fn run_checked(world: &mut World, millis: u64) {
    for _ in 0..=millis / 100 {
        world.run(Duration::from_millis(100));
        let rounds = world.training_rounds();
        assert!(rounds.len() <= 1, "{rounds:?}");
    }
}
