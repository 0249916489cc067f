//! Scripts without the SDK on several hosts: they meet at `MASTER_ADDR` and `MASTER_PORT`, as under torchrun.

// Tests and their helpers may panic.
#![allow(clippy::unwrap_used)]

use std::{collections::BTreeSet, fs};

use elasticrun_ssh_tests::Net;

/// Rank 0 listens and the others connect. All record it; then rank 1 of the first group fails while the others
/// hang.
const MEET: &str = r#"
import os, socket, sys, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    with socket.create_server(place) as server:
        peers = [server.accept()[0] for _ in range(size - 1)]
        for peer in peers:
            peer.sendall(b"all")
else:
    while True:
        try:
            peer = socket.create_connection(place)
            break
        except OSError:
            time.sleep(0.05)
    assert peer.recv(3) == b"all"
first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
said = open(os.environ["PROCESS_TEST_DIR"] + "/met", "a")
said.write(f"{place[0]} {place[1]} {rank} {size} {os.environ['TORCHELASTIC_RESTART_COUNT']}\n")
said.flush()
if first:
    if rank == 1:
        sys.exit(7)
    time.sleep(1000)
"#;

#[test]
fn ssh_scripts_without_the_sdk_meet_again_after_a_failure() {
    let net = match Net::new(2) {
        Ok(net) => net,
        Err(why) => {
            return eprintln!(
                "skipped ssh_scripts_without_the_sdk_meet_again_after_a_failure: {why}"
            );
        }
    };
    let (one, other) = (net.host(0).address, net.host(1).address);
    let ended = net
        .job("-np 4 --min-np 2 --max-restarts 1 --blacklist-cooldown-range 0 0")
        .flag(["-H", &format!("{one}:2,{other}:2")])
        .command(["python3", "-c", MEET])
        .run();
    ended.expect(0, &["succeeded through 1 failure"]);
    let met = fs::read_to_string(ended.path("met")).unwrap();
    let of = |restarts: &str| -> Vec<Vec<&str>> {
        let words = met.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        words.filter(|words| words[4] == restarts).collect()
    };
    let (first, second) = (of("0"), of("1"));
    assert_eq!(
        (first.len(), second.len()),
        (4, 4),
        "{met}\n{}",
        ended.stderr
    );
    for group in [&first, &second] {
        let ports: BTreeSet<_> = group.iter().map(|words| (words[0], words[1])).collect();
        let ranks: BTreeSet<_> = group.iter().map(|words| words[2]).collect();
        assert_eq!((ports.len(), ranks.len()), (1, 4), "{met}");
        assert!(
            [one, other]
                .iter()
                .any(|host| host.to_string() == group[0][0]),
            "{met}"
        );
    }
    assert_ne!(first[0][1], second[0][1], "another port: {met}");
    net.assert_empty();
}
