//! How agents of other machines find the driver, and each other.

// Tests and their helpers may panic.
#![allow(clippy::unwrap_used)]

use elasticrun_process_tests::binaries;
use elasticrun_ssh_tests::Net;

/// Makes a net, or skips the test with the reason.
macro_rules! net {
    ($hosts:literal, $test:literal) => {
        match Net::new($hosts) {
            Ok(net) => net,
            Err(why) => {
                eprintln!("skipped {}: {why}", $test);
                return;
            }
        }
    };
}

#[test]
fn ssh_hosts_of_ipv6_train_with_others() {
    let mut net = net!(2, "ssh_hosts_of_ipv6_train_with_others");
    if let Err(why) = net.add_ipv6() {
        eprintln!("skipped ssh_hosts_of_ipv6_train_with_others: {why}");
        return;
    }
    let (v6, v4) = (net.host(0).address_v6.unwrap(), net.host(1).address);
    let mut job = net
        .job("-np 2")
        .flag(["-H", &format!("[{v6}]:1,{v4}:1")])
        .start();
    job.wait_training(2, 3);
    job.finish();
    job.end().expect(0, &["succeeded"]);
    net.assert_empty();
}

#[test]
fn ssh_a_name_that_only_ssh_knows() {
    let net = net!(1, "ssh_a_name_that_only_ssh_knows");
    let config = net.directory().join("config");
    let host = net.host(0).address;
    std::fs::write(&config, format!("Host elsewhere\n  HostName {host}\n")).unwrap();
    let mut job = net
        .job("-np 1")
        .flag(["-H", "elsewhere:1"])
        .ssh(&format!(
            "exec /usr/bin/ssh -F '{}' \"$@\"",
            config.display()
        ))
        .start();
    job.wait_training(1, 3);
    job.finish();
    job.end().expect(0, &["succeeded"]);
    net.assert_empty();
}

#[test]
fn ssh_others_reach_a_host_at_the_interface_that_its_agent_was_given() {
    let net = net!(
        1,
        "ssh_others_reach_a_host_at_the_interface_that_its_agent_was_given"
    );
    net.host(0).add_interface("data0", "10.78.0.11/24");
    let token = net.directory().join("token").display().to_string();
    let mut job = net
        .job("-np 1 --launcher agent --listen 10.77.0.1:7070")
        .flag(["--join-token-file", &token])
        .command([
            "sh",
            "-c",
            "echo rank 0 is at $MASTER_ADDR by $GLOO_SOCKET_IFNAME",
        ])
        .start();
    job.wait_said("hosts join by");
    let program = binaries::elasticrun().display().to_string();
    let join = ["--join", "10.77.0.1:7070", "--join-token-file", &token];
    let agent = [&program, "agent", "--network-interface", "eth9,data0"];
    let mut agent = net.host(0).start(&[&agent[..], &join].concat());
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    let at = "rank 0 is at 10.78.0.11 by data0";
    assert!(ended.stdout.contains(at), "{}", ended.stdout);
    assert!(agent.wait().unwrap().success());
    net.assert_empty();
}
