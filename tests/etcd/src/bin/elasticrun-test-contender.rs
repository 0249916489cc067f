//! A process that runs for leader of a run and writes as long as it leads: `NONCE PREFIX TTL ENDPOINT...`.
//!
//! Each line on standard output is a word and a number: `standby` and the epoch of the leader, `leading` and its own epoch,
//! `wrote` and the revision, `refused` and 0 for the first write after an end of its leadership, `deposed` and the epoch of
//! the other leader if it has led before. It ends when it is deposed.

use std::{env, time::Duration};

use elasticrun_etcd::{
    Client, LeaseId, Op, Options,
    leader::{Leader, Settings, Status, WriteError},
};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut arguments = env::args().skip(1);
    let mut next = || arguments.next().expect("NONCE PREFIX TTL ENDPOINT...");
    let (nonce, prefix, ttl) = (next(), next(), next());
    let settings = Settings {
        ttl: Duration::from_secs(ttl.parse().expect("seconds")),
        nonce: nonce.parse().expect("a number"),
        endpoints: vec![],
        give_up: Duration::from_secs(60),
        leader_gives_up: Some(Duration::from_secs(60)),
    };
    let client = Client::new(&Options::new(arguments.collect())).expect("no password in clear");
    let leader = Leader::start(client, &prefix, settings);
    let (mut last, mut is_refused, mut has_led) = (None, false, false);
    loop {
        let status = leader.status();
        let word = match &status {
            Status::Standby(Some(holder)) if has_led => ("deposed", holder.epoch),
            Status::Standby(holder) => ("standby", holder.as_ref().map_or(0, |by| by.epoch)),
            Status::Leading { epoch, .. } => ("leading", *epoch),
            Status::Unreachable(_) | Status::Resigned => ("ended", 0),
        };
        if last.replace(word) != Some(word) {
            println!("{} {}", word.0, word.1);
        }
        if ["deposed", "ended"].contains(&word.0) {
            return;
        }
        if word.0 == "leading" {
            has_led = true;
            let key = format!("{prefix}/by-{nonce}").into();
            let step = Op::Put {
                key,
                value: nonce.clone().into(),
                lease: LeaseId(0),
            };
            match leader.write(&[], &[step]).await {
                Ok(outcome) => println!("wrote {}", outcome.revision.0),
                Err(WriteError::Etcd(_)) => {}
                Err(_) if is_refused => {}
                Err(_) => {
                    is_refused = true;
                    println!("refused 0");
                }
            }
        }
        // The pace of writes. What must happen is awaited by the test that reads the lines.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
