//! Plans against an enumeration of all elements, on random layouts, hosts and holders.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::{Draw, draw_layout, draw_tensors, local_elements};
use elasticrun_reshard::{
    Axis, Body, Chain, Division, Dtype, Flow, Holder, Layout, Link, Mesh, Plan, PlanError, Rect,
    Relay, Run, Seat, Tensor,
};
use proptest::prelude::*;

/// A host, and its member. None is its agent.
type Asker = (u32, Option<u32>);

/// What is asked for: holder, old tensor, and runs of bytes.
type Asked = (u32, usize, Vec<(u64, u64)>);

/// A host that is asked, and for what.
type AskedOf = (u32, u32, usize, Vec<(u64, u64)>);

/// Who asks each host for what.
#[derive(Default)]
struct Askers(BTreeMap<AskedOf, AskedFor>);

#[derive(Default)]
struct AskedFor {
    by: BTreeMap<Asker, u32>,
    bytes: u64,
    /// The requests that its agent waits for.
    expected: Option<u32>,
}

impl Askers {
    fn entry(&mut self, host: u32, (holder, tensor, runs): &Asked) -> &mut AskedFor {
        self.0
            .entry((host, *holder, *tensor, runs.clone()))
            .or_default()
    }

    fn ask(&mut self, host: u32, asker: Asker, what: &Asked, bytes: u64) {
        let asked = self.entry(host, what);
        *asked.by.entry(asker).or_default() += 1;
        asked.bytes = bytes;
    }

    fn expect(&mut self, host: u32, what: &Asked, requests: u32) {
        self.entry(host, what).expected = Some(requests);
    }
}

/// Two layouts of the same tensors, who holds the old one, and who is to hold the new one.
#[derive(Debug)]
struct Case {
    old: Layout,
    new: Layout,
    seats: Vec<Seat>,
    holders: Vec<Holder>,
}

impl Case {
    fn new(draw: &mut Draw<'_>) -> Self {
        let tensors = draw_tensors(draw);
        // Now and then a layout has a tensor more.
        let mut common = [tensors.clone(), tensors];
        for (nth, tensors) in common.iter_mut().enumerate() {
            if draw.below(4) == 0 {
                let mut extra = tensors[0].clone();
                extra.name = format!("layers.{}.extra", draw.below(3));
                extra.name.push_str(["", "s"][nth]);
                tensors.push(extra);
            }
        }
        let [old, new] = common.map(|tensors| draw_layout(draw, tensors));
        let hosts = 1 + draw.below(4);
        let mut seats: Vec<Seat> = Vec::new();
        for shard in 0..new.shards() {
            // Shards without a member, with one, and with two.
            for _ in 0..[1, 1, 1, 2, 0][draw.below(5)] {
                let host = draw.below(hosts) as u32 * 3;
                seats.push(Seat {
                    shard,
                    host,
                    rank: 0,
                });
            }
        }
        for index in (1..seats.len()).rev() {
            seats.swap(index, draw.below(index + 1));
        }
        for (rank, seat) in (0..).zip(&mut seats) {
            seat.rank = 10 + rank;
        }
        let mut survivors = seats.clone();
        let lacking = draw.below(8) == 0;
        let mut holders = Vec::new();
        for shard in 0..old.shards() {
            for _ in 0..[1, 1, 1, 2, usize::from(!lacking)][draw.below(5)] {
                let order = draw.below(3) as u32;
                let survivor = (!survivors.is_empty() && draw.below(3) > 0)
                    .then(|| survivors.swap_remove(draw.below(survivors.len())));
                let host = match &survivor {
                    Some(seat) => seat.host,
                    None => draw.below(hosts + 1) as u32 * 3,
                };
                let rank = survivor.map(|seat| seat.rank);
                holders.push(Holder {
                    shard,
                    host,
                    rank,
                    order,
                });
            }
        }
        Self {
            old,
            new,
            seats,
            holders,
        }
    }

    /// The tensors that both layouts have: index in the old one, index in the new one.
    fn pairs(&self) -> Vec<(usize, usize)> {
        let find = |tensor: &Tensor| {
            self.new
                .tensors()
                .iter()
                .position(|new| new.name == tensor.name)
        };
        let old = self.old.tensors().iter().enumerate();
        old.filter_map(|(old, tensor)| Some((old, find(tensor)?)))
            .collect()
    }

    /// For each new tensor and element the holders that have it.
    fn holders_of(&self) -> BTreeMap<(usize, u64), BTreeSet<u32>> {
        let mut found: BTreeMap<(usize, u64), BTreeSet<u32>> = BTreeMap::new();
        for (old, new) in self.pairs() {
            for (index, holder) in (0..).zip(&self.holders) {
                for element in local_elements(&self.old, old, holder.shard) {
                    found.entry((new, element)).or_default().insert(index);
                }
            }
        }
        found
    }

    /// The tensors and elements that a member needs and the old layout has.
    fn needs(&self, seat: &Seat) -> BTreeSet<(usize, u64)> {
        let tensors = self.pairs().into_iter().map(|(_, new)| new);
        let needed = |new| {
            let elements = local_elements(&self.new, new, seat.shard);
            elements.into_iter().map(move |element| (new, element))
        };
        tensors.flat_map(needed).collect()
    }

    fn itemsize(&self, tensor: usize) -> u64 {
        self.new.tensors()[tensor].dtype.itemsize.into()
    }

    /// `least` is what is worth to be passed on.
    fn check(&self, least: u64) -> Result<(), TestCaseError> {
        let holders_of = self.holders_of();
        let needs: Vec<_> = self.seats.iter().map(|seat| self.needs(seat)).collect();
        let plan = Plan::new(&self.old, &self.new, &self.seats, &self.holders, least);
        let is_lacking = |key: &(usize, u64)| !holders_of.contains_key(key);
        if needs.iter().flatten().any(is_lacking) {
            let Err(PlanError::Lacking { shard }) = plan else {
                return Err(TestCaseError::fail(format!("not lacking: {plan:?}")));
            };
            let has = self.pairs().into_iter().any(|(old, new)| {
                let mut elements = local_elements(&self.old, old, shard).into_iter();
                elements.any(|element| is_lacking(&(new, element)))
            });
            prop_assert!(has, "shard {shard} has nothing that is lacking");
            return Ok(());
        }
        let plan = plan.map_err(|error| TestCaseError::fail(error.to_string()))?;
        let names = |layout: &Layout, list: &[u32]| -> BTreeSet<String> {
            list.iter()
                .map(|&index| layout.tensors()[index as usize].name.clone())
                .collect()
        };
        let all = |layout: &Layout| -> BTreeSet<String> {
            layout
                .tensors()
                .iter()
                .map(|tensor| tensor.name.clone())
                .collect()
        };
        let (old, new) = (all(&self.old), all(&self.new));
        prop_assert_eq!(names(&self.new, &plan.differences().missing), &new - &old);
        prop_assert_eq!(names(&self.old, &plan.differences().extra), &old - &new);

        // What each fetch does to each element.
        let mut between: BTreeMap<(u32, u32, u32), u64> = BTreeMap::new();
        let mut askers = Askers::default();
        let mut fetched: Vec<BTreeMap<(usize, u64), u32>> = Vec::new();
        for (me, seat) in (0..).zip(&self.seats) {
            let mut written = BTreeMap::new();
            let mut order = Vec::new();
            for fetch in plan.fetches(me) {
                let (tensor, old) = (fetch.tensor as usize, fetch.old_tensor as usize);
                prop_assert_eq!(
                    &self.new.tensors()[tensor].name,
                    &self.old.tensors()[old].name
                );
                order.push(fetch.tensor);
                let holder = self.holders[fetch.holder as usize];
                let source = local_elements(&self.old, old, holder.shard);
                let target = local_elements(&self.new, tensor, seat.shard);
                let item = self.itemsize(tensor);
                let mut bytes = 0;
                let mut last: Option<Run> = None;
                for run in fetch.runs() {
                    prop_assert!(run.len > 0);
                    if let Some(last) = last {
                        let (source, target) = (last.source + last.len, last.target + last.len);
                        prop_assert!(run.source >= source && run.target >= target);
                        prop_assert!(
                            (run.source, run.target) != (source, target),
                            "two runs are one"
                        );
                    }
                    last = Some(run);
                    for offset in [run.source, run.target, run.len] {
                        prop_assert_eq!(offset % item, 0);
                    }
                    for nth in 0..run.len / item {
                        let element = target[(run.target / item + nth) as usize];
                        prop_assert_eq!(source[(run.source / item + nth) as usize], element);
                        prop_assert_eq!(
                            written.insert((tensor, element), fetch.holder),
                            None,
                            "written twice"
                        );
                    }
                    bytes += run.len;
                }
                prop_assert_eq!(fetch.bytes(), bytes);
                prop_assert!(bytes > 0);
                if holder.host == seat.host {
                    prop_assert_eq!(fetch.chain, None);
                    continue;
                }
                let runs: Vec<_> = fetch.runs().map(|run| (run.source, run.len)).collect();
                let what = (fetch.holder, old, runs);
                let Some(chain) = fetch.chain else {
                    askers.ask(holder.host, (seat.host, Some(me)), &what, bytes);
                    continue;
                };
                let chain = &plan.chains()[chain as usize];
                prop_assert_eq!(chain.holder, fetch.holder);
                prop_assert!(chain.bytes >= least);
                let relays = chain.relays(seat.host);
                prop_assert!(relays.is_sorted_by(|a, b| a.host > b.host), "a circle");
                let mut asker = (seat.host, Some(me));
                for relay in &relays {
                    prop_assert!(relay.host <= seat.host && relay.host != holder.host);
                    askers.ask(relay.host, asker, &what, bytes);
                    askers.expect(relay.host, &what, relay.requests);
                    asker = (relay.host, None);
                }
                askers.ask(holder.host, asker, &what, bytes);
            }
            prop_assert!(order.is_sorted());
            prop_assert!(
                written
                    .keys()
                    .copied()
                    .eq(needs[me as usize].iter().copied())
            );
            fetched.push(written);
        }

        // Each agent is asked as often as the plan says, and a holder once for what is passed on.
        for ((host, holder, ..), asked) in &askers.0 {
            for asker in asked.by.keys().filter(|asker| asker.0 != *host) {
                *between.entry((asker.0, *holder, *host)).or_default() += asked.bytes;
            }
            match asked.expected {
                Some(requests) => prop_assert_eq!(asked.by.len(), requests as usize),
                None if least == 0 => prop_assert_eq!(asked.by.len(), 1),
                None => {}
            }
        }
        // Where it comes from.
        for (seat, fetched) in self.seats.iter().zip(&fetched) {
            for (key, from) in fetched {
                let all = || {
                    holders_of[key]
                        .iter()
                        .map(|&index| &self.holders[index as usize])
                };
                let from = &self.holders[*from as usize];
                if all().any(|holder| holder.rank == Some(seat.rank)) {
                    prop_assert_eq!(from.rank, Some(seat.rank));
                } else if let Some(order) = all()
                    .filter(|holder| holder.host == seat.host)
                    .map(|holder| holder.order)
                    .min()
                {
                    prop_assert_eq!((from.host, from.order), (seat.host, order));
                }
            }
        }

        // Bytes between hosts: what a host needs and has not.
        let flows = plan.flows();
        let found: BTreeMap<(u32, u32, u32), u64> = (flows.between.iter())
            .map(|flow| ((flow.host, flow.holder, flow.from), flow.bytes))
            .collect();
        prop_assert_eq!(found.len(), flows.between.len());
        prop_assert_eq!(&found, &between);
        prop_assert!(
            flows
                .between
                .iter()
                .all(|flow| flow.shard == self.holders[flow.holder as usize].shard)
        );
        let used = self
            .seats
            .iter()
            .map(|seat| seat.host)
            .chain(self.holders.iter().map(|holder| holder.host));
        let used: BTreeSet<u32> = used.collect();
        prop_assert!(flows.hosts.iter().map(|host| host.host).eq(used));
        for host in &flows.hosts {
            let needs: BTreeSet<(usize, u64)> = (self.seats.iter().zip(&needs))
                .filter(|(seat, _)| seat.host == host.host)
                .flat_map(|(_, needs)| needs.iter().copied())
                .collect();
            let has = |key: &(usize, u64)| {
                holders_of[key]
                    .iter()
                    .any(|&index| self.holders[index as usize].host == host.host)
            };
            let bound: u64 = needs
                .iter()
                .filter(|key| !has(key))
                .map(|key| self.itemsize(key.0))
                .sum();
            if least == 0 {
                prop_assert_eq!(host.received, bound);
            }
            prop_assert!(host.received >= bound);
            let flow = |own: fn(&Flow) -> u32| {
                let own = flows.between.iter().filter(|flow| own(flow) == host.host);
                own.map(|flow| flow.bytes).sum::<u64>()
            };
            prop_assert_eq!(host.sent, flow(|flow| flow.from));
            prop_assert_eq!(host.received, flow(|flow| flow.host));
            let kept = askers
                .0
                .iter()
                .filter(|((other, ..), asked)| *other == host.host && asked.expected.is_some());
            prop_assert_eq!(host.passed, kept.map(|(_, asked)| asked.bytes).sum::<u64>());
            let held = self
                .holders
                .iter()
                .filter(|holder| holder.host == host.host);
            prop_assert_eq!(
                host.held,
                held.map(|holder| self.old.bytes(holder.shard)).sum::<u64>()
            );
            let live = self.seats.iter().filter(|seat| seat.host == host.host);
            prop_assert_eq!(
                host.live,
                live.map(|seat| self.new.bytes(seat.shard)).sum::<u64>()
            );
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn a_plan_moves_each_element_once_and_as_little_as_possible(
        entropy in prop::collection::vec(any::<u32>(), 0..500),
    ) {
        let case = Case::new(&mut Draw(&entropy));
        case.check(0)?;
        case.check(100)?;
        case.check(u64::MAX)?;
    }
}

/// A transformer in small, with a bias of three elements, divided by FSDP2 among so many workers.
fn fsdp(shards: u32) -> Layout {
    let tensor = |name: &str, shape: &[u64], dtype: Dtype, division: Division| Tensor {
        name: name.into(),
        dtype,
        shape: shape.to_vec(),
        division,
    };
    let cut = || Division::Mesh {
        mesh: 0,
        axes: vec![Axis::Shard { dim: 0 }],
    };
    let float = || Dtype::new("float32", 4);
    let mut tensors = vec![
        tensor("step", &[], float(), Division::Whole),
        tensor("bias", &[3], Dtype::new("bfloat16", 2), cut()),
        tensor("norm", &[64], float(), cut()),
    ];
    for (layer, rows) in [64, 50, 7].into_iter().enumerate() {
        tensors.push(tensor(
            &format!("layers.{layer}"),
            &[rows, 33],
            float(),
            cut(),
        ));
    }
    Layout::new(shards, vec![Mesh::line(shards)], tensors)
        .unwrap()
        .0
}

/// One member for each shard, all on their own hosts or on one.
fn members(shards: u32, on_one_host: bool) -> (Vec<Seat>, Vec<Holder>) {
    let seat = |shard: u32| Seat {
        shard,
        host: if on_one_host { 0 } else { shard },
        rank: shard,
    };
    let holder = |shard: u32| {
        let Seat { shard, host, rank } = seat(shard);
        Holder {
            shard,
            host,
            rank: Some(rank),
            order: 0,
        }
    };
    (
        (0..shards).map(seat).collect(),
        (0..shards).map(holder).collect(),
    )
}

#[test]
fn the_same_division_moves_nothing_between_hosts_and_in_one_run() {
    let (old, new) = (fsdp(4), fsdp(4));
    let (seats, holders) = members(4, false);
    let plan = Plan::new(&old, &new, &seats, &holders, 0).unwrap();
    assert_eq!(plan.flows().between, []);
    for me in 0..4 {
        for fetch in plan.fetches(me) {
            assert_eq!((fetch.holder, fetch.chain), (me, None));
            let len = new.local_bytes(fetch.tensor, me);
            let runs: Vec<Run> = fetch.runs().collect();
            assert_eq!(
                runs,
                [Run {
                    source: 0,
                    target: 0,
                    len
                }]
            );
        }
    }
}

#[test]
fn a_cut_of_rows_is_one_run_for_each_source() {
    let (old, new) = (fsdp(4), fsdp(3));
    let (seats, _) = members(3, true);
    let (_, holders) = members(4, true);
    let plan = Plan::new(&old, &new, &seats, &holders, 0).unwrap();
    for me in 0..3 {
        assert!(
            plan.fetches(me)
                .iter()
                .all(|fetch| fetch.runs().count() == 1)
        );
    }
}

/// The bodies of all shards of a state whose tensors have these bytes.
fn bodies(layout: &Layout, whole: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let body = |shard| {
        let body = Body::new(layout, shard, 5).unwrap();
        let mut bytes = vec![0; body.len()];
        bytes[..Body::HEADER].copy_from_slice(&body.header());
        bytes[body.layout()].copy_from_slice(layout.as_bytes());
        bytes[body.head()].copy_from_slice(b"head!");
        for (tensor, range) in body.tensors().iter().enumerate() {
            let item = usize::from(layout.tensors()[tensor].dtype.itemsize);
            let elements = local_elements(layout, tensor, shard).into_iter();
            let local: Vec<u8> = elements
                .flat_map(|element| whole[tensor][element as usize * item..][..item].to_vec())
                .collect();
            bytes[range.clone()].copy_from_slice(&local);
        }
        bytes
    };
    (0..layout.shards()).map(body).collect()
}

/// The bodies of all new shards, read from those of the old ones by the plan of each member.
fn reshard(new: &Layout, bodies: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let (old, _) = Body::parse(&bodies[0]).unwrap();
    let sources: Vec<Body> = bodies
        .iter()
        .map(|bytes| Body::parse_with(&old, bytes).unwrap())
        .collect();
    let (seats, _) = members(new.shards(), true);
    let (_, holders) = members(old.shards(), true);
    let plan = Plan::new(&old, new, &seats, &holders, 0).unwrap();
    let mut made = Vec::new();
    for me in 0..new.shards() {
        let body = Body::new(new, me, 5).unwrap();
        let mut bytes = vec![0; body.len()];
        bytes[..Body::HEADER].copy_from_slice(&body.header());
        bytes[body.layout()].copy_from_slice(new.as_bytes());
        bytes[body.head()].copy_from_slice(&bodies[0][sources[0].head()]);
        for fetch in plan.fetches(me) {
            let shard = holders[fetch.holder as usize].shard as usize;
            let source =
                &bodies[shard][sources[shard].tensors()[fetch.old_tensor as usize].clone()];
            let target = &mut bytes[body.tensors()[fetch.tensor as usize].clone()];
            for run in fetch.runs() {
                let [from, to, len] =
                    [run.source, run.target, run.len].map(|number| number as usize);
                target[to..to + len].copy_from_slice(&source[from..from + len]);
            }
        }
        made.push(bytes);
    }
    made
}

/// Random bytes for all tensors of a layout.
fn contents(layout: &Layout) -> Vec<Vec<u8>> {
    let mut state = 1_u64;
    (layout.tensors().iter())
        .map(|tensor| {
            let bytes = tensor.shape.iter().product::<u64>() * u64::from(tensor.dtype.itemsize);
            let mut next = || {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (state >> 56) as u8
            };
            (0..bytes).map(|_| next()).collect()
        })
        .collect()
}

#[test]
fn four_shards_become_three_and_four_again_bit_by_bit() {
    let (four, three) = (fsdp(4), fsdp(3));
    let contents = contents(&four);
    let before = bodies(&four, &contents);
    let between = reshard(&three, &before);
    assert_eq!(between, bodies(&three, &contents));
    assert_eq!(reshard(&four, &between), before);
}

proptest! {
    #[test]
    fn any_division_becomes_any_other_bit_by_bit(entropy in prop::collection::vec(any::<u32>(), 0..300)) {
        let draw = &mut Draw(&entropy);
        let tensors = draw_tensors(draw);
        let [a, b] = [0, 1].map(|_| draw_layout(draw, tensors.clone()));
        let contents = contents(&a);
        let before = bodies(&a, &contents);
        let between = reshard(&b, &before);
        prop_assert_eq!(&between, &bodies(&b, &contents));
        prop_assert_eq!(reshard(&a, &between), before);
    }
}

#[test]
fn hosts_with_equal_demands_are_served_by_different_ones() {
    let whole = Tensor {
        name: "weight".into(),
        dtype: Dtype::new("float32", 4),
        shape: vec![1000],
        division: Division::Whole,
    };
    let (layout, _) = Layout::new(1, Vec::new(), vec![whole]).unwrap();
    let holders: Vec<Holder> = (0..4)
        .map(|host| Holder {
            shard: 0,
            host,
            rank: None,
            order: host,
        })
        .collect();
    let seats: Vec<Seat> = (0..10)
        .map(|rank| Seat {
            shard: 0,
            host: 10 + rank,
            rank,
        })
        .collect();
    let plan = Plan::new(&layout, &layout, &seats, &holders, 4001).unwrap();
    let sent = |host: u32| plan.flows().hosts[host as usize].sent;
    assert_eq!([0, 1, 2, 3].map(sent), [12_000, 12_000, 8000, 8000]);
}

#[test]
fn tensors_that_are_not_the_same_are_refused_by_name() {
    let tensor = |shape: &[u64], dtype| Tensor {
        name: "weight".into(),
        dtype,
        shape: shape.to_vec(),
        division: Division::Whole,
    };
    let layout = |tensor| Layout::new(1, Vec::new(), vec![tensor]).unwrap().0;
    let old = layout(tensor(&[6], Dtype::new("float32", 4)));
    let (seats, holders) = members(1, true);
    let error = |new: &Layout| {
        Plan::new(&old, new, &seats, &holders, 0)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        error(&layout(tensor(&[2, 3], Dtype::new("float32", 4)))),
        "tensor \"weight\" has shape [2, 3], and [6] in the commit: do all rounds build the same model?"
    );
    assert_eq!(
        error(&layout(tensor(&[6], Dtype::new("int32", 4)))),
        "tensor \"weight\" has dtype int32 of 4 bytes, and float32 of 4 bytes in the commit: do all rounds build the same model?"
    );
    let beyond = [Seat {
        shard: 1,
        host: 0,
        rank: 7,
    }];
    let error = Plan::new(&old, &old, &beyond, &holders, 0).unwrap_err();
    assert_eq!(
        error,
        PlanError::Seat {
            rank: 7,
            shard: 1,
            shards: 1
        }
    );
    let beyond = [Holder {
        shard: 3,
        host: 0,
        rank: None,
        order: 0,
    }];
    let error = Plan::new(&old, &old, &seats, &beyond, 0).unwrap_err();
    assert_eq!(
        error,
        PlanError::Holder {
            shard: 3,
            shards: 1
        }
    );
}

#[test]
fn a_stage_of_a_pipeline_needs_its_own_tensors_only() {
    // Two stages of two workers each, of which one stage has all its holders lost.
    let tensor = |stage: u16| Tensor {
        name: format!("stages.{stage}"),
        dtype: Dtype::new("float32", 4),
        shape: vec![10, 2],
        division: Division::Mesh {
            mesh: stage,
            axes: vec![Axis::Shard { dim: 0 }],
        },
    };
    let mesh = |shards: [u32; 2]| Mesh {
        shape: vec![2],
        shards: shards.to_vec(),
    };
    let meshes = vec![mesh([0, 1]), mesh([2, 3])];
    let (layout, _) = Layout::new(4, meshes, vec![tensor(0), tensor(1)]).unwrap();
    let (seats, holders) = members(4, false);
    let plan = Plan::new(&layout, &layout, &seats[..2], &holders[..2], 0).unwrap();
    assert_eq!(plan.fetches(1).len(), 1);
    let error = Plan::new(&layout, &layout, &seats[..3], &holders[..2], 0).unwrap_err();
    assert_eq!(error, PlanError::Lacking { shard: 2 });
}

#[test]
fn an_owner_of_whole_tensors_sends_each_once_to_a_host() {
    // ZeRO-1: an optimizer state has one owner, a parameter is with all.
    let owned = |name: &str, owner| Tensor {
        name: name.into(),
        dtype: Dtype::new("float32", 4),
        shape: vec![5, 5],
        division: Division::Explicit(vec![(
            owner,
            vec![Rect {
                offset: vec![0, 0],
                len: vec![5, 5],
            }],
        )]),
    };
    let parameter = Tensor {
        division: Division::Whole,
        ..owned("parameter", 0)
    };
    let old = vec![owned("a", 0), owned("b", 1), parameter.clone()];
    let new = vec![owned("a", 2), owned("b", 1), parameter];
    let [(old, _), (new, _)] =
        [old, new].map(|tensors| Layout::new(3, Vec::new(), tensors).unwrap());
    // Ranks 1 and 2 are new and on one host.
    let seats = [(0, 0), (1, 1), (2, 1)];
    let seats = seats.map(|(rank, host)| Seat {
        shard: rank,
        host,
        rank,
    });
    let holders = [(0, Some(0)), (1, None), (2, None)];
    let holders = holders.map(|(shard, rank)| Holder {
        shard,
        host: 0,
        rank,
        order: shard,
    });
    let plan = Plan::new(&old, &new, &seats, &holders, 0).unwrap();
    assert_eq!(plan.flows().hosts[1].received, 300);
    let from = |me| {
        plan.fetches(me)
            .iter()
            .map(|fetch| (fetch.tensor, fetch.holder, fetch.chain))
            .collect::<Vec<_>>()
    };
    assert_eq!(from(0), [(2, 0, None)]);
    assert_eq!(from(1), [(1, 1, None), (2, 0, Some(0))]);
    assert_eq!(from(2), [(0, 0, None), (2, 0, Some(0))]);
    let chain = Chain {
        holder: 0,
        bytes: 100,
        hosts: vec![Link {
            host: 1,
            readers: 2,
        }],
    };
    assert_eq!(plan.chains(), [chain]);
    // Too little to be passed on: both members read it from the holder.
    let plan = Plan::new(&old, &new, &seats, &holders, 101).unwrap();
    assert_eq!(plan.chains(), []);
    assert_eq!(plan.flows().hosts[1].received, 400);
}

#[test]
fn hosts_that_need_one_shard_form_a_chain() {
    let layout = fsdp(2);
    // Host 4 has shard 0. Hosts 1, 2 and 7 need it, and host 2 does so twice.
    let hosts = [4, 7, 2, 1, 2];
    let seats: Vec<_> = (0..)
        .zip(hosts)
        .map(|(rank, host)| Seat {
            shard: 0,
            host,
            rank,
        })
        .collect();
    let holder = Holder {
        shard: 0,
        host: 4,
        rank: Some(0),
        order: 0,
    };
    let holders = [holder];
    let plan = Plan::new(&layout, &layout, &seats, &holders, 1).unwrap();
    // What both shards hold is cut in another way than the rest, and has the same readers here.
    let whole = layout.bytes(0);
    assert_eq!(
        plan.chains().iter().map(|chain| chain.bytes).sum::<u64>(),
        whole
    );
    let relay = |host, requests| Relay { host, requests };
    for chain in plan.chains() {
        assert_eq!(chain.relays(1), [relay(1, 2)]);
        assert_eq!(chain.relays(2), [relay(2, 3), relay(1, 2)]);
        assert_eq!(chain.relays(7), [relay(2, 3), relay(1, 2)]);
    }
    let flows: BTreeMap<_, _> = (plan.flows().between.iter())
        .map(|flow| ((flow.from, flow.host), flow.bytes))
        .collect();
    let expected = [((4, 1), whole), ((1, 2), whole), ((2, 7), whole)];
    assert_eq!(flows, BTreeMap::from(expected));
    let passed = |host: u32| {
        let flows = plan.flows();
        let mut hosts = flows.hosts.iter().filter(|other| other.host == host);
        hosts.next().unwrap().passed
    };
    assert_eq!([1, 2, 4, 7].map(passed), [whole, whole, 0, 0]);
}

#[test]
fn rectangles_along_different_dimensions_are_told_apart() {
    let tensor = |name: &str, dim: usize| {
        let half = |start: u64| {
            let mut rect = Rect {
                offset: vec![0, 0],
                len: vec![4, 4],
            };
            (rect.offset[dim], rect.len[dim]) = (start, 2);
            vec![rect]
        };
        Tensor {
            name: name.into(),
            dtype: Dtype::new("float32", 4),
            shape: vec![4, 4],
            division: Division::Explicit(vec![(0, half(0)), (1, half(2))]),
        }
    };
    let tensors = vec![tensor("columns", 1), tensor("rows", 0)];
    let (old, _) = Layout::new(2, Vec::new(), tensors.clone()).unwrap();
    let whole = |tensor: Tensor| Tensor {
        division: Division::Whole,
        ..tensor
    };
    let (new, _) = Layout::new(1, Vec::new(), tensors.into_iter().map(whole).collect()).unwrap();
    let contents = contents(&old);
    assert_eq!(
        reshard(&new, &bodies(&old, &contents)),
        bodies(&new, &contents)
    );
}
