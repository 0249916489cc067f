//! Measures a rendezvous of many local nodes: all join, one leaves, the others join again.
//!
//! `bench_nodes N` prints one line of JSON. Each node has its own connection and its own thread, which are those of
//! `torchrun`. All of them and the server are in this process.

use std::{
    env,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use elasticrun_core::rendezvous::{Membership, NodeId, Settings};
use elasticrun_rendezvous::{Endpoint, Node, Server};

type Error = Box<dyn std::error::Error>;

/// The longest measurement.
const LIMIT: Duration = Duration::from_secs(300);

fn main() -> ExitCode {
    let count = env::args().nth(1).and_then(|text| text.parse().ok());
    let Some(count) = count.filter(|count: &usize| *count >= 2) else {
        eprintln!("bench_nodes N: the number of nodes, at least 2");
        return ExitCode::from(2);
    };
    match measure(count) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("bench_nodes: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(count: usize) -> Result<String, Error> {
    let any = Endpoint::parse("127.0.0.1:0")?;
    let server = Server::start(&any)?;
    let endpoint = any.with_port(server.address().port());
    // The last call is as long as in the other measurement. The others are the defaults, which are those of torch.
    let settings = Settings::new(count - 1, count)?.with("last_call_timeout", "1")?;
    let nodes = (0..count).map(|number| {
        let id = NodeId::new(&format!("node-{number}"))?;
        Ok(Node::start(
            endpoint.clone(),
            "bench",
            id,
            settings.clone(),
        )?)
    });
    let mut nodes = nodes.collect::<Result<Vec<_>, Error>>()?;
    let (joined, join_cpu) = timed(|| join(&nodes, count))?;
    let leaver = nodes.pop().ok_or("no nodes")?;
    let (rejoin, rejoin_cpu) = timed(|| {
        leaver.exit().wait().map_err(|error| error.to_string())?;
        for node in &nodes {
            let mut known = node.observed();
            while known.left == 0 {
                known = node.wait_for_change(&known, LIMIT);
            }
        }
        join(&nodes, count - 1)
    })?;
    drop(nodes);
    Ok(format!(
        r#"{{"nodes":{count},"join_s":{joined:.3},"join_cpu_s":{join_cpu:.3},"rejoin_s":{rejoin:.3},"rejoin_cpu_s":{rejoin_cpu:.3}}}"#
    ))
}

/// Joins all nodes, from a thread for each of them.
fn join(nodes: &[Node], count: usize) -> Result<(), String> {
    let places = thread::scope(|scope| {
        let joins: Vec<_> = nodes
            .iter()
            .map(|node| scope.spawn(|| node.join().wait()))
            .collect();
        let joined = joins.into_iter().map(|join| {
            let joined = join.join().map_err(|_| "a thread failed".to_owned())?;
            joined.map_err(|error| error.to_string())
        });
        joined.collect::<Result<Vec<Membership>, String>>()
    })?;
    let world_size = places.first().map_or(0, |place| place.world_size as usize);
    match world_size == count {
        true => Ok(()),
        false => Err(format!("{world_size} of {count} nodes are in the round")),
    }
}

/// The seconds that a call takes, of the clock and of the processors.
fn timed(call: impl FnOnce() -> Result<(), String>) -> Result<(f64, f64), Error> {
    let (began, cpu) = (Instant::now(), cpu_seconds()?);
    call()?;
    Ok((began.elapsed().as_secs_f64(), cpu_seconds()? - cpu))
}

/// The time that this process has used the processors for.
fn cpu_seconds() -> Result<f64, Error> {
    let used = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF)?;
    let seconds =
        |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Ok(seconds(used.user_time()) + seconds(used.system_time()))
}
