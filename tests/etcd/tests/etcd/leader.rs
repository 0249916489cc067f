//! Candidates on a real cluster.

use std::{
    io::{BufRead, BufReader, Lines},
    process::{Child, ChildStdout, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::support::{client, cluster, eventually, key, put, read};
use elasticrun_etcd::{
    Client, Compare, LeaseId, Op, Revision,
    leader::{Clock, Leader, Settings, Status, WriteError},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

const RUN: &str = "/elasticrun/run-7";

fn settings(nonce: u64, ttl: u64) -> Settings {
    Settings {
        ttl: Duration::from_secs(ttl),
        nonce,
        endpoints: vec![format!("driver-{nonce}:1")],
        give_up: Duration::from_secs(60),
        leader_gives_up: Some(Duration::from_secs(60)),
    }
}

/// Waits until a candidate is what it should be.
async fn until<T>(leader: &mut Leader, mut found: impl FnMut(&Status) -> Option<T>) -> T {
    let mut status = leader.status();
    loop {
        if let Some(found) = found(&status) {
            return found;
        }
        status = leader.changed().await;
    }
}

async fn leads(leader: &mut Leader, least: u64) -> (u64, Revision) {
    let find = |status: &Status| match status {
        Status::Leading { epoch, fence, .. } if *epoch >= least => Some((*epoch, *fence)),
        _ => None,
    };
    until(leader, find).await
}

#[tokio::test]
async fn a_standby_takes_over_when_its_leader_resigns() {
    let cluster = cluster!(3);
    let client = client(&cluster);
    // The lease is far longer than the test: only the watch tells the standby.
    let mut first = Leader::start(client.clone(), RUN, settings(1, 600));
    assert_eq!(leads(&mut first, 1).await.0, 1);
    let mut second = Leader::start(client.clone(), RUN, settings(2, 600));
    let known = until(&mut second, |status| match status {
        Status::Standby(holder) => holder.clone(),
        _ => None,
    });
    assert_eq!(known.await.endpoints, ["driver-1:1"]);
    assert_eq!(second.write(&[], &[]).await, Err(WriteError::NotLeader));
    first.resign().await;
    assert_eq!(leads(&mut second, 1).await.0, 2);
    second
        .write(&[], &[put("a", "1", LeaseId(0))])
        .await
        .unwrap();
    assert!(read(&client, "a").await.unwrap().is_some());
}

#[tokio::test]
async fn a_leader_whose_machine_was_suspended_beyond_its_lease_leads_no_longer() {
    let cluster = cluster!(1);
    let client = client(&cluster);
    let slept = Arc::new(AtomicU64::new(0));
    let clock = Clock::new({
        let (boottime, slept) = (Clock::boottime(), Arc::clone(&slept));
        move || boottime.now() + Duration::from_secs(slept.load(Ordering::SeqCst))
    });
    let mut leader = Leader::start_with(client, RUN, settings(1, 600), clock);
    leads(&mut leader, 1).await;
    assert!(leader.write(&[], &[]).await.is_ok());
    // The key is still there, and no timer has ended: only the clock tells.
    slept.store(601, Ordering::SeqCst);
    assert_eq!(leader.write(&[], &[]).await, Err(WriteError::NotLeader));
}

#[tokio::test]
async fn a_leader_whose_key_is_gone_writes_nothing_and_leads_again_in_a_new_epoch() {
    let cluster = cluster!(1);
    let client = client(&cluster);
    let mut leader = Leader::start(client.clone(), RUN, settings(1, 600));
    let step = [put("a", "1", LeaseId(0))];
    let mut epoch = 1;
    loop {
        assert!(epoch < 50, "no refusal comes from the fence");
        leads(&mut leader, epoch).await;
        let key = format!("{RUN}/leader");
        let held = read(&client, &key).await.unwrap().unwrap();
        assert!(leader.write(&[], &[]).await.is_ok());
        client.revoke(held.lease).await.unwrap();
        let refused = leader.write(&[], &step).await;
        assert_eq!(read(&client, "a").await.unwrap(), None);
        epoch += 1;
        // A leader sends its first keep-alive at once, and the next one in 200 s. If its answer came behind the revocation, another try
        // shows whether the fence can tell.
        if refused != Err(WriteError::NotLeader) {
            assert_eq!(refused, Err(WriteError::Fenced));
            break;
        }
    }
    assert_eq!(leads(&mut leader, epoch).await.0, epoch);
    leader.write(&[], &step).await.unwrap();
}

#[tokio::test]
async fn a_write_of_a_leader_has_conditions_of_its_own() {
    let cluster = cluster!(1);
    let client = client(&cluster);
    let mut leader = Leader::start(client.clone(), RUN, settings(1, 600));
    leads(&mut leader, 1).await;
    let steps: Vec<_> = (0..100)
        .map(|index| put(&format!("k{index}"), "1", LeaseId(0)))
        .collect();
    // More steps than etcd takes on one level.
    let nested = [
        Op::All(steps.clone()),
        Op::All(vec![put("a", "1", LeaseId(0))]),
    ];
    let absent = [Compare::Modified("a".into(), Revision(0))];
    leader.write(&absent, &nested).await.unwrap();
    assert!(read(&client, "k99").await.unwrap().is_some());
    let refused = leader.write(&absent, &[put("b", "1", LeaseId(0))]).await;
    assert_eq!(refused, Err(WriteError::Refused));
    assert_eq!(read(&client, "b").await.unwrap(), None);
    assert!(matches!(leader.status(), Status::Leading { .. }));
}

#[tokio::test]
async fn a_leader_without_etcd_stops_to_write_and_goes_on_when_it_is_back() {
    let mut cluster = cluster!(3);
    let mut leader = Leader::start(client(&cluster), RUN, settings(1, 2));
    leads(&mut leader, 1).await;
    (0..3).for_each(|index| cluster.kill(index));
    let step = [put("a", "1", LeaseId(0))];
    while leader.write(&[], &step).await != Err(WriteError::NotLeader) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    (0..3).for_each(|index| cluster.restart(index));
    cluster.wait_ready();
    while leader.write(&[], &step).await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(matches!(leader.status(), Status::Leading { .. }));
}

#[tokio::test]
async fn a_candidate_names_endpoints_that_it_never_reached() {
    let mut cluster = cluster!(1);
    cluster.kill(0);
    let mut short = settings(1, 2);
    short.give_up = Duration::from_millis(500);
    let mut leader = Leader::start(client(&cluster), RUN, short);
    let why = until(&mut leader, |status| match status {
        Status::Unreachable(why) => Some(why.clone()),
        _ => None,
    });
    let why = why.await;
    assert!(why.contains(&cluster.endpoints()[0]), "{why}");
}

/// A candidate in a process of its own.
struct Contender {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Contender {
    fn start(nonce: u64, endpoints: &[String]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_elasticrun-test-contender"))
            .args([&nonce.to_string(), RUN, "2"])
            .args(endpoints)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the contender");
        let output = process.stdout.take().expect("a pipe");
        let lines = BufReader::new(output).lines();
        Self { process, lines }
    }

    /// The next line: a word and a number.
    fn next(&mut self) -> Option<(String, i64)> {
        let line = self.lines.next()?.expect("text");
        let (word, number) = line.split_once(' ').expect("two words");
        Some((word.into(), number.parse().expect("a number")))
    }

    /// Waits for a line with this word, and gives its number.
    fn wait(&mut self, word: &str) -> i64 {
        loop {
            let (said, number) = self.next().expect("it runs");
            if said == word {
                return number;
            }
        }
    }

    fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.process.id()).expect("an id of a process");
        kill(Pid::from_raw(id), signal).expect("it is our child");
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

async fn newest(client: &Client, nonce: u64) -> Revision {
    let name = format!("{RUN}/by-{nonce}");
    let found = eventually(async || client.range(&key(&name), 0, Revision(0)).await).await;
    found
        .keys
        .first()
        .map_or(Revision(0), |found| found.mod_revision)
}

#[tokio::test]
async fn a_leader_that_was_stopped_for_longer_than_its_lease_writes_nothing_more() {
    let cluster = cluster!(3);
    let client = client(&cluster);
    let mut first = Contender::start(1, &cluster.endpoints());
    assert_eq!(first.wait("leading"), 1);
    first.wait("wrote");
    let mut second = Contender::start(2, &cluster.endpoints());
    second.wait("standby");

    first.signal(Signal::SIGSTOP);
    assert_eq!(second.wait("leading"), 2);
    second.wait("wrote");
    let before = newest(&client, 1).await;
    let holder = read(&client, &format!("{RUN}/leader"))
        .await
        .unwrap()
        .unwrap();
    assert!(before < holder.create_revision);

    first.signal(Signal::SIGCONT);
    // It may have been stopped between a write and its line.
    let mut said = Vec::new();
    while let Some((word, number)) = first.next() {
        assert!(word != "wrote" || Revision(number) <= before, "{number}");
        said.push((word, number));
    }
    assert_eq!(said.last(), Some(&("deposed".into(), 2)));
    assert_eq!(newest(&client, 1).await, before);
    second.wait("wrote");
}
