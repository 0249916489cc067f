//! Parts of a base that agents pass on, in networks of several agents.

use std::{collections::BTreeMap, net::SocketAddr};

use elasticrun_core::agent::passing::{Asked, Failure, Forwarded, MAX_PASSED, Passing, Refusal};
use elasticrun_protocol::{
    CommitKey, Round, Shard,
    control::{BaseShards, MemoryRequest, Start, Via},
};
use proptest::prelude::*;

use super::bench::{Bench, commit, process};

fn address(agent: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 1000 + agent as u16))
}

fn agent_at(address: SocketAddr) -> usize {
    usize::from(address.port()) - 1000
}

/// The start of round 2 at an agent.
fn start(agent: usize) -> Start {
    let mut bench = Bench::new();
    bench.base_shards = Some(BaseShards { layout: 7, of: 4 });
    Start {
        memory: Some(address(agent)),
        ..bench.start_command(2, &[0], Some(commit(1, 5)), 0)
    }
}

/// A request for a part of the first shard. Each agent in the list gets so many requests.
fn request(part: u64, via: &[(usize, u32)], requests: u32) -> MemoryRequest {
    let via = via.iter().map(|&(agent, requests)| Via {
        agent: address(agent),
        requests,
    });
    MemoryRequest {
        process: process(0, 1),
        key: CommitKey {
            commit: commit(1, 5),
            shard: Shard {
                layout: 7,
                index: 0,
                of: 4,
            },
        },
        newer: false,
        ranges: vec![(part * 100, 10), (part * 100 + 50, 10)],
        background: false,
        via: via.collect(),
        requests,
    }
}

fn agent(own: usize) -> Passing {
    let mut passing = Passing::default();
    assert_eq!(passing.begin(&start(own)), [0; 0]);
    passing
}

fn begins(asked: &Asked) -> (u64, &Forwarded) {
    match asked {
        Asked::Begins(number, forwarded) => (*number, forwarded),
        other => panic!("it begins no transfer: {other:?}"),
    }
}

fn requests_for_the_same_parts_share_a_transfer() {
    let mut passing = agent(1);
    let asked = passing.ask(&request(0, &[(2, 3), (9, 0)], 2), None);
    let (number, forwarded) = begins(&asked);
    assert_eq!(forwarded.agent, address(2));
    assert_eq!(forwarded.request, request(0, &[(9, 0)], 3));
    let again = passing.ask(&request(0, &[(2, 3), (9, 0)], 2), None);
    assert_eq!(again, Asked::Waits(number));
    let other = passing.ask(&request(1, &[(2, 3), (9, 0)], 2), None);
    assert_ne!(begins(&other).0, number);
    assert_eq!(passing.bytes(), 40);
    assert!(!passing.arrived(number));
    assert!(!passing.answered(number));
    assert!(passing.answered(number));
    assert_eq!(passing.bytes(), 20, "it is kept after the last answer");
}

fn nothing_is_kept_beyond_the_round() {
    let asked = |passing: &mut Passing| passing.ask(&request(0, &[(9, 0)], 2), None);
    let mut passing = agent(1);
    let (number, _) = begins(&asked(&mut passing));
    let _ = passing.arrived(number);
    assert_eq!(passing.end(Round(1)), [0; 0]);
    assert!(passing.has(number));
    assert_eq!(passing.end(Round(2)), [number]);
    assert!(!passing.has(number));
    assert_eq!(passing.bytes(), 0);
    assert_eq!(asked(&mut passing), Asked::Refused(Refusal::NoRound));
    // A round begins before the end of the last one is known.
    let mut passing = agent(1);
    let (number, _) = begins(&asked(&mut passing));
    assert_eq!(passing.begin(&start(1)), [number]);
    assert_eq!(passing.bytes(), 0);
}

fn a_failed_agent_is_skipped() {
    let mut passing = agent(1);
    let list = [(2, 2), (3, 2), (9, 0)];
    let (number, _) = begins(&passing.ask(&request(0, &list, 2), None));
    let next = passing
        .failed(number, Failure::Broken)
        .expect("there are others");
    assert_eq!(next.agent, address(3));
    assert_eq!(next.request, request(0, &[(9, 0)], 2));
    // It is not asked for other parts either.
    let other = passing.ask(&request(1, &list, 2), None);
    assert_eq!(begins(&other).1.agent, address(3));
    // One that did not have them may have others.
    let next = passing
        .failed(number, Failure::Refused)
        .expect("there is another");
    assert_eq!(next.agent, address(9));
    assert_eq!(next.request.via, []);
    let other = passing.ask(&request(2, &list, 2), None);
    assert_eq!(begins(&other).1.agent, address(3));
    // What has arrived of damaged bytes may be on its way already.
    let damaged = passing.ask(&request(3, &list, 2), None);
    assert_eq!(passing.failed(begins(&damaged).0, Failure::Damaged), None);
    let other = passing.ask(&request(3, &list, 2), None);
    assert_eq!(begins(&other).1.agent, address(9));
    // The one that has the commit is always asked.
    assert_eq!(passing.failed(number, Failure::Broken), None);
    assert!(!passing.has(number));
    let again = passing.ask(&request(0, &[(9, 0)], 2), None);
    assert_eq!(begins(&again).1.agent, address(9));
}

#[test]
fn requests_that_cannot_be_passed_on_are_refused() {
    let refused = |request: &MemoryRequest, available| match agent(1).ask(request, available) {
        Asked::Refused(why) => Some(why),
        _ => None,
    };
    let good = request(0, &[(9, 0)], 2);
    assert_eq!(refused(&good, Some(40)), None);
    assert_eq!(refused(&good, Some(39)), Some(Refusal::NoRoom));
    let mut other = good.clone();
    other.key.commit = commit(1, 4);
    assert_eq!(refused(&other, None), Some(Refusal::NoRound));
    for change in [
        |request: &mut MemoryRequest| request.ranges.clear(),
        |request: &mut MemoryRequest| request.newer = true,
        |request: &mut MemoryRequest| request.via.clear(),
        |request: &mut MemoryRequest| request.ranges = vec![(0, MAX_PASSED + 1)],
        |request: &mut MemoryRequest| request.ranges = vec![(0, u64::MAX), (0, 2)],
    ] {
        let mut bad = good.clone();
        change(&mut bad);
        assert_eq!(refused(&bad, None), Some(Refusal::Unusable));
    }
    // Its own commits are asked for without a list.
    let own = request(0, &[(1, 0)], 2);
    assert_eq!(refused(&own, None), Some(Refusal::Circle));
    // Bytes that have arrived are part of what the system has given away.
    let mut passing = agent(1);
    let (first, _) = begins(&passing.ask(&good, Some(100)));
    let second = request(1, &[(9, 0)], 2);
    assert_eq!(
        passing.ask(&second, Some(79)),
        Asked::Refused(Refusal::NoRoom)
    );
    let _ = passing.arrived(first);
    begins(&passing.ask(&second, Some(79)));
    let mut before = Passing::default();
    assert_eq!(before.ask(&good, None), Asked::Refused(Refusal::NoRound));
}

/// Who has sent a request: a transfer of an agent, or a member.
type Sender = Option<(usize, u64)>;

/// Agents that exchange requests in any order. The last one has the commit.
struct Network {
    agents: Vec<Passing>,
    broken: Vec<bool>,
    /// Requests on their way: to whom, and from whom.
    sent: Vec<(usize, MemoryRequest, Sender)>,
    /// Requests that wait at an agent for a transfer.
    waiting: BTreeMap<(usize, u64), Vec<Sender>>,
    /// Requests to each agent.
    counts: Vec<u32>,
    /// Requests of members with an answer, and those without one.
    answers: (u32, u32),
}

impl Network {
    fn new(broken: Vec<bool>) -> Self {
        Self {
            agents: (0..broken.len()).map(agent).collect(),
            counts: vec![0; broken.len()],
            broken,
            sent: Vec::new(),
            waiting: BTreeMap::new(),
            answers: (0, 0),
        }
    }

    /// Delivers all requests in an order that these numbers choose. Answers arrive at once.
    fn run(&mut self, order: &[u32]) {
        let mut order = order.iter().copied().chain(std::iter::repeat(0));
        while !self.sent.is_empty() {
            let which = order.next().unwrap_or(0) as usize % self.sent.len();
            let (to, request, by) = self.sent.swap_remove(which);
            self.deliver(to, &request, by);
        }
        assert!(
            self.waiting.values().all(Vec::is_empty),
            "requests wait for each other: {:?}",
            self.waiting
        );
    }

    fn deliver(&mut self, to: usize, request: &MemoryRequest, by: Sender) {
        self.counts[to] += 1;
        assert!(self.counts[to] < 1000, "requests without end");
        let is_holder = to + 1 == self.agents.len();
        if self.broken[to] {
            return self.answered(by, Err(Failure::Broken));
        }
        if request.via.is_empty() {
            let answer = is_holder.then_some(()).ok_or(Failure::Refused);
            return self.answered(by, answer);
        }
        match self.agents[to].ask(request, None) {
            Asked::Refused(_) => self.answered(by, Err(Failure::Refused)),
            Asked::Waits(number) => match self.waiting.get_mut(&(to, number)) {
                Some(waiting) => waiting.push(by),
                None => self.answer_from((to, number), by),
            },
            Asked::Begins(number, forwarded) => {
                self.waiting.insert((to, number), vec![by]);
                self.forward((to, number), forwarded);
            }
        }
    }

    fn forward(&mut self, by: (usize, u64), Forwarded { agent, request }: Forwarded) {
        self.sent.push((agent_at(agent), request, Some(by)));
    }

    /// Answers a request from a transfer that is whole.
    fn answer_from(&mut self, (agent, number): (usize, u64), by: Sender) {
        self.answered(by, Ok(()));
        self.agents[agent].answered(number);
    }

    /// The sender of a request has its answer.
    fn answered(&mut self, by: Sender, answer: Result<(), Failure>) {
        let Some((agent, number)) = by else {
            match answer {
                Ok(()) => self.answers.0 += 1,
                Err(_) => self.answers.1 += 1,
            }
            return;
        };
        let how = match answer {
            Ok(()) => {
                // Some wait, or their sender would not have asked.
                assert!(!self.agents[agent].arrived(number));
                let waiting = self.waiting.remove(&(agent, number)).unwrap_or_default();
                return (waiting.into_iter()).for_each(|by| self.answer_from((agent, number), by));
            }
            Err(how) => how,
        };
        if let Some(forwarded) = self.agents[agent].failed(number, how) {
            return self.forward((agent, number), forwarded);
        }
        for by in self.waiting.remove(&(agent, number)).unwrap_or_default() {
            self.answered(by, Err(Failure::Refused));
        }
    }

    fn kept(&self) -> u64 {
        self.agents.iter().map(Passing::bytes).sum()
    }
}

/// Members of this many hosts need the same parts. Each host has so many of them.
fn a_chain_takes_each_part_once(members: &[u32], parts: u64, order: &[u32]) {
    let hosts = members.len();
    let mut network = Network::new(vec![false; hosts + 1]);
    let expected = |host: usize| {
        let is_last = host + 1 == hosts;
        let passes = !is_last || members[host] > 1;
        (passes, members[host] + u32::from(!is_last))
    };
    for part in 0..parts {
        for (host, &count) in members.iter().enumerate() {
            // Its own agent, and those of the hosts before.
            let path = (0..=host).rev().filter(|&host| expected(host).0);
            let path: Vec<_> = path.map(|host| (host, expected(host).1)).collect();
            let Some((&(first, requests), rest)) = path.split_first() else {
                network.sent.push((hosts, request(part, &[], 0), None));
                continue;
            };
            let via: Vec<_> = rest.iter().copied().chain([(hosts, 0)]).collect();
            for _ in 0..count {
                let request = request(part, &via, requests);
                network.sent.push((first, request, None));
            }
        }
    }
    network.run(order);
    let all = members.iter().sum::<u32>() * parts as u32;
    assert_eq!(network.answers, (all, 0));
    assert_eq!(network.counts[hosts], parts as u32, "read from the holder");
    assert_eq!(network.kept(), 0, "kept for nobody");
}

/// Requests with any lists, which may name their own agent and contradict each other.
fn no_request_waits_for_itself(entropy: &[u32]) {
    let mut numbers = entropy.iter().copied().chain(std::iter::repeat(0));
    let mut below = |limit: usize| numbers.next().unwrap_or(0) as usize % limit;
    let count = 2 + below(5);
    let mut broken: Vec<_> = (0..count).map(|_| below(5) == 0).collect();
    broken[count - 1] = false;
    let mut network = Network::new(broken);
    for _ in 0..1 + below(8) {
        let via: Vec<_> = (0..below(5)).map(|_| (below(count), 1)).collect();
        let via: Vec<_> = via.into_iter().chain([(count - 1, 0)]).collect();
        let part = below(2) as u64;
        let to = below(count - 1);
        network.sent.push((to, request(part, &via, 1), None));
    }
    let order: Vec<u32> = (0..40).map(|_| below(1 << 20) as u32).collect();
    network.run(&order);
    for (number, agent) in network.agents.iter_mut().enumerate() {
        agent.end(Round(2));
        assert_eq!(agent.bytes(), 0, "agent {number}");
    }
}

fn entropy() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(any::<u32>(), 0..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn each_part_of_a_chain_is_read_once(
        members in prop::collection::vec(1_u32..4, 1..6),
        parts in 1_u64..4,
        order in entropy(),
    ) {
        a_chain_takes_each_part_once(&members, parts, &order);
    }

    #[test]
    fn any_lists_end(entropy in entropy()) {
        no_request_waits_for_itself(&entropy);
    }
}

#[test]
fn parts_are_shared_and_freed() {
    requests_for_the_same_parts_share_a_transfer();
}

#[test]
fn parts_end_with_the_round() {
    nothing_is_kept_beyond_the_round();
}

#[test]
fn the_next_agent_takes_the_place_of_one_that_failed() {
    a_failed_agent_is_skipped();
}

#[cfg(feature = "mutants")]
#[test]
fn each_mistake_is_found() {
    use elasticrun_core::agent::passing::mutant::{Mutant, plant};
    let circles = || {
        // Two agents that ask each other, and one that asks itself.
        for order in 0..20 {
            let mut network = Network::new(vec![false; 3]);
            let lists = [(0, [(1, 1), (2, 0)]), (1, [(0, 1), (2, 0)])];
            for (to, via) in lists {
                network.sent.push((to, request(0, &via, 1), None));
            }
            network.run(&[order, order / 2, order / 4]);
        }
    };
    circles();
    let found = |mistake: Mutant, test: &(dyn Fn() + std::panic::RefUnwindSafe)| {
        plant(Some(mistake));
        let ended = std::panic::catch_unwind(test);
        plant(None);
        assert!(ended.is_err(), "{mistake:?} is not found");
    };
    found(Mutant::KeptBeyondRound, &nothing_is_kept_beyond_the_round);
    found(Mutant::ForwardedInACircle, &circles);
    found(Mutant::FailedAskedAgain, &a_failed_agent_is_skipped);
    found(Mutant::AnsweredKept, &|| {
        a_chain_takes_each_part_once(&[2, 1], 2, &[]);
    });
    assert_eq!(Mutant::ALL.len(), 4);
}
