//! Candidates in virtual time, on an etcd that is slow, loses answers, and ends leases late.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

const TTL: Duration = Duration::from_secs(5);
const SECOND: Duration = Duration::from_secs(1);
const START: Time = Time::after_boot(Duration::from_secs(1000));

/// The two keys and the leases.
#[derive(Default)]
struct Etcd {
    revision: i64,
    leader: Option<(Holder, Revision, LeaseId)>,
    epoch: (u64, Revision),
    /// When each lease ends.
    leases: Vec<(LeaseId, Time)>,
    /// The epochs of all leaders, in order.
    epochs: Vec<u64>,
}

impl Etcd {
    /// Ends leases that are over, with their keys.
    fn expire(&mut self, now: Time) {
        self.leases.retain(|(_, end)| now < *end);
        let ids: Vec<_> = self.leases.iter().map(|(id, _)| *id).collect();
        if self
            .leader
            .as_ref()
            .is_some_and(|(_, _, lease)| !ids.contains(lease))
        {
            self.leader = None;
            self.revision += 1;
        }
    }

    /// Executes a command at `now`. `sent` is when it was sent.
    fn execute(&mut self, now: Time, sent: Time, command: &Command) -> Option<Event> {
        self.expire(now);
        match command {
            Command::Observe => Some(Event::Observed {
                leader: self.leader.clone(),
                epoch: self.epoch,
                revision: Revision(self.revision),
            }),
            Command::Grant(ttl) => {
                let lease = LeaseId(self.leases.len() as i64 + self.revision * 100 + 1);
                self.revision += 1;
                self.leases.push((lease, now + *ttl));
                Some(Event::Granted {
                    sent,
                    lease,
                    ttl: *ttl,
                })
            }
            Command::KeepAlive(lease) => {
                let found = self.leases.iter_mut().find(|(id, _)| id == lease);
                let ttl = found.map(|(_, end)| {
                    *end = now + TTL;
                    TTL
                });
                let lease = *lease;
                Some(Event::KeptAlive { sent, lease, ttl })
            }
            Command::Campaign {
                holder,
                lease,
                seen,
            } => Some(Event::Campaigned(self.campaign(holder, *lease, *seen))),
            Command::Watch(_) => None,
            Command::Revoke(lease) => {
                self.leases.retain(|(id, _)| id != lease);
                self.expire(now);
                None
            }
        }
    }

    fn campaign(&mut self, holder: &Holder, lease: LeaseId, seen: Revision) -> Option<Revision> {
        let has_lease = self.leases.iter().any(|(id, _)| *id == lease);
        if self.leader.is_some() || self.epoch.1 != seen || !has_lease {
            return None;
        }
        self.revision += 1;
        let revision = Revision(self.revision);
        self.leader = Some((holder.clone(), revision, lease));
        self.epoch = (holder.epoch, revision);
        self.epochs.push(holder.epoch);
        Some(revision)
    }
}

fn candidate(nonce: u64, now: Time) -> Machine {
    let settings = Settings {
        ttl: TTL,
        nonce,
        endpoints: vec![format!("driver-{nonce}:1")],
        give_up: 60 * SECOND,
        leader_gives_up: Some(60 * SECOND),
    };
    Machine::new(settings, now)
}

fn failed() -> Event {
    Event::Failed {
        is_temporary: true,
        why: "no answer".into(),
    }
}

/// Answers all commands of a candidate at once, until it has none.
fn run(machine: &mut Machine, etcd: &mut Etcd, now: Time) -> Vec<Command> {
    let (mut all, mut out) = (Vec::new(), Vec::new());
    machine.tick(now, &mut out);
    while !out.is_empty() {
        let command = out.remove(0);
        if let Some(event) = etcd.execute(now, now, &command) {
            machine.receive(now, event, &mut out);
        }
        all.push(command);
    }
    all
}

fn leading(machine: &Machine) -> Option<(u64, Revision, Time)> {
    match machine.status() {
        Status::Leading {
            epoch,
            fence,
            until,
        } => Some((*epoch, *fence, *until)),
        _ => None,
    }
}

#[test]
fn the_first_candidate_leads_and_the_second_one_watches() {
    let (now, mut etcd) = (START, Etcd::default());
    let (mut first, mut second) = (candidate(1, now), candidate(2, now));
    run(&mut first, &mut etcd, now);
    let (epoch, fence, until) = leading(&first).expect("it leads");
    assert_eq!((epoch, until), (1, now + (TTL - MARGIN)));
    let commands = run(&mut second, &mut etcd, now);
    let Status::Standby(Some(holder)) = second.status() else {
        panic!("{second:?}");
    };
    assert_eq!(holder.endpoints, ["driver-1:1"]);
    let watch = Command::Watch(Revision(etcd.revision + 1));
    assert_eq!(commands, [Command::Observe, watch]);
    assert!(fence <= Revision(etcd.revision));
    // It reads now and then, with one watch.
    let commands = run(&mut second, &mut etcd, now + (TTL - SECOND));
    assert_eq!(commands, []);
    let later = second.next_deadline().expect("it reads again");
    etcd.leases[0].1 += TTL;
    assert_eq!(run(&mut second, &mut etcd, later), [Command::Observe]);
}

#[test]
fn the_end_of_leadership_counts_from_when_the_keep_alive_was_sent() {
    let (now, mut etcd) = (START, Etcd::default());
    let mut machine = candidate(1, now);
    run(&mut machine, &mut etcd, now);
    let (_, _, first) = leading(&machine).expect("it leads");
    let sent = machine.next_deadline().expect("a beat");
    assert!(sent < first);
    let mut out = Vec::new();
    machine.tick(sent, &mut out);
    let answer = etcd.execute(sent, sent, &out[0]).expect("an answer");
    machine.receive(sent + SECOND, answer, &mut out);
    let (_, _, second) = leading(&machine).expect("it leads");
    assert_eq!(second, sent + (TTL - MARGIN));
}

#[test]
fn a_leader_whose_lease_is_gone_leads_again_if_no_other_does() {
    let (now, mut etcd) = (START, Etcd::default());
    let mut machine = candidate(1, now);
    run(&mut machine, &mut etcd, now);
    let late = now + 2 * TTL;
    run(&mut machine, &mut etcd, late);
    let (epoch, _, until) = leading(&machine).expect("it leads");
    assert_eq!((epoch, until), (2, late + (TTL - MARGIN)));
}

#[test]
fn a_leader_whose_place_is_taken_waits_and_leads_again_in_a_later_epoch() {
    let (now, mut etcd) = (START, Etcd::default());
    let (mut first, mut second) = (candidate(1, now), candidate(2, now));
    run(&mut first, &mut etcd, now);
    run(&mut second, &mut etcd, now);
    let late = now + 2 * TTL;
    let mut out = Vec::new();
    second.receive(late, Event::Changed, &mut out);
    for command in std::mem::take(&mut out) {
        let event = etcd.execute(late, late, &command).expect("an answer");
        second.receive(late, event, &mut out);
    }
    while !out.is_empty() {
        let event = etcd.execute(late, late, &out.remove(0)).expect("an answer");
        second.receive(late, event, &mut out);
        out.retain(|command| !matches!(command, Command::KeepAlive(_)));
    }
    assert_eq!(leading(&second).map(|leading| leading.0), Some(2));
    run(&mut first, &mut etcd, late);
    let Status::Standby(Some(holder)) = first.status() else {
        panic!("{first:?}");
    };
    assert_eq!(holder.nonce, 2);
    // No failure ends it, and the one that leads gives its place back.
    let refusal = Event::Failed {
        is_temporary: false,
        why: "wrong password".into(),
    };
    first.receive(late, refusal, &mut out);
    etcd.leader = None;
    run(&mut first, &mut etcd, late + RETRY);
    assert_eq!(leading(&first).map(|leading| leading.0), Some(3));
}

#[test]
fn a_fenced_write_ends_the_leadership_at_once() {
    let (now, mut etcd) = (START, Etcd::default());
    let mut machine = candidate(1, now);
    run(&mut machine, &mut etcd, now);
    let (_, fence, _) = leading(&machine).expect("it leads");
    let (later, mut out) = (now + SECOND, Vec::new());
    // A refusal of an earlier leadership is of no meaning.
    machine.receive(later, Event::Fenced(Revision(fence.0 - 1)), &mut out);
    assert!(leading(&machine).is_some_and(|leading| leading.2 > later));
    machine.receive(later, Event::Fenced(fence), &mut out);
    assert!(leading(&machine).is_some_and(|leading| leading.2 <= later));
    assert_eq!(out, [Command::Observe]);
}

#[test]
fn a_campaign_whose_answer_is_lost_is_found_to_be_won() {
    let (now, mut etcd) = (START, Etcd::default());
    let (mut machine, mut out) = (candidate(1, now), Vec::new());
    machine.tick(now, &mut out);
    loop {
        let command = out.remove(0);
        let event = etcd.execute(now, now, &command).expect("an answer");
        if matches!(command, Command::Campaign { .. }) {
            machine.receive(now, failed(), &mut out);
            break;
        }
        machine.receive(now, event, &mut out);
    }
    assert!(leading(&machine).is_none());
    run(&mut machine, &mut etcd, now + RETRY);
    let (epoch, fence, until) = leading(&machine).expect("it leads");
    assert_eq!((epoch, fence), (1, etcd.epoch.1));
    assert!(until <= now + RETRY + TTL);
    assert_eq!(etcd.epochs, [1]);
}

#[test]
fn a_key_of_an_earlier_lease_of_the_same_process_is_not_its_own() {
    let now = START;
    let (mut machine, mut out) = (candidate(1, now), Vec::new());
    machine.tick(now, &mut out);
    let holder = Holder {
        epoch: 1,
        nonce: 1,
        endpoints: vec![],
    };
    let observed = Event::Observed {
        leader: Some((holder.clone(), Revision(1), LeaseId(99))),
        epoch: (1, Revision(1)),
        revision: Revision(1),
    };
    machine.receive(now, observed, &mut out);
    assert_eq!(machine.status(), &Status::Standby(Some(holder)));
}

#[test]
fn without_etcd_a_candidate_gives_up_and_names_the_reason() {
    let now = START;
    for has_led in [false, true] {
        let (mut machine, mut etcd) = (candidate(1, now), Etcd::default());
        if has_led {
            run(&mut machine, &mut etcd, now);
        }
        let mut out = Vec::new();
        while let Some(deadline) = machine.next_deadline() {
            machine.tick(deadline, &mut out);
            if !out.is_empty() {
                out.clear();
                machine.receive(deadline, failed(), &mut out);
                out.clear();
            }
            assert!(deadline <= now + 60 * SECOND + TTL);
        }
        assert_eq!(machine.status(), &Status::Unreachable("no answer".into()));
    }
}

#[test]
fn a_refusal_ends_a_candidate_at_once() {
    let now = START;
    let (mut machine, mut out) = (candidate(1, now), Vec::new());
    machine.tick(now, &mut out);
    let refusal = Event::Failed {
        is_temporary: false,
        why: "wrong password".into(),
    };
    machine.receive(now, refusal, &mut out);
    let status = Status::Unreachable("wrong password".into());
    assert_eq!(machine.status(), &status);
}

#[test]
fn a_leader_that_never_gives_up_leads_again_after_a_long_outage() {
    let (mut now, mut etcd) = (START, Etcd::default());
    let settings = Settings {
        ttl: TTL,
        nonce: 1,
        endpoints: Vec::new(),
        give_up: 60 * SECOND,
        leader_gives_up: None,
    };
    let mut machine = Machine::new(settings, now);
    run(&mut machine, &mut etcd, now);
    let (epoch, ..) = leading(&machine).expect("it leads");
    let mut out = Vec::new();
    for _ in 0..100_000 {
        now += SECOND;
        machine.tick(now, &mut out);
        machine.receive(now, failed(), &mut out);
        out.clear();
    }
    let (_, _, until) = leading(&machine).expect("it is not replaced");
    assert!(until < now, "it does not act");
    etcd.leader = None;
    now += SECOND;
    run(&mut machine, &mut etcd, now);
    let (later, _, until) = leading(&machine).expect("it leads again");
    assert!(later > epoch && until > now);
}

#[test]
fn a_leader_that_resigns_gives_its_lease_back() {
    let (now, mut etcd) = (START, Etcd::default());
    let (mut machine, mut out) = (candidate(1, now), Vec::new());
    run(&mut machine, &mut etcd, now);
    machine.receive(now, Event::Resign, &mut out);
    assert_eq!(machine.status(), &Status::Resigned);
    etcd.execute(now, now, &out[0]);
    assert_eq!(etcd.leader, None);
}

/// What is on its way.
enum Mail {
    Request(usize, Time, Command),
    Answer(usize, Event),
}

/// Three candidates, requests and answers that are late or lost, and candidates that stand still for seconds.
struct World {
    now: Time,
    etcd: Etcd,
    machines: [Machine; 3],
    /// Until when each candidate stands still.
    still: [Time; 3],
    /// Each with when it arrives.
    mails: Vec<(Time, Mail)>,
    choices: Vec<u16>,
    count: usize,
}

impl World {
    fn new(choices: Vec<u16>) -> Self {
        let now = START;
        Self {
            now,
            etcd: Etcd::default(),
            machines: [1, 2, 3].map(|nonce| candidate(nonce, now)),
            still: [now; 3],
            mails: Vec::new(),
            choices,
            count: 0,
        }
    }

    /// A number below `limit`.
    fn choose(&mut self, limit: u64) -> u64 {
        let choice = self.choices[self.count % self.choices.len()];
        self.count += 1;
        let mixed = u64::from(choice).wrapping_mul(0x9E37_79B9) ^ self.count as u64;
        (mixed >> 3) % limit
    }

    fn post(&mut self, mail: Mail) {
        let at = self.now + Duration::from_millis(self.choose(400));
        self.mails.push((at, mail));
    }

    /// Sends the commands of a candidate. A request may be lost on its way.
    fn send(&mut self, from: usize, commands: Vec<Command>) {
        for command in commands {
            let is_lost = self.choose(10) == 0;
            match command {
                Command::Watch(_) => {}
                Command::Revoke(_) if is_lost => {}
                _ if is_lost => self.post(Mail::Answer(from, failed())),
                command => self.post(Mail::Request(from, self.now, command)),
            }
        }
    }

    fn step(&mut self) {
        self.now += Duration::from_millis(50);
        self.etcd.expire(self.now);
        let (now, still) = (self.now, self.still);
        let arrives = |(at, mail): &mut (Time, Mail)| match mail {
            Mail::Answer(to, _) if now < still[*to] => false,
            _ => *at <= now,
        };
        let arrived: Vec<_> = self.mails.extract_if(.., arrives).collect();
        for (_, mail) in arrived {
            self.deliver(mail);
        }
        for index in 0..self.machines.len() {
            if self.choose(150) == 0 {
                self.still[index] = now + Duration::from_millis(self.choose(12_000));
            }
            if now >= self.still[index] {
                let mut out = Vec::new();
                self.machines[index].tick(now, &mut out);
                self.send(index, out);
            }
        }
    }

    fn deliver(&mut self, mail: Mail) {
        match mail {
            Mail::Request(from, sent, command) => {
                if let Some(event) = self.etcd.execute(self.now, sent, &command) {
                    let is_lost = self.choose(8) == 0;
                    self.post(Mail::Answer(from, if is_lost { failed() } else { event }));
                }
            }
            Mail::Answer(to, event) => {
                let mut out = Vec::new();
                self.machines[to].receive(self.now, event, &mut out);
                self.send(to, out);
            }
        }
    }

    /// The fences of all candidates that act now.
    fn acting(&self) -> Vec<Revision> {
        let leading = self.machines.iter().filter_map(leading);
        let acting = leading.filter(|(_, _, until)| self.now < *until);
        acting.map(|(_, fence, _)| fence).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_two_candidates_act_at_one_time(choices in prop::collection::vec(any::<u16>(), 997)) {
        let mut world = World::new(choices);
        for _ in 0..1200 {
            world.step();
            let acting = world.acting();
            prop_assert!(acting.len() <= 1, "{:?}", acting);
            let holder = world.etcd.leader.as_ref().map(|leader| leader.1);
            prop_assert!(acting.is_empty() || holder == acting.first().copied());
        }
        prop_assert!(world.etcd.epochs.is_sorted_by(|one, other| one < other));
        prop_assert!(!world.etcd.epochs.is_empty());
    }
}
